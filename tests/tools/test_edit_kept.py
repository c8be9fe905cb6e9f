"""Edit where blanks differ: what the edit doesn't change keeps the file's bytes, or nothing is changed."""

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from maka.contracts.content import Outcome
from maka.tools.edit_match import MatchError, find
from tests.tools.harness import Bench, after_edit

TSV = "name\tage\nbobby\t3\namy\t4\n"
YAML = "a:   1\nb:   2   # keep\nc:   3\n"
MARKDOWN = "first line  \nsecond line  \nthird\n"
UNCLEAR = "belong in new_string isn't clear; copy the exact text, with its blanks, from the file"


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        (TSV, "name age\nbobby 3\namy 4\n", "name age\nbobby 3\namy 5\n", "name\tage\nbobby\t3\namy\t5\n"),
        (YAML, "a: 1\nb: 2 # keep\nc: 3", "a: 1\nb: 2 # keep\nc: 4", "a:   1\nb:   2   # keep\nc:   4\n"),
        (
            MARKDOWN,
            "first line\nsecond line\nthird",
            "first line\nsecond line\n3rd",
            "first line  \nsecond line  \n3rd\n",
        ),
        (
            MARKDOWN,
            "first line\nsecond line",
            "first line\nnew\nsecond line",
            "first line  \nnew\nsecond line  \nthird\n",
        ),
        (TSV, "name age\nbobby 3\namy 4", "amy 4\nname age", "amy\t4\nname\tage\n"),
        (TSV, "name age\nbobby 3\n", "bobby 3\nname age\nbobby 3\n", "bobby\t3\nname\tage\nbobby\t3\namy\t4\n"),
        (TSV, "name age\nbobby 3\n", "name age\n", "name\tage\namy\t4\n"),
        ("a:\n\tb = 1 \n\tc = 2\n", "a:\n  b = 1\n  c = 2", "a:\n  b = 1\n  d = 3", "a:\n\tb = 1 \n\td = 3\n"),
        ("f()\n   \ng()  \n", "f()\n\ng()\n", "f(1)\n\ng()\n", "f(1)\n   \ng()  \n"),
        ("a  b\r\nc\td\r\ne\r\n", "a b\nc d\ne", "a b\nc d\nf", "a  b\r\nc\td\r\nf\r\n"),
        ("a  b\r\nc\td\ne\r\n", "a b\nc d\ne", "a b\nnew\nc d\ne", "a  b\r\nnew\r\nc\td\ne\r\n"),
    ],
)
def test_a_line_that_stays_keeps_its_blanks(bench: Bench, text: str, old: str, new: str, expected: str) -> None:
    path = bench.cwd / "f"
    path.write_bytes(text.encode())
    result = bench.begin("Edit", seen={}, path="f", old_string=old, new_string=new).wait()
    assert (result.outcome, path.read_bytes().decode()) == (Outcome.OK, expected)
    assert "Not an exact match: the spaces" in result.text


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("bobby\t3  4\n", "bobby 3 4", "robby 3 4", "robby\t3  4\n"),
        ("bobby\t3  4\n", "bobby 3 4", "bobby 5 4", "bobby\t5  4\n"),
        ("bobby\t3  4\n", "bobby 3 4", "bobby 3", "bobby\t3\n"),
        ("bobby\t3\t4\n", "bobby 3 4", "bobby 4", "bobby\t4\n"),
        ("bobby\t3  4\n", "bobby 3 4", "bobby\t3 5", "bobby\t3  5\n"),
        ("bobby \t3 4\n", "bobby 3 4", "bobby 3   4", "bobby \t3   4\n"),
        ("name   = x\n", "name = x", "name = x if y else z", "name   = x if y else z\n"),
        ("a   = 1\nbb  = 2\nccc = 3\n", "a = 1\nbb = 2", "bb = 4\na = 5", "bb  = 4\na   = 5\nccc = 3\n"),
        ("a   = 1\nbb  = 2\nccc = 3\n", "a = 1\nbb = 2", "a = 5\nd = 7\nbb = 4", "a   = 5\nd = 7\nbb  = 4\nccc = 3\n"),
        ("- a\t1\n- b  2\n", "- a 1\n- b 2", "- a 3\n- b 4", "- a\t3\n- b  4\n"),
        ("one line  \ntwo\n", "one line\ntwo", "1st line\ntwo", "1st line  \ntwo\n"),
        ("one line  \ntwo  3\n", "one line \ntwo 3", "one word\ntwo 3", None),
        ("twelve  3\n", "twelve 3", "twelve   3", None),
        ("bobby\t3  4\n", "bobby 3 4", "bobby 4", None),
        ("bobby\t3\n", "bobby 3", "robby 4", None),
        ("bobby\t3\n", "bobby 3", "bobby x 3", None),
        ("bobby\t3\n", "bobby 3", "bobby 3 x", None),
        (TSV, "name age\nbobby 3\n", "name age\nbobby 3\ncat 5\n", None),
        ("a:\n\tb  = 1\n\tc = 2\n", "a:\n  b = 1\n  c = 2", "a:\n  c = 2\n  b = 1", "a:\n\tc = 2\n\tb  = 1\n"),
        ("a\tb\nx\na  b\n", "a b\nx\na b", "a b\nx\na b\ny\na b", None),
    ],
)
def test_on_a_line_that_changes_blanks_stay_beside_words_that_do_or_the_edit_is_refused(
    text: str, old: str, new: str, expected: str | None
) -> None:
    if expected is None:
        with pytest.raises(MatchError, match=UNCLEAR):
            find(text, old, new)
    else:
        assert after_edit(text, old, new) == expected


@pytest.mark.parametrize("new", ["robby 4", "bobby x 3", "bobby   3", "bobby 3\ncat 5"])
def test_blanks_that_cant_be_told_are_refused_with_what_to_do(bench: Bench, new: str) -> None:
    path = bench.cwd / "f"
    path.write_text("bobby\t3\n")
    result = bench.begin("Edit", seen={}, path="f", old_string="bobby 3", new_string=new).wait()
    assert (result.outcome, path.read_text()) == (Outcome.ERROR, "bobby\t3\n")
    assert UNCLEAR in result.text


def test_a_copy_of_a_line_in_another_block_isnt_indented_as_the_line_is() -> None:
    text = "class A:\n    def f(self):\n        pass\n"
    with pytest.raises(MatchError, match="its indentation differs from the file's"):
        find(text, "class A:\ndef f(self):\npass", "class A:\npass\ndef f(self):\npass")


WORDS = st.sampled_from(["a", "bb", "x:", "#"])
GAPS = st.sampled_from([" ", " ", "  ", "\t"])
INDENTS = st.sampled_from(["", "", "  ", "\t"])
TAILS = st.sampled_from(["", "", "  "])


@st.composite
def file_lines(draw: st.DrawFn) -> str:
    words = draw(st.lists(WORDS, max_size=4))
    return draw(INDENTS) + "".join(word + draw(GAPS) for word in words).rstrip() + draw(TAILS)


def plain(line: str, indented: bool) -> str:
    """Return a line with one blank between words and none behind them, as a model may recall it."""
    indent = line[: len(line) - len(line.lstrip())] if indented and line.strip() else ""
    return indent + " ".join(line.split())


@given(st.lists(file_lines(), min_size=1, max_size=6), st.booleans(), st.data())
def test_every_line_that_is_equal_in_old_and_new_keeps_its_bytes(
    there: list[str], indented: bool, data: st.DataObject
) -> None:
    """Whatever is changed, moved, copied or left out around it; and of no line do the words change."""
    wanted = [plain(line, indented) for line in there]
    line = st.sampled_from(wanted) | st.builds(" ".join, st.lists(WORDS, max_size=4))
    given_lines = data.draw(st.just(wanted) | st.lists(line, min_size=1, max_size=7))
    at = data.draw(st.integers(0, len(given_lines) - 1))
    given_lines = [*given_lines[:at], data.draw(line), *given_lines[at + 1 :]]
    old, new = "\n".join(["first of all", *wanted, "last"]), "\n".join(["first of all", *given_lines, "last"])
    result = after_edit("\n".join(["first of  all", *there, "last "]), old, new)
    event("refused" if result is None else "edited")
    if result is not None:
        lines = result.split("\n")
        assert (lines[0], lines[-1]) == ("first of  all", "last ")
        for put, own in zip(given_lines, lines[1:-1], strict=True):
            ways = {line for line, want in zip(there, wanted, strict=True) if want == put}
            assert own in ways or not ways or own == put == ""
            assert own.split() == put.split()
