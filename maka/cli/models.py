"""`maka models`: the profiles that a run can use."""

from typing import TYPE_CHECKING

import click
from msgspec import Struct

if TYPE_CHECKING:
    from maka.config import Config
    from maka.contracts.model_ports import ModelProfile


class ProfileLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """A profile as listed. `key` says where its key comes from and whether it is there; never what it is."""

    name: str
    model: str | None
    base_url: str
    key: str
    source: str
    default: bool


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One profile per line.")
def models(as_json: bool) -> None:
    """List the model profiles.

    Those of config.toml, the environment's, and the ready-made ones.
    """
    from maka.cli.output import note, write_json
    from maka.cli.table import write_table
    from maka.config import load_config

    config = load_config()
    lines = profile_lines(config)
    if as_json:
        for line in lines:
            write_json(line)
        return
    rows = [
        ("*" if line.default else "", line.name, line.model or "(--model NAME)", line.base_url, line.key, line.source)
        for line in lines
    ]
    write_table(("", "profile", "model", "server", "key", "from"), rows)
    note(f"* is the default. Your own go into {config.config_file}: [models.NAME] base_url, model, key_env ...")


def profile_lines(config: "Config") -> list[ProfileLine]:
    """Return every profile by name, a person's own in the place of a ready-made one."""
    from maka.cli.profiles import choose_profile
    from maka.config import presets
    from maka.contracts.errors import RefusedError

    try:
        default = choose_profile(config)
    except RefusedError:
        default = None
    listed = [(profile, "config.toml") for profile in config.profiles.values()]
    listed += [(preset, "ready-made") for preset in presets() if preset.name not in config.profiles]
    if default is not None and default.name not in {profile.name for profile, _ in listed}:
        listed.append((default, "environment"))
    return [
        ProfileLine(
            name=profile.name,
            model=(default.model if is_default and default else profile.model) or None,
            base_url=profile.base_url,
            key=_key(config, profile),
            source=source,
            default=is_default,
        )
        for profile, source in listed
        for is_default in (default is not None and profile.name == default.name,)
    ]


def _key(config: "Config", profile: "ModelProfile") -> str:
    if profile.key_env is not None:
        return profile.key_env + ("" if profile.key_env in config.surroundings.keys else " (not set)")
    return profile.key_file or ("key_cmd" if profile.key_cmd is not None else "-")
