"""Which model answers."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from maka.cli import profiles
from maka.cli.models import profile_lines
from maka.cli.profiles import choose_profile
from maka.config import Config, load_config
from maka.contracts.errors import RefusalCode, RefusedError
from maka.contracts.model_ports import ModelProfile

TOML = '[models.mine]\nbase_url = "https://models.example/v1"\nmodel = "large"\nkey_env = "MY_KEY"\n'


def config(tmp_path: Path, toml: str = "", **env: str) -> Config:
    file = tmp_path / "config.toml"
    file.write_text(toml, "utf-8")
    return load_config({"MAKA_CONFIG": str(file), "MAKA_HOME": str(tmp_path / "state"), **env})


@pytest.fixture(autouse=True)
def _nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "_listening", list)


def refusal(config: Config, **flags: str) -> str:
    with pytest.raises(RefusedError) as caught:
        choose_profile(config, **flags)
    assert caught.value.refusal.code is RefusalCode.NOT_READY
    return caught.value.refusal.message


@pytest.mark.parametrize(
    ("toml", "env", "flags", "expected"),
    [
        ("", {"OPENAI_API_KEY": "k", "MAKA_MODEL": "m"}, {}, ("openai", "https://api.openai.com/v1", "m")),
        ("", {"OPENAI_BASE_URL": "http://h/v1", "MAKA_MODEL": "m"}, {}, ("environment", "http://h/v1", "m")),
        (
            TOML,
            {"OPENAI_BASE_URL": "http://h/v1", "MY_KEY": "k"},
            {"name": "environment", "model": "m"},
            ("environment", "http://h/v1", "m"),
        ),
        ("", {"OPENROUTER_API_KEY": "k", "MAKA_MODEL": "m"}, {}, ("openrouter", "https://openrouter.ai/api/v1", "m")),
        ("", {"OPENAI_API_KEY": "k"}, {"model": "m"}, ("openai", "https://api.openai.com/v1", "m")),
        ("", {"OPENAI_API_KEY": "k", "MAKA_MODEL": "m"}, {"model": "n"}, ("openai", "https://api.openai.com/v1", "n")),
        ("", {}, {"name": "ollama", "model": "qwen3"}, ("ollama", "http://127.0.0.1:11434/v1", "qwen3")),
        ("", {"MAKA_MODEL": "m"}, {"name": "vllm"}, ("vllm", "http://127.0.0.1:8000/v1", "m")),
        ("", {}, {"name": "llama-server"}, ("llama-server", "http://127.0.0.1:8080/v1", "default")),
        ("", {}, {"base_url": "http://h:1/v1", "model": "m"}, ("environment", "http://h:1/v1", "m")),
        (TOML, {"MY_KEY": "k"}, {}, ("mine", "https://models.example/v1", "large")),
        (TOML, {"MY_KEY": "k"}, {"model": "small"}, ("mine", "https://models.example/v1", "small")),
        (TOML, {"MY_KEY": "k"}, {"name": "mine", "base_url": "http://h/v1"}, ("mine", "http://h/v1", "large")),
        # A key of OpenAI's that lies around doesn't win over what was configured; a model named for it does.
        (TOML, {"MY_KEY": "k", "OPENAI_API_KEY": "k"}, {}, ("mine", "https://models.example/v1", "large")),
        (
            TOML,
            {"MY_KEY": "k", "OPENAI_API_KEY": "k", "MAKA_MODEL": "m"},
            {},
            ("openai", "https://api.openai.com/v1", "m"),
        ),
    ],
)
def test_flags_win_over_the_environment_and_that_over_the_file(
    tmp_path: Path, toml: str, env: dict[str, str], flags: dict[str, str], expected: tuple[str, str, str]
) -> None:
    chosen = choose_profile(config(tmp_path, toml, **env), **flags)
    assert (chosen.name, chosen.base_url, chosen.model) == expected


def test_nothing_set_says_what_to_set(tmp_path: Path) -> None:
    message = refusal(config(tmp_path))
    assert "OPENAI_API_KEY" in message
    assert "MAKA_MODEL" in message
    assert "ollama" in message
    assert str(tmp_path / "config.toml") in message
    assert "\n" not in message


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert "MAKA_MODEL" in refusal(config(tmp_path, OPENAI_API_KEY="k"))
    assert "--model" in refusal(config(tmp_path), name="ollama")
    assert "OPENAI_API_KEY isn't set" in refusal(config(tmp_path), name="openai", model="m")
    assert "MY_KEY isn't set" in refusal(config(tmp_path, TOML))
    unknown = refusal(config(tmp_path, TOML), name="gpt-large")
    assert "gpt-large" in unknown
    assert "mine" in unknown
    assert "--model" in unknown


def test_of_several_profiles_without_a_default_one_has_to_be_named(tmp_path: Path) -> None:
    toml = "".join(f'[models.{name}]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n' for name in ("one", "two"))
    message = refusal(config(tmp_path, toml))
    assert "one, two" in message
    assert "default" in message


def test_a_url_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="--base-url"):
        choose_profile(config(tmp_path), model="m", base_url="127.0.0.1:8000")
    with pytest.raises(RefusedError, match="OPENAI_BASE_URL"):
        choose_profile(config(tmp_path, OPENAI_BASE_URL="here", MAKA_MODEL="m"))


def test_a_local_server_needs_no_key_that_is_not_there(tmp_path: Path) -> None:
    chosen = choose_profile(config(tmp_path), name="openai", model="m", base_url="http://127.0.0.1:9/v1")
    assert (chosen.key_env, chosen.first_event_s) == (None, 0.0)
    with_key = config(tmp_path, OPENAI_API_KEY="k")
    chosen = choose_profile(with_key, name="openai", model="m", base_url="http://127.0.0.1:9/v1")
    assert chosen.key_env == "OPENAI_API_KEY"


class TestListening:
    @pytest.fixture(autouse=True)
    def _nothing_listens(self) -> None:
        """Ask real sockets."""

    @pytest.fixture
    def server(self) -> Iterator[int]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield listener.getsockname()[1]

    def test_a_server_on_a_usual_port_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: int
    ) -> None:
        there = ModelProfile(name="ollama", base_url=f"http://127.0.0.1:{server}/v1", model="")
        with socket.create_server(("127.0.0.1", 0)) as closed:
            gone = closed.getsockname()[1]
        not_there = ModelProfile(name="vllm", base_url=f"http://127.0.0.1:{gone}/v1", model="")
        remote = ModelProfile(name="openai", base_url="https://models.example/v1", model="")
        monkeypatch.setattr(profiles, "presets", lambda: (there, not_there, remote))
        message = refusal(config(tmp_path))
        assert f"127.0.0.1:{server}" in message
        assert "-m ollama --model NAME" in message
        assert str(gone) not in message


def test_the_list_says_where_keys_come_from_and_which_is_the_default(tmp_path: Path) -> None:
    lines = {line.name: line for line in profile_lines(config(tmp_path, TOML, MY_KEY="very-secret"))}
    assert (lines["mine"].default, lines["mine"].key, lines["mine"].source) == (True, "MY_KEY", "config.toml")
    assert (lines["openai"].default, lines["openai"].key) == (False, "OPENAI_API_KEY (not set)")
    assert lines["ollama"].model is None
    assert "very-secret" not in repr(lines)
    around = {
        line.name: line for line in profile_lines(config(tmp_path, OPENAI_BASE_URL="http://h/v1", MAKA_MODEL="m"))
    }
    assert (around["environment"].model, around["environment"].source) == ("m", "environment")
