"""Secrets out of texts: the same whatever the pieces, nothing of one left at a cut, ordinary words never touched."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka.contracts.masks import SECRET_MARK
from maka.edges.secrets import Secrets, SecretStream, is_secret

KEY = "acme0123456789abcdefghij"
# A small alphabet, so that secrets overlap, hold and repeat one another.
words = st.text("ab", min_size=2, max_size=6)
secrets = st.lists(words, min_size=1, max_size=4, unique=True).map(tuple)
texts = st.text("abc", max_size=40)


def by_character(text: str, known: tuple[str, ...]) -> str:
    """Say the law slowly: what belongs to an occurrence goes, each run of it becomes one mark."""
    hidden = {
        at + offset
        for secret in known
        for at in range(len(text))
        if text.startswith(secret, at)
        for offset in range(len(secret))
    }
    parts = [char if at not in hidden else "" if at - 1 in hidden else SECRET_MARK for at, char in enumerate(text)]
    return "".join(parts)


@given(secrets, texts, st.data())
def test_every_way_to_cut_a_text_into_pieces_gives_the_same(
    known: tuple[str, ...], text: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)) | {0, len(text)})
    stream, given_out, fed = SecretStream(known), "", 0
    for start, end in pairwise(cuts):
        given_out += stream.feed(text[start:end])
        fed = end
        # What is held back is never as long as a secret, so no more than that of a text is ever late.
        plain = by_character(text[:fed], known)
        assert plain.startswith(given_out.removesuffix(SECRET_MARK))
        assert len(stream._held) < max(map(len, known))  # pyright: ignore[reportPrivateUsage]
    given_out += stream.end()
    assert given_out == by_character(text, known)


@given(secrets, texts, texts)
def test_a_cut_never_leaves_the_beginning_of_a_secret(known: tuple[str, ...], text: str, rest: str) -> None:
    kept = SecretStream(known).feed(text)
    assert by_character(text + rest, known).startswith(kept.removesuffix(SECRET_MARK))


@given(st.integers(0, len(KEY)), st.integers(1, 7))
def test_a_key_over_any_border(at: int, size: int) -> None:
    stream = Secrets([KEY]).stream()
    text = "x" * at + KEY + "y"
    pieces = [stream.feed(text[start : start + size]) for start in range(0, len(text), size)]
    assert "".join(pieces) + stream.end() == "x" * at + SECRET_MARK + "y"


def test_a_text_that_ends_in_half_a_secret() -> None:
    masks = Secrets([KEY])
    assert masks(f"that was {KEY[:10]}") == f"that was {KEY[:10]}", "it goes on nowhere, so it is none"
    assert masks.cut(f"that is {KEY[:10]}") == "that is "
    stream = masks.stream()
    assert (stream.feed(KEY[:10]), stream.end()) == ("", KEY[:10])
    assert stream.feed(KEY[10:]) == KEY[10:], "an end is an end"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", False),
        ("none", False),
        ("abc123", False),
        ("lm-studio", False),
        ("not-needed", False),
        ("sk-no-key-required", False),
        ("swordfish1", True),
        (KEY, True),
        ("correct-horse-battery-staple", True),
    ],
)
def test_placeholders_are_no_secrets(value: str, expected: bool) -> None:
    assert is_secret(value) is expected
    assert Secrets([value])(f"a {value} b") == (f"a {SECRET_MARK} b" if expected else f"a {value} b")


def test_a_key_that_is_read_later_is_known_from_then_on() -> None:
    masks = Secrets()
    assert masks(KEY) == KEY
    masks.add(KEY, 'odd"key\\1234')
    assert masks(f"{KEY}{KEY} {KEY}") == f"{SECRET_MARK} {SECRET_MARK}"
    assert masks(r'{"key": "odd\"key\\1234"}') == f'{{"key": "{SECRET_MARK}"}}', "also as JSON writes it"
    assert KEY not in masks.redact(f"log {KEY}")
