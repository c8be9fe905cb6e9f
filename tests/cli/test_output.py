"""Words to a terminal, and a reader that left."""

import os
import subprocess
import sys

import pytest

from maka.cli.output import one_line, printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;a title\x07after", "after"),
        ("\x1b]8;;http://h\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10%\r20%\r\n", "10%\n20%\n"),
        ("a\x08b\x7fc\x9bd\0", "abcd"),
        ("a\u202eb", "ab"),
        ("half \x1b[3", "half [3"),
    ],
)
def test_no_control_character_reaches_a_terminal(text: str, expected: str) -> None:
    assert printable(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("a\n b\tc", "a b c"), ("x" * 10, "x" * 10), ("x" * 11, "x" * 9 + "…"), ("", "")]
)
def test_one_line_is_bounded(text: str, expected: str) -> None:
    assert one_line(text, 10) == expected


def test_a_reader_that_left_ends_a_command_quietly() -> None:
    """The pipe's reading end is closed before anything is written."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "maka", "models", "--json"],
            stdout=write,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_behind_stdout_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "maka", "models", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"maka: No space left on device.\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_is_like_nobody_there(closed: str) -> None:
    line = f'exec "$0" -P -m maka models --json {closed}'
    done = subprocess.run(["sh", "-c", line, sys.executable], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


PRINTS = """
import sys
from maka.cli.output import write_json, write_said
write_json(["a\\x9b2J\\u202eb"]) if sys.argv[1] == "json" else write_said("a\\x1b[31mr\\x9b2Jb\\n")
"""


@pytest.mark.parametrize(("form", "shown"), [("json", b'["a\\u009b2J\\u202eb"]\r\n'), ("text", b"ar2Jb\r\n")])
def test_what_a_model_said_is_harmless_on_a_terminal_in_each_form(form: str, shown: bytes) -> None:
    terminal, its_end = os.openpty()
    try:
        subprocess.run([sys.executable, "-P", "-c", PRINTS, form], stdout=its_end, check=True)
        assert os.read(terminal, 1_000) == shown
    finally:
        os.close(terminal)
        os.close(its_end)


def test_a_pipe_gets_what_a_model_said_as_it_is() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", PRINTS, "text"], capture_output=True, check=True)
    assert done.stdout == "a\x1b[31mr\x9b2Jb\n".encode()
