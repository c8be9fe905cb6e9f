"""What tools see of the person's environment, and which values of it are secrets. Pure: the environment is an argument.

Law: a variable counts as a provider's key by its name; one that holds such a key, or what only a provider's key looks
like, is none for tools either, whatever it is called.
"""

import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from maka.contracts.model_ports import ModelProfile

_ENDINGS = ("_API_KEY", "_API_KEYS", "_API_TOKEN", "_ADMIN_KEY")
_HEADERS_NAME = "OPENAI_CUSTOM_HEADERS"
_NAMES = frozenset(
    {
        _HEADERS_NAME,
        "ANTHROPIC_AUTH_TOKEN",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AZURE_OPENAI_AD_TOKEN",
        "HF_TOKEN",
        "HUGGINGFACE_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "OPENAI_WEBHOOK_SECRET",
    }
)
_PROVIDERS = re.compile(
    r"(^|_)(OPENAI|AZURE_OPENAI|ANTHROPIC|CLAUDE|CLAUDE_CODE|OPENROUTER|GEMINI|GOOGLE_AI|MISTRAL|GROQ|COHERE|DEEPSEEK|XAI"
    r"|TOGETHER|FIREWORKS|PERPLEXITY|REPLICATE|CEREBRAS|BEDROCK)_(\w+_)?(KEY|KEYS|TOKEN|SECRET)$"
)
_CHARS_MIN = 16
"""A key this long is found inside of other values, too."""

_LOOK = re.compile(r"(?<![A-Za-z0-9])(sk-|gsk_|xai-)[A-Za-z0-9_-]{20,}")

_NOBODY_TYPES = {
    **dict.fromkeys(("EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR"), "true"),
    **dict.fromkeys(("PAGER", "GIT_PAGER"), "cat"),
    "GIT_TERMINAL_PROMPT": "0",
}
"""No program waits for someone to type: an editor leaves its text as it is, and ends."""

_PASSED_ON = frozenset({"MAKA_CALL"})
"""The mark of a call of another Maka that this one runs in: it has to find what is left of that."""

_SECRET_HEADER = re.compile(r"auth|cookie|credential|key|password|secret|token", re.IGNORECASE)
_SEPARATORS = re.compile(r"[\s,;]+")


def tool_environment(env: Mapping[str, str], profiles: Iterable[ModelProfile]) -> dict[str, str]:
    """Return the environment for tools: everything but the keys of model providers and Maka's own settings.

    The folder of the running interpreter is added as the last one of PATH, so that there is a `python` on a machine
    that has none; the person's own comes first. Editors and pagers are ones that wait for nobody.
    """
    profiles = tuple(profiles)
    secret = _secret_names(env, profiles)
    values = {value for value in secret_values(env, profiles) if len(value) >= _CHARS_MIN}
    kept = {
        name: value
        for name, value in env.items()
        if name not in secret and (name in _PASSED_ON or not name.startswith("MAKA_")) and not _holds_key(value, values)
    }
    path = kept.get("PATH", os.defpath)
    return {**kept, **_NOBODY_TYPES, "PATH": os.pathsep.join([*path.split(os.pathsep), interpreter_folder()])}


def secret_values(env: Mapping[str, str], profiles: Iterable[ModelProfile]) -> tuple[str, ...]:
    """Return what must not be shown: keys of the environment, credentials in headers, each also without its scheme."""
    profiles = tuple(profiles)
    names = _secret_names(env, profiles) - {_HEADERS_NAME}
    headers = [pair for profile in profiles for pair in profile.headers.items()]
    headers += [(name, value) for name, _, value in (line.partition(":") for line in _header_lines(env))]
    whole = [env[name] for name in names] + [value for name, value in headers if _SECRET_HEADER.search(name)]
    found = {part for value in whole for part in (value.strip(), *_SEPARATORS.split(value))}
    return tuple(sorted(found - {""}))


def interpreter_folder() -> str:
    """Return the folder of the running interpreter."""
    # Not resolved: the link in an environment's own folder is what makes it that environment.
    return str(Path(sys.executable).parent)


def _secret_names(env: Mapping[str, str], profiles: Iterable[ModelProfile]) -> set[str]:
    named = {profile.key_env for profile in profiles}
    return {name for name in env if name in named or _is_key(name)}


def _holds_key(value: str, keys: Collection[str]) -> bool:
    return _LOOK.search(value) is not None or any(key in value for key in keys)


def _is_key(name: str) -> bool:
    return name in _NAMES or name.endswith(_ENDINGS) or _PROVIDERS.search(name) is not None


def _header_lines(env: Mapping[str, str]) -> list[str]:
    return env.get(_HEADERS_NAME, "").splitlines()
