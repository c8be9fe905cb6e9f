"""Configuration: one frozen `Config` from config.toml, the environment and flags.

The only file that reads the environment. A flag wins over the environment, the environment over config.toml. A key is
never part of it: a profile says where its key is to be had, and `read_key` fetches it at the moment of use. Whatever
can't be used is a `RefusedError` of one line that names the file and the key.
"""

import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NoReturn, cast
from urllib.parse import urlsplit

import msgspec
import platformdirs
from msgspec import Struct

from maka.contracts.errors import Refusal, RefusalCode, RefusedError
from maka.contracts.model_ports import ModelProfile
from maka.contracts.tool_limits import ToolLimits
from maka.tool_environment import interpreter_folder, secret_values, tool_environment

KEY_COMMAND_TIMEOUT_S = 60.0
TOOL_LIMIT_MIN, TOOL_LIMIT_MAX = 16, 1 << 30
TOOL_LIMIT_VARIABLES = {
    "memory_max_mib": "MAKA_TOOLS_MEMORY_MAX_MIB",
    "processes_max": "MAKA_TOOLS_PROCESSES_MAX",
    "open_files_max": "MAKA_TOOLS_OPEN_FILES_MAX",
}
LOG_LEVELS = ("debug", "info", "warning", "error")
_PROFILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_PROFILE_KEYS = tuple(name for name in ModelProfile.__struct_fields__ if name != "name")
_FILE_KEYS = ("default", "log_level", "models", "tools", "waits")
_ON_RESTART = ("keep", "close")
_NUMBER = re.compile(r"[0-9]{1,12}", re.ASCII)
_KEY_SOURCES = ("key_env", "key_cmd", "key_file")


class Surroundings(Struct, frozen=True, kw_only=True):
    """What the environment says about models: names, never a key. `keys` are the variables that hold one."""

    model: str | None = None
    base_url: str | None = None
    keys: frozenset[str] = frozenset()


class Config(Struct, frozen=True, kw_only=True):
    """Everything that is decided before Maka starts.

    `profiles` are those of config.toml, by name, and the one that was chosen for this run. `child_env` is the whole
    environment of the tools' processes: no provider's key is in it. `waits_keep` says whether a run that waits for a
    person alone stays parked when Maka starts again.
    """

    state_root: Path
    config_file: Path
    config_dir: Path
    profiles: Mapping[str, ModelProfile]
    default_profile: str | None = None
    surroundings: Surroundings = Surroundings()
    child_env: Mapping[str, str]
    waits_keep: bool = True
    tool_limits: ToolLimits = ToolLimits()
    log_level: str = "warning"
    no_color: bool = False


def presets() -> tuple[ModelProfile, ...]:
    """Return the ready-made profiles. An empty `model` has to be given beside it."""
    return (
        _preset("openai", "https://api.openai.com/v1", key_env="OPENAI_API_KEY"),
        _preset("openrouter", "https://openrouter.ai/api/v1", key_env="OPENROUTER_API_KEY", reasoning="reasoning"),
        _preset("ollama", "http://127.0.0.1:11434/v1", reasoning="reasoning"),
        _preset("vllm", "http://127.0.0.1:8000/v1"),
        # It serves the one model that it was started with, whatever name is asked for.
        _preset("llama-server", "http://127.0.0.1:8080/v1", model="default"),
        _preset("lmstudio", "http://127.0.0.1:1234/v1"),
    )


def _preset(
    name: str, base_url: str, *, model: str = "", key_env: str | None = None, reasoning: str = "reasoning_content"
) -> ModelProfile:
    fields: dict[str, Any] = {"first_event_s": 0.0} if is_loopback(base_url) else {}
    return ModelProfile(name=name, base_url=base_url, model=model, key_env=key_env, reasoning_field=reasoning, **fields)


def load_config(environ: Mapping[str, str] | None = None) -> Config:
    """Read config.toml and the environment (that of this process where none is given)."""
    env = os.environ if environ is None else environ
    named = env.get("MAKA_CONFIG")
    config_file = Path(named or platformdirs.user_config_path("maka") / "config.toml").expanduser().absolute()
    content = _read_file(config_file, must_exist=bool(named))
    profiles = {name: _profile(config_file, name, raw) for name, raw in content.get("models", {}).items()}
    default = content.get("default")
    if default is not None and default not in profiles:
        _refuse(f'{config_file}: default = "{default}" names no profile; add [models.{default}] or change it')
    level = env.get("MAKA_LOG") or content.get("log_level") or "warning"
    if level not in LOG_LEVELS:
        _refuse(f'The log level "{level}" is none of {", ".join(LOG_LEVELS)}: change MAKA_LOG or log_level')
    return Config(
        state_root=Path(env.get("MAKA_HOME") or platformdirs.user_state_path("maka")).expanduser().absolute(),
        config_file=config_file,
        config_dir=config_file.parent,
        profiles=profiles,
        default_profile=default or (next(iter(profiles)) if len(profiles) == 1 else None),
        surroundings=_surroundings(env, profiles.values()),
        child_env=tool_environment(env, (*profiles.values(), *presets())),
        waits_keep=_waits_keep(config_file, content.get("waits", {})),
        tool_limits=_tool_limits(config_file, content.get("tools", {}), env),
        log_level=level,
        no_color=bool(env.get("NO_COLOR")),
    )


def wants_traceback(environ: Mapping[str, str] | None = None) -> bool:
    """Say whether MAKA_DEBUG asks for tracebacks; asked before and apart from a `Config`, which may be what fails."""
    return bool((os.environ if environ is None else environ).get("MAKA_DEBUG"))


def _read_file(path: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if must_exist:
            _refuse(f"MAKA_CONFIG names {path}, which doesn't exist: create it or unset MAKA_CONFIG")
        return {}
    except OSError as error:
        _refuse(f"{path} can't be read ({error.strerror}): mend its rights or set MAKA_CONFIG")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        _refuse(f"{path} is no TOML: {error}")
    _known_keys(str(path), content, _FILE_KEYS)
    models = content.get("models", {})
    if not isinstance(models, dict) or not all(isinstance(value, dict) for value in models.values()):  # pyright: ignore[reportUnknownVariableType]
        _refuse(f"{path}: models is a table of tables: write [models.NAME]")
    for name in ("default", "log_level"):
        if not isinstance(content.get(name, ""), str):
            _refuse(f"{path}: {name} is a text in quotes")
    return content


def _waits_keep(config_file: Path, waits: Any) -> bool:
    where = f"{config_file}: [waits]"
    if not isinstance(waits, dict):
        _refuse(f'{where} is a table: write [waits] and on_restart = "keep"')
    _known_keys(where, cast("dict[str, Any]", waits), ("on_restart",))
    policy = cast("dict[str, Any]", waits).get("on_restart", "keep")
    if policy not in _ON_RESTART:
        _refuse(f"{where} on_restart is one of {', '.join(_ON_RESTART)}")
    return bool(policy == "keep")


def _tool_limits(config_file: Path, tools: Any, env: Mapping[str, str]) -> ToolLimits:
    where = f"{config_file}: [tools]"
    if not isinstance(tools, dict):
        _refuse(f"{where} is a table: write [tools] and processes_max = 4096")
    given = dict(cast("dict[str, Any]", tools))
    _known_keys(where, given, ToolLimits.__struct_fields__)
    sockets = given.pop("unix_sockets", False)
    if not isinstance(sockets, bool):
        _refuse(f"{where} unix_sockets is true or false")
    found = {name: checked_limit(value, f"{where} {name}") for name, value in given.items()}
    for name, variable in TOOL_LIMIT_VARIABLES.items():
        if said := env.get(variable):
            found[name] = checked_limit(int(said) if _NUMBER.fullmatch(said) else said, variable)
    return ToolLimits(**found, unix_sockets=sockets)


def checked_limit(value: object, where: str) -> int:
    """Return a limit as it is, or refuse it in the name of `where`."""
    if type(value) is not int or not (value == 0 or TOOL_LIMIT_MIN <= value <= TOOL_LIMIT_MAX):
        _refuse(f"{where} is a whole number from {TOOL_LIMIT_MIN}, or 0 for no limit")
    return value


def _known_keys(where: str, found: Iterable[str], known: tuple[str, ...]) -> None:
    for key in found:
        if key not in known:
            _refuse(f'{where} has the unknown key "{key}"; known keys: {", ".join(known)}')


def _profile(config_file: Path, name: str, raw: dict[str, Any]) -> ModelProfile:
    where = f"{config_file}: [models.{name}]"
    if _PROFILE_NAME.fullmatch(name) is None:
        _refuse(f"{where}: a profile's name is 1 to 64 of letters, digits and _ . -")
    _known_keys(where, raw, _PROFILE_KEYS)
    given = [key for key in _KEY_SOURCES if key in raw]
    if len(given) > 1:
        _refuse(f"{where} has {' and '.join(given)}: one of them is enough")
    for key in ("base_url", "model"):
        if not raw.get(key):
            _refuse(f'{where} lacks "{key}"')
    try:
        profile = msgspec.convert({**raw, "name": name}, ModelProfile)
    except msgspec.ValidationError as error:
        _refuse(f"{where}: {error}")
    _check_values(profile, where)
    if is_loopback(checked_url(profile.base_url, where)) and "first_event_s" not in raw:
        # Local models think long before their first word.
        profile = msgspec.structs.replace(profile, first_event_s=0.0)
    return profile


def _check_values(profile: ModelProfile, where: str) -> None:
    for key in ("first_event_s", "idle_s"):
        if not getattr(profile, key) >= 0:  # not-a-number isn't, either
            _refuse(f"{where} {key} is a number of seconds, or 0 for no limit")
    for key in ("context_window", "max_output_tokens", "max_concurrent"):
        if (value := getattr(profile, key)) is not None and value < 1:
            _refuse(f"{where} {key} is a whole number from 1; leave it out where there is no limit")
    for name, value in profile.headers.items():
        # The value isn't shown: it may be a key.
        if _HEADER_NAME.fullmatch(name) is None or not (value.isascii() and value.isprintable()):
            _refuse(f"{where}: the header {name!r} can't be sent: a name is of letters, digits and -, a value of ASCII")


def checked_url(url: str, where: str) -> str:
    """Return a base URL as it is, or refuse it in the name of `where`."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        _refuse(f"{where}: {url!r} is no URL; write it like http://127.0.0.1:8000/v1")
    if not usable or any(letter.isspace() for letter in url):
        _refuse(f"{where}: {url!r} is no URL; write it like http://127.0.0.1:8000/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        _refuse(f"{where}: a base URL holds no name, password, query or fragment; a key goes into key_env")
    return url


def is_loopback(url: str) -> bool:
    """Say whether a URL's host is this machine itself, by its name or address alone (nothing is looked up)."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _surroundings(env: Mapping[str, str], profiles: Iterable[ModelProfile]) -> Surroundings:
    names = {profile.key_env for profile in (*profiles, *presets()) if profile.key_env}
    return Surroundings(
        model=env.get("MAKA_MODEL") or None,
        base_url=env.get("OPENAI_BASE_URL") or None,
        keys=frozenset(name for name in names if env.get(name)),
    )


def with_own_python_first(config: Config) -> Config:
    """Return a configuration in which tools find the running interpreter, and what is installed for it, first."""
    path = os.pathsep.join([interpreter_folder(), config.child_env["PATH"]])
    return msgspec.structs.replace(config, child_env={**config.child_env, "PATH": path})


def with_profile(config: Config, profile: ModelProfile) -> Config:
    """Return a configuration that knows one more profile; its key stays out of the tools' environment, too."""
    child_env = {name: value for name, value in config.child_env.items() if name != profile.key_env}
    profiles = {**config.profiles, profile.name: profile}
    return msgspec.structs.replace(config, profiles=profiles, child_env=child_env)


def read_key(profile: ModelProfile, environ: Mapping[str, str] | None = None) -> str:
    """Fetch a profile's key, "" where it names none. Blocks while `key_cmd` runs; never log what it returns."""
    env = os.environ if environ is None else environ
    where = f"profile {profile.name}"
    if profile.key_env is not None:
        key, where = env.get(profile.key_env, ""), f"{profile.key_env} ({where})"
    elif profile.key_file is not None:
        key, where = _key_from_file(profile.key_file, where), f"{profile.key_file} ({where})"
    elif profile.key_cmd is not None:
        key, where = _key_from_command(profile.key_cmd, where), f"key_cmd of {where}"
    else:
        return ""
    key = key.strip()
    if not key:
        _refuse(f"{where} holds no key: set it, or change the profile", RefusalCode.NOT_READY)
    if not (key.isascii() and key.isprintable()) or " " in key:
        _refuse(f"{where} holds characters that no key has: it should be the key alone", RefusalCode.NOT_READY)
    return key


def known_secrets(config: Config, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the secrets that can be known before any key is used: no `key_cmd` runs. Never log what it returns."""
    env = os.environ if environ is None else environ
    profiles = tuple(config.profiles.values())
    found = list(secret_values(env, (*profiles, *presets())))
    for name in {profile.key_file for profile in profiles if profile.key_file is not None}:
        with suppress(RefusedError):  # told when the key is used
            found.append(_key_from_file(name, name).strip())
    return tuple(found)


def _key_from_file(name: str, where: str) -> str:
    try:
        return Path(name).expanduser().read_text("utf-8", errors="replace")
    except OSError as error:
        _refuse(f"{name} ({where}) can't be read: {error.strerror}", RefusalCode.NOT_READY)


def _key_from_command(command: str, where: str) -> str:
    # No shell: what a configuration names is one program with its arguments, and quoting stays obvious. It runs in no
    # workspace: a program may load what lies where it begins.
    try:
        argv = shlex.split(command)
        done = subprocess.run(
            argv, check=False, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=KEY_COMMAND_TIMEOUT_S
        )
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        reason = "took too long" if isinstance(error, subprocess.TimeoutExpired) else str(error)
        _refuse(f"key_cmd of {where} could not run: {reason}", RefusalCode.NOT_READY)
    if done.returncode != 0:
        _refuse(f"key_cmd of {where} ended with {done.returncode}: try it by hand", RefusalCode.NOT_READY)
    return done.stdout.decode("utf-8", errors="replace")


def _refuse(message: str, code: RefusalCode = RefusalCode.INVALID_INPUT) -> NoReturn:
    raise RefusedError(Refusal(code=code, message=message))
