"""What is shown is what runs: one function, and no two texts that look the same."""

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maka.cli.revealed import NEWLINE, TAB, brief, revealed
from maka.cli.views import FinalTextView
from maka.cli.words import brief_args
from maka.contracts.ids import SessionId
from maka.contracts.session_events import Notice

ESCAPE = re.compile(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
TRICKY = st.text(
    st.one_of(
        st.sampled_from(
            "\\uU0123456789abcdef \u0301\u0323\u212b\u1100\u1161"
            "\n\t\r\x1b\u202e\u200b\u2066\ufeff\u00ad\u3164\u2800\U000e0041\ufe0f⏎⇥é漢"
        ),
        st.characters(),
    ),
    max_size=40,
)


def as_it_was(shown: str) -> str:
    """Read a revealed text back: what a person who knows the escapes does."""
    plain = shown.replace(NEWLINE, "\n").replace(TAB, "\t")
    return ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)), plain)


@given(TRICKY)
@example("\\\u202e")
@example("\\u202e")
@example("\\\\u202e⏎")
def test_h32_nothing_is_hidden_and_nothing_is_lost(text: str) -> None:
    shown = revealed(text)
    assert as_it_was(shown) == text
    hidden = [each for each in shown if each != " " and unicodedata.category(each)[0] in "CZ"]
    assert not hidden
    assert not set(shown) & set("\u3164\u2800\u115f\u1160\uffa0\u034f\ufe0f")


@given(TRICKY, TRICKY)
def test_h32_two_texts_never_look_the_same(one: str, other: str) -> None:
    assert (revealed(one) == revealed(other)) is (one == other)


@given(TRICKY, TRICKY)
@example("cache", "cache ")
@example("caf\u00e9", "cafe\u0301")
@example("\u212b", "\u00c5")
@example("q\u0323\u0307", "q\u0307\u0323")
@example("\u1100\u1161", "\uac00")
def test_h32_nor_do_two_that_a_terminal_draws_as_one(one: str, other: str) -> None:
    drawn = [unicodedata.normalize("NFC", revealed(text)).rstrip(" ") for text in (one, other)]
    assert (drawn[0] == drawn[1]) is (one == other)


@given(st.text(max_size=100), st.integers(3, 20))
@example("x" * 55, 20)
@example("x" * 56, 20)
def test_of_a_long_text_the_end_is_shown_and_the_rest_is_counted(text: str, chars_max: int) -> None:
    shown = brief(text, chars_max)
    if shown == revealed(text):
        return
    head, tail = chars_max * 2 // 3, chars_max - chars_max * 2 // 3
    mark = f" […{len(text) - chars_max:,} characters more, then…] "
    assert shown == revealed(text[:head]) + mark + revealed(text[-tail:])
    assert len(text) - chars_max > len(mark), "the words are shorter than what they stand for"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("echo a\u202etxt.hs", "echo a\\u202etxt.hs"),
        ("cat notes\u200b.txt", "cat notes\\u200b.txt"),
        ("ls\ntouch /outside/x", "ls⏎touch /outside/x"),
        ("a\x1b[2Kb\r", "a\\u001b[2Kb\\u000d"),
        ("a  b\u00a0c", "a  b\\u00a0c"),
        (r"grep 'a\.b' C:\users", r"grep 'a\.b' C:\users"),
    ],
)
def test_h32_what_is_shown_is_not_what_runs(text: str, shown: str) -> None:
    assert revealed(text) == shown
    assert brief_args({"command": text}) == shown


def test_h32_a_command_cannot_hide_its_end_behind_its_length() -> None:
    command = "echo " + "x" * 500 + "; rm -rf ~"
    shown = brief_args({"command": command})
    assert shown.endswith("; rm -rf ~")
    assert "415 characters more" in shown


def test_what_runs_in_the_background_is_shown_with_its_signs(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Also where no timeline is."""
    view = FinalTextView(quiet=False)
    view.event(
        Notice(session_id=SessionId("s"), note="background_started", text="b1 runs: sleep 4 \u202e# evil\nline2")
    )
    assert rb"\u202e" in capsysbinary.readouterr().err
