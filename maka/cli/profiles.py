"""Which model answers: from flags, the environment, config.toml and the ready-made profiles, in this order."""

import socket
from contextlib import suppress
from typing import Any, NoReturn
from urllib.parse import urlsplit

from msgspec.structs import replace

from maka.config import Config, checked_url, is_loopback, presets
from maka.contracts.errors import Refusal, RefusalCode, RefusedError
from maka.contracts.model_ports import ModelProfile

PROBE_TIMEOUT_S = 0.2
SERVER_TIMEOUT_S = 2.0
ENVIRONMENT = "environment"
"""The name of the profile that OPENAI_BASE_URL makes."""
WHAT_TO_SET = (
    "No model is set up. Set OPENAI_API_KEY (or OPENAI_BASE_URL) and MAKA_MODEL, add a profile to {file}, "
    "or use -m with one of {names} and --model NAME."
)


def choose_profile(
    config: Config, *, name: str | None = None, model: str | None = None, base_url: str | None = None
) -> ModelProfile:
    """Return the profile that flags and configuration ask for.

    Raises RefusedError where nothing is set up (naming a server that listens on a usual port of this machine), where
    a name is unknown, and where a key that the profile needs isn't there.
    """
    if base_url is not None:
        checked_url(base_url, "--base-url")
    profile = _named(config, name) if name else _unnamed(config, model, base_url)
    if base_url is not None and base_url != profile.base_url:
        profile = _at(config, profile, base_url)
    chosen = model or profile.model or config.surroundings.model
    if not chosen:
        _refuse(f"Profile {profile.name} needs a model: add --model NAME or set MAKA_MODEL.")
    _check_key(config, profile)
    return replace(profile, model=chosen)


def _named(config: Config, name: str) -> ModelProfile:
    known = {profile.name: profile for profile in presets()} | dict(config.profiles)
    if name == ENVIRONMENT and name not in known and (found := _from_environment(config, None)) is not None:
        return found
    if name not in known:
        _refuse(f'There is no profile "{name}"; known: {", ".join(sorted(known))}. A model\'s name goes into --model.')
    return known[name]


def _unnamed(config: Config, model: str | None, base_url: str | None) -> ModelProfile:
    around = config.surroundings
    from_environment = _from_environment(config, base_url)
    if from_environment and (base_url or around.model):
        return from_environment
    if config.default_profile is not None:
        return config.profiles[config.default_profile]
    if from_environment:
        if not model:
            _refuse("A provider is set up, but no model: set MAKA_MODEL or add --model NAME.")
        return from_environment
    if config.profiles:
        _refuse(
            f"Which model? Use -m with one of {', '.join(config.profiles)}, or set default in {config.config_file}."
        )
    names = ", ".join(profile.name for profile in presets())
    _refuse(" ".join([WHAT_TO_SET.format(file=config.config_file, names=names), *_listening()]))


def _from_environment(config: Config, base_url: str | None) -> ModelProfile | None:
    around = config.surroundings
    url = base_url or around.base_url
    key = "OPENAI_API_KEY" if "OPENAI_API_KEY" in around.keys else None
    if url is not None:
        checked_url(url, "OPENAI_BASE_URL" if base_url is None else "--base-url")
        return _at(config, ModelProfile(name=ENVIRONMENT, base_url=url, model="", key_env=key), url)
    found = [preset for preset in presets() if preset.key_env in around.keys]
    return found[0] if found else None


def _at(config: Config, profile: ModelProfile, base_url: str) -> ModelProfile:
    """Move a profile to another server: a local one may think long, and doesn't need a key that isn't there."""
    fields: dict[str, Any] = {"base_url": base_url}
    if is_loopback(base_url):
        fields["first_event_s"] = 0.0
        if profile.key_env not in config.surroundings.keys:
            fields["key_env"] = None
    return replace(profile, **fields)


def _check_key(config: Config, profile: ModelProfile) -> None:
    # Only the variable: a command may ask its person something, and is run once, when the key is used.
    if profile.key_env is not None and profile.key_env not in config.surroundings.keys:
        _refuse(f"{profile.key_env} isn't set: profile {profile.name} takes its key from there.")


def check_server(profile: ModelProfile) -> None:
    """Refuse a server of this machine that isn't there: waiting and trying again would be of no use."""
    if not is_loopback(profile.base_url):
        return
    try:
        with suppress(TimeoutError), socket.create_connection((_host(profile), _port(profile)), SERVER_TIMEOUT_S):
            pass
    except OSError:
        where = f"{_host(profile)}:{_port(profile)}"
        _refuse(f"No server listens on {where} (profile {profile.name}): start it, or use another profile with -m.")


def _listening() -> list[str]:
    """Name the servers that take a connection on the usual ports of this machine."""
    found: list[str] = []
    for preset in presets():
        if is_loopback(preset.base_url):
            with suppress(OSError), socket.create_connection((_host(preset), _port(preset)), PROBE_TIMEOUT_S):
                model = "" if preset.model else " --model NAME"
                found.append(f"A server listens on {_host(preset)}:{_port(preset)}: try -m {preset.name}{model}.")
    return found


def _host(profile: ModelProfile) -> str:
    return urlsplit(profile.base_url).hostname or ""


def _port(profile: ModelProfile) -> int:
    parts = urlsplit(profile.base_url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _refuse(message: str) -> NoReturn:
    raise RefusedError(Refusal(code=RefusalCode.NOT_READY, message=message))
