"""Configuration: what is read, what wins, and what is refused in one line."""

import os
import sys
from pathlib import Path

import pytest

from maka.adapters import untouchable
from maka.config import (
    Config,
    is_loopback,
    load_config,
    presets,
    read_key,
    wants_traceback,
    with_own_python_first,
    with_profile,
)
from maka.contracts.errors import RefusedError
from maka.contracts.limits import FIRST_EVENT_S
from maka.contracts.model_ports import ModelProfile
from maka.contracts.tool_limits import ToolLimits

REMOTE = ModelProfile(name="p", base_url="https://models.example/v1", model="m")


def load(tmp_path: Path, toml: str = "", **env: str) -> Config:
    file = tmp_path / "config.toml"
    file.write_text(toml, "utf-8")
    return load_config({"MAKA_CONFIG": str(file), "MAKA_HOME": str(tmp_path / "state"), "PATH": "/usr/bin", **env})


def refusal(tmp_path: Path, toml: str, **env: str) -> str:
    with pytest.raises(RefusedError) as caught:
        load(tmp_path, toml, **env)
    message = caught.value.refusal.message
    assert "\n" not in message
    return message


def test_a_whole_profile_is_read(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        default = "big"
        log_level = "info"
        [models.big]
        base_url = "https://models.example/v1"
        model = "large"
        key_env = "BIG_KEY"
        context_window = 200000
        max_output_tokens = 8000
        headers = { "X-Team" = "a" }
        extra_body = { temperature = 0.2 }
        reasoning_field = "reasoning"
        send_reasoning_back = true
        first_event_s = 20
        idle_s = 5.5
        max_concurrent = 4
        [models.small]
        base_url = "http://localhost:9000/v1"
        model = "tiny"
        """,
        BIG_KEY="k",
    )
    assert config.default_profile == "big"
    assert config.log_level == "info"
    assert config.profiles["big"] == ModelProfile(
        name="big",
        base_url="https://models.example/v1",
        model="large",
        key_env="BIG_KEY",
        context_window=200_000,
        max_output_tokens=8_000,
        headers={"X-Team": "a"},
        extra_body={"temperature": 0.2},
        reasoning_field="reasoning",
        send_reasoning_back=True,
        first_event_s=20.0,
        idle_s=5.5,
        max_concurrent=4,
    )
    assert config.surroundings.keys == frozenset({"BIG_KEY"})


def test_without_a_file_there_are_defaults(tmp_path: Path) -> None:
    config = load_config({"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)})
    assert not config.profiles
    assert config.state_root.is_absolute()
    assert config.state_root.name == "maka"
    assert config.config_dir == config.config_file.parent
    assert not config.no_color


def test_places_come_from_the_environment(tmp_path: Path) -> None:
    config = load(tmp_path, NO_COLOR="1", MAKA_LOG="debug")
    assert config.state_root == tmp_path / "state"
    assert config.config_dir == tmp_path
    assert (config.no_color, config.log_level) == (True, "debug")


def test_the_only_profile_is_the_default(tmp_path: Path) -> None:
    one = load(tmp_path, '[models.a]\nbase_url = "http://127.0.0.1/v1"\nmodel = "m"\n')
    assert one.default_profile == "a"
    two = load(
        tmp_path,
        '[models.a]\nbase_url = "http://h/v1"\nmodel = "m"\n[models.b]\nbase_url = "http://h/v1"\nmodel = "m"\n',
    )
    assert two.default_profile is None


def test_a_local_model_may_think_long_before_its_first_word(tmp_path: Path) -> None:
    toml = """
        [models.local]
        base_url = "http://127.0.0.1:8000/v1"
        model = "m"
        [models.asked]
        base_url = "http://[::1]:8000/v1"
        model = "m"
        first_event_s = 7
        [models.remote]
        base_url = "https://models.example/v1"
        model = "m"
        """
    profiles = load(tmp_path, toml).profiles
    assert [profiles[name].first_event_s for name in ("local", "asked", "remote")] == [0.0, 7.0, FIRST_EVENT_S]
    assert {preset.name: preset.first_event_s for preset in presets()}["ollama"] == 0.0


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ('colour = "red"', '"colour"'),
        ('[models.a]\nbase_url = "http://h/v1"\nmodel = "m"\nbase_ulr = "x"', '"base_ulr"'),
        ('[models.a]\nmodel = "m"', '[models.a] lacks "base_url"'),
        ('[models.a]\nbase_url = "http://h/v1"', '[models.a] lacks "model"'),
        ('[models.a]\nbase_url = "http://h/v1"\nmodel = "m"\nkey_env = "A"\nkey_cmd = "b"', "key_env and key_cmd"),
        ('[models.a]\nbase_url = "http://h/v1"\nmodel = "m"\nidle_s = "long"', "$.idle_s"),
        ('[models.a]\nbase_url = "http://h/v1"\nmodel = "m"\nidle_s = -1', "[models.a] idle_s is a number"),
        ('[models.a]\nbase_url = "http://h/v1"\nmodel = "m"\ncontext_window = -3', "[models.a] context_window is"),
        ('[models.a]\nbase_url = "http://h/v1"\nmodel = "m"\nidle_s = nan', "[models.a] idle_s is a number"),
        ('[models.a]\nbase_url = "http://h/v1"\nmodel = "m"\nmax_concurrent = -3', "[models.a] max_concurrent is"),
        ('[models.a]\nbase_url = "http://h/v1"\nmodel = "m"\nheaders = { "a b" = "c" }', "header 'a b'"),
        ('[models.a]\nbase_url = "http://h/v1"\nmodel = "m"\nheaders = { X = "secret@ü" }', "header 'X'"),
        ('[models.a]\nbase_url = "http://h/v1"\nmodel = "m"\nheaders = { X = "a\\nb" }', "header 'X'"),
        ('[models.a]\nbase_url = "h:80/v1"\nmodel = "m"', "no URL"),
        ('[models.a]\nbase_url = "http://h:port/v1"\nmodel = "m"', "no URL"),
        ('[models.a]\nbase_url = "http://me:secret@h/v1"\nmodel = "m"', "password"),
        ('[models."a b"]\nbase_url = "http://h/v1"\nmodel = "m"', "name is"),
        ('models = "a"', "[models.NAME]"),
        ('default = "nobody"', "nobody"),
        ("default = 3", "default is a text"),
        ("[models.a", "no TOML"),
    ],
)
def test_what_cannot_be_used_is_one_line_with_its_name(tmp_path: Path, toml: str, expected: str) -> None:
    message = refusal(tmp_path, toml)
    assert expected in message
    assert "secret@" not in message


def test_a_named_file_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="doesn't exist"):
        load_config({"MAKA_CONFIG": str(tmp_path / "none.toml")})


def test_a_log_level_is_one_of_four(tmp_path: Path) -> None:
    assert "loud" in refusal(tmp_path, "", MAKA_LOG="loud")


@pytest.mark.parametrize(
    ("toml", "expected"), [("", True), ('on_restart = "keep"', True), ('on_restart = "close"', False)]
)
def test_what_becomes_of_waits_at_a_restart(tmp_path: Path, toml: str, expected: bool) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"[waits]\n{toml}\n")
    assert load_config({"MAKA_CONFIG": str(file)}).waits_keep is expected


def test_limits_of_tools_come_from_the_file_and_the_environment(tmp_path: Path) -> None:
    assert load(tmp_path).tool_limits == ToolLimits()
    assert load(tmp_path, "[tools]\nunix_sockets = true\n").tool_limits == ToolLimits(unix_sockets=True)
    toml = "[tools]\nmemory_max_mib = 2048\nprocesses_max = 0\n"
    assert load(tmp_path, toml).tool_limits == ToolLimits(memory_max_mib=2048, processes_max=0)
    env = {"MAKA_TOOLS_MEMORY_MAX_MIB": "512", "MAKA_TOOLS_PROCESSES_MAX": "64", "MAKA_TOOLS_OPEN_FILES_MAX": "100"}
    won = load(tmp_path, toml, **env).tool_limits
    assert won == ToolLimits(memory_max_mib=512, processes_max=64, open_files_max=100)


@pytest.mark.parametrize(
    ("toml", "env"),
    [
        ("tools = 3", {}),
        ("[tools]\nmemory_max = 3", {}),
        ("[tools]\nprocesses_max = 3", {}),
        ("[tools]\nprocesses_max = -1", {}),
        ("[tools]\nprocesses_max = true", {}),
        ('[tools]\nopen_files_max = "many"', {}),
        ("[tools]\nunix_sockets = 1", {}),
        ("", {"MAKA_TOOLS_PROCESSES_MAX": "many"}),
        ("", {"MAKA_TOOLS_OPEN_FILES_MAX": "9" * 5000}),
    ],
)
def test_a_limit_of_tools_that_is_none_is_one_line(tmp_path: Path, toml: str, env: dict[str, str]) -> None:
    assert "tools" in refusal(tmp_path, toml, **env).lower()


@pytest.mark.parametrize("toml", ["waits = 3", '[waits]\non_restart = "maybe"', "[waits]\nforever = true"])
def test_a_policy_of_waits_that_is_none_is_one_line(tmp_path: Path, toml: str) -> None:
    assert "waits" in refusal(tmp_path, toml)


def test_a_file_that_is_a_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="can't be read"):
        load_config({"MAKA_CONFIG": str(tmp_path)})


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://127.9.9.9/v1", True),
        ("http://[::1]:1/v1", True),
        ("http://localhost/v1", True),
        ("http://api.localhost/v1", True),
        ("http://localhost.example/v1", False),
        ("http://10.0.0.1/v1", False),
        ("https://models.example/v1", False),
    ],
)
def test_loopback_is_told_by_the_name_alone(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected


def test_h73_provider_key_visible_to_tools(tmp_path: Path) -> None:
    secret = "0123456789abcdef-team"
    config = load(
        tmp_path,
        '[models.a]\nbase_url = "https://h/v1"\nmodel = "m"\nkey_env = "TEAM_SECRET"\n',
        TEAM_SECRET=secret,
        OPENAI_API_KEY="sk-another-0123456789",
        ANTHROPIC_API_KEY="x",
        SOME_VENDOR_API_TOKEN="x",
        HF_TOKEN="x",
        OPENAI_KEY="x",
        AZURE_OPENAI_KEY="x",
        CLAUDE_CODE_OAUTH_TOKEN="x",
        COPY_OF_IT=secret,
        LLM_CONFIG=f'{{"key":"{secret}"}}',
        GATEWAY=f"https://me:{secret}@gateway.example/v1",
        UNKNOWN_CONFIG='{"key":"sk-proj-0123456789abcdef"}',
        STRIPE_KEY="sk_test_0123456789abcdef0123",
        MAKA_MODEL="m",
        HOME="/home-of-the-person",
        GITHUB_TOKEN="kept: it is no model provider's",
        LANG="C.UTF-8",
    )
    typed = {name for name in config.child_env if name.endswith(("EDITOR", "VISUAL", "PAGER", "PROMPT"))}
    assert set(config.child_env) - typed == {"PATH", "HOME", "LANG", "GITHUB_TOKEN", "STRIPE_KEY"}
    assert secret not in "".join(config.child_env.values())
    assert secret not in repr(config)


def test_a_profile_of_flags_keeps_its_key_from_tools_too(tmp_path: Path) -> None:
    config = load(tmp_path, ODD_NAME="value")
    chosen = with_profile(config, ModelProfile(name="x", base_url="https://h/v1", model="m", key_env="ODD_NAME"))
    assert "ODD_NAME" in config.child_env
    assert "ODD_NAME" not in chosen.child_env
    assert chosen.profiles["x"].key_env == "ODD_NAME"


def test_the_persons_own_python_comes_first_unless_asked(tmp_path: Path) -> None:
    own = str(Path(sys.executable).parent)
    config = load(tmp_path, PATH="/usr/bin:/bin")
    assert config.child_env["PATH"].split(os.pathsep) == ["/usr/bin", "/bin", own]
    assert with_own_python_first(config).child_env["PATH"].split(os.pathsep)[0] == own


def test_keys_are_read_when_they_are_used(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from-file\n", "utf-8")
    command = f"{sys.executable} -c \"print('from-command')\""
    assert read_key(REMOTE, {}) == ""
    assert read_key(profile(key_env="K"), {"K": " from-env "}) == "from-env"
    assert read_key(profile(key_file=str(file)), {}) == "from-file"
    assert read_key(profile(key_cmd=command), {}) == "from-command"


def test_the_program_that_prints_a_key_is_none_of_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loads nothing from there, and a command can't change it."""
    (tmp_path / "keys.py").write_text("print('planted')")
    (tmp_path / "key.sh").write_text("echo from-command")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RefusedError, match="ended with 1"):
        read_key(profile(key_cmd=f"{sys.executable} -m keys"), {})
    toml = f'[models.a]\nbase_url = "http://h/v1"\nmodel = "m"\nkey_cmd = "sh {tmp_path}/key.sh"\n'
    assert os.path.realpath(tmp_path / "key.sh") in untouchable(load(tmp_path, toml)).code


@pytest.mark.parametrize(
    ("source", "env", "expected"),
    [
        ({"key_env": "K"}, {}, "K (profile p) holds no key"),
        ({"key_env": "K"}, {"K": "a\nb"}, "holds characters"),
        ({"key_env": "K"}, {"K": "schlüssel"}, "holds characters"),
        ({"key_file": "/nowhere/key"}, {}, "can't be read"),
        ({"key_cmd": "no-such-program-here --x"}, {}, "could not run"),
        ({"key_cmd": ""}, {}, "could not run"),
        ({"key_cmd": "'unclosed"}, {}, "could not run"),
        ({"key_cmd": f'{sys.executable} -c "raise SystemExit(3)"'}, {}, "ended with 3"),
    ],
)
def test_a_key_that_is_not_there_is_one_line(source: dict[str, str], env: dict[str, str], expected: str) -> None:
    with pytest.raises(RefusedError) as caught:
        read_key(profile(**source), env)
    message = caught.value.refusal.message
    assert expected in message
    assert not any(value in message for value in env.values())


def test_tracebacks_are_asked_for() -> None:
    assert wants_traceback({"MAKA_DEBUG": "1"})
    assert not wants_traceback({})


def profile(**source: str) -> ModelProfile:
    return ModelProfile(name="p", base_url="https://models.example/v1", model="m", **source)  # type: ignore[arg-type]
