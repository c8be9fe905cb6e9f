"""The prompt: argument and piped stdin."""

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from maka.cli.prompt import read_prompt
from maka.contracts.errors import RefusalCode, RefusedError
from maka.contracts.limits import PROMPT_CHARS_MAX


def stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))


@pytest.fixture
def dev_null(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with Path(os.devnull).open(encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        yield


@pytest.mark.parametrize(
    ("argument", "piped", "expected"),
    [
        ("do it", b"", "do it"),
        ("do it", b"the data\n", "do it\n\nthe data"),
        (None, b"from the pipe\n", "from the pipe"),
        ("-", b"from the pipe\n", "from the pipe"),
        ("do it", b" \n", "do it"),
        ("do it", b"bad \xff byte", "do it\n\nbad \ufffd byte"),
        ("do it", b"a\0b", "do it\n\na\ufffdb"),
        ("bad \udcff byte", b"", "bad \ufffd byte"),
    ],
)
def test_argument_and_pipe_are_joined(
    monkeypatch: pytest.MonkeyPatch, argument: str | None, piped: bytes, expected: str
) -> None:
    stdin(monkeypatch, piped)
    assert read_prompt(argument) == expected


@pytest.mark.parametrize("argument", ["", "  \n ", None, "-"])
def test_an_empty_prompt_is_refused(monkeypatch: pytest.MonkeyPatch, argument: str | None) -> None:
    stdin(monkeypatch, b" \n")
    with pytest.raises(RefusedError, match="maka run") as caught:
        read_prompt(argument)
    assert caught.value.refusal.code is RefusalCode.INVALID_INPUT


@pytest.mark.usefixtures("dev_null")
def test_no_pipe_and_no_argument_is_refused() -> None:
    with pytest.raises(RefusedError, match="empty"):
        read_prompt(None)
    assert read_prompt("do it") == "do it"


def test_the_longest_prompt_and_one_character_more(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin(monkeypatch, "ä".encode() * PROMPT_CHARS_MAX)
    assert len(read_prompt("-")) == PROMPT_CHARS_MAX
    stdin(monkeypatch, "ä".encode() * (PROMPT_CHARS_MAX + 1))
    with pytest.raises(RefusedError, match="longer than 200,000"):
        read_prompt("-")


def test_an_endless_stdin_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/zero").open(encoding="utf-8") as endless:
        monkeypatch.setattr(sys, "stdin", endless)
        with pytest.raises(RefusedError, match="longer than"):
            read_prompt("-")
