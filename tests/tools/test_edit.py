"""Edit on real files: one place, literally, and only what was seen."""

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka.contracts.content import Outcome
from maka.tools.edit_match import MatchError, find, replaced
from maka.tools.edit_place import COUNTED_MAX
from tests.tools.harness import Bench, Recorder

LINES = st.tuples(st.sampled_from(["", "a", " b"]), st.sampled_from(["\n", "\r\n"]))


def edit(bench: Bench, data: bytes, old: str, new: str) -> tuple[Outcome, str, bytes]:
    path = bench.cwd / "f"
    path.write_bytes(data)
    result = bench.begin("Edit", seen={}, path="f", old_string=old, new_string=new).wait()
    return result.outcome, result.text, path.read_bytes()


def test_an_edit_is_told_in_one_line_with_a_diff_for_people(bench: Bench, workspace: Path) -> None:
    (workspace / "a.py").write_text("def f():\n    return 1\n")
    recorder = bench.begin("Edit", path="a.py", old_string="return 1", new_string="return 2")
    result = recorder.wait()
    assert (result.outcome, result.text) == (Outcome.OK, "Edited a.py (+1 -1) at line 2")
    assert result.diff == ("--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 2\n")
    (fact,) = recorder.file_facts
    assert fact.pre_image == b"def f():\n    return 1\n"


def test_an_edit_of_a_missing_file_says_what_to_do(bench: Bench) -> None:
    assert "use Write" in bench.run("Edit", path="none", old_string="aaaaa", new_string="b").text


def test_an_edit_refuses_a_file_that_changed_since_it_was_read(bench: Bench, workspace: Path) -> None:
    path = workspace / "a"
    path.write_text("first line\n")
    bench.run("Read", path="a")
    path.write_text("first line\nadded\n")
    result = bench.run("Edit", path="a", old_string="first", new_string="1st")
    assert result.outcome is Outcome.ERROR
    assert "changed since you last read it" in result.text
    assert path.read_text() == "first line\nadded\n"
    bench.run("Read", path="a")
    assert bench.run("Edit", path="a", old_string="first", new_string="1st").outcome is Outcome.OK


def test_an_edit_of_a_file_that_was_never_read_is_allowed(bench: Bench, workspace: Path) -> None:
    (workspace / "a").write_text("first line\n")
    assert bench.run("Edit", path="a", old_string="first", new_string="1st").outcome is Outcome.OK


def test_edits_of_one_step_take_turns(bench: Bench, workspace: Path) -> None:
    """All carry what was seen before the step, and each is recorded while the one before is still on its way."""
    path = workspace / "a"
    path.write_text("one\ntwo\nthree\n")
    bench.run("Read", path="a")
    recorders = [
        bench.begin("Edit", Recorder("hold"), path="a", old_string=word, new_string=word.upper())
        for word in ("one", "two", "three")
    ]
    assert [recorder.asked.is_set() for recorder in recorders] == [True, False, False]
    recorders[1].cancel()  # one that waits for its turn can be stopped
    assert recorders[1].wait().outcome is Outcome.ABORTED
    recorders[0].decide(True)
    assert recorders[0].wait().outcome is Outcome.OK
    assert recorders[2].asked.is_set()
    recorders[2].decide(True)
    assert recorders[2].wait().outcome is Outcome.OK
    assert path.read_text() == "ONE\ntwo\nTHREE\n"


def test_edits_from_many_threads_lose_nothing(bench: Bench, workspace: Path) -> None:
    path = workspace / "a"
    path.write_text("".join(f"<{number}>\n" for number in range(20)))
    bench.run("Read", path="a")
    barrier = threading.Barrier(20)
    recorders = [Recorder() for _ in range(20)]

    def work(number: int) -> None:
        barrier.wait()
        bench.begin("Edit", recorders[number], path="a", old_string=f"<{number}>", new_string=f"({number})")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    assert {recorder.wait().outcome for recorder in recorders} == {Outcome.OK}
    for thread in threads:
        thread.join()
    assert path.read_text() == "".join(f"({number})\n" for number in range(20))


def test_h54_line_ends_are_kept(bench: Bench) -> None:
    assert edit(bench, b"a\r\nb\r\nc\r\n", "a\nb", "a\nB")[2] == b"a\r\nB\r\nc\r\n"
    assert edit(bench, b"a\r\nb\r\nc\r\n", "b", "x\ny")[2] == b"a\r\nx\r\ny\r\nc\r\n"
    assert edit(bench, b"a\nb\nc\r\n", "a\nb", "x\ny")[2] == b"x\ny\nc\r\n"
    assert edit(bench, b"a\r\nb\r\nc\r\n", "b\r\nc", "B\r\nC")[2] == b"a\r\nB\r\nC\r\n"


@pytest.mark.parametrize(
    ("data", "old", "new", "after"),
    [
        (b"a\r\nb\nc\r\n", "a\nb\nc", "a\nB\nc", b"a\r\nB\nc\r\n"),
        (b"a\nb\r\nc\n", "a\nb\nc\n", "a\nB\nc\n", b"a\nB\r\nc\n"),
        (b"a\r\nb\nc\n", "a\nb\nc", "a", b"a\r\n"),
        (b"a\r\nb\nc\n", "b\nc", "c", b"a\r\nc\n"),
        (b"a\r\nb\nc\r\n", "a\nb\nc", "0\na\nb\nx\nc", b"0\r\na\r\nb\nx\nc\r\n"),
        (b"a\r\nb\nc", "a\nb\nc", "a\nb\nc\nd", b"a\r\nb\nc\nd"),
        (b"one two\r\nb\nc\r\nd\n", "two\nb", "2\nb", b"one 2\r\nb\nc\r\nd\n"),
        (b"a\r\nb\nc\r\n", "b", "x\ny", b"a\r\nx\ny\nc\r\n"),
        (b"a\r\nb\nc\r\n", "a\r\nb\nc", "a\nb\r\nc", b"a\r\nb\nc\r\n"),
        (b"a\r\nb\nc\n", "b\nc", "b\nnew\r\nc", b"a\r\nb\nnew\r\nc\n"),
    ],
)
def test_h54_each_line_that_stays_keeps_its_own_end(
    bench: Bench, data: bytes, old: str, new: str, after: bytes
) -> None:
    assert edit(bench, data, old, new)[2] == after


@pytest.mark.parametrize(("old", "new"), [("a\r\nb", "a\nb"), ("a\nb", "a\r\nb")])
def test_h54_an_edit_of_line_ends_alone_says_that_they_stay(bench: Bench, old: str, new: str) -> None:
    outcome, text, after = edit(bench, b"a\r\nb\r\n", old, new)
    assert (outcome, after) == (Outcome.ERROR, b"a\r\nb\r\n")
    assert "keeps the line ends" in text


@given(st.lists(LINES, max_size=8), st.lists(LINES, max_size=8), st.data())
def test_h54_what_an_edit_doesnt_change_keeps_every_byte(
    lines: list[tuple[str, str]], more: list[tuple[str, str]], data: st.DataObject
) -> None:
    """Lines of their own names are put before and behind others: all that was there is there, byte for byte."""
    named = [(f"{number}{text}", end) for number, (text, end) in enumerate(lines)]
    text = "".join(map("".join, named)) + "last"
    put = [f"new {number}{line}" for number, (line, _) in enumerate(more)]
    at = data.draw(st.integers(0, len(named)))
    old = "\n".join([*(line for line, _ in named), "last"])
    new = "\n".join([*(line for line, _ in named[:at]), *put, *(line for line, _ in named[at:]), "last"])
    if old != new:
        after = replaced(text, find(text, old, new))
        kept = [line for line in after.splitlines(keepends=True) if not line.startswith("new ")]
        assert "".join(kept) == text
        assert after.replace("\r\n", "\n") == new


def test_h55_mark_and_missing_line_end_are_kept(bench: Bench) -> None:
    assert edit(bench, b"\xef\xbb\xbfx=1", "x=1", "x=2")[2] == b"\xef\xbb\xbfx=2"
    assert edit(bench, b"\xef\xbb\xbfx=1", "\ufeffx=1", "\ufeffx=2")[2] == b"\xef\xbb\xbfx=2"
    assert edit(bench, b"\xef\xbb\xbfa\r\nb", "a\nb", "c\nd")[2] == b"\xef\xbb\xbfc\r\nd"


def test_bytes_that_are_no_utf8_stay(bench: Bench) -> None:
    assert edit(bench, b"caf\xe9 = 1\nvalue = 1\n", "value = 1", "value = 2")[2] == b"caf\xe9 = 1\nvalue = 2\n"


@pytest.mark.parametrize(
    ("data", "old", "says"),
    [
        (b"v = 1\nv = 1\n", "v = 1", "2 times (lines 1, 2)"),
        (b"  v = 1\n", "v  =  1", "not found"),
        (b"  v = 1\n", "v  =  1", "line 1 differs in the spaces within it"),
        (b"total = 1\nn\ntotal  = 1\n", "total =  1", "2 times"),
        (b"say 'a  b' # it's\n", "say 'a b' # it's", "line 1 differs in the spaces within it"),
        (b"# don't  stop\n", "# don't stop", "line 1 differs in the spaces within it"),
        (b'say("a \\"  b")\n', 'say("a \\" b")', "line 1 differs in the spaces within it"),
        (b'p(r"\\", "a   b", r"\\");\n', 'p(r"\\", "a b", r"\\");', "line 1 differs in the spaces within it"),
        (b"p(r'\\',\t'a   b', '\\'c')\n", "p(r'\\', 'a b', '\\'c')", "line 1 differs in the spaces within it"),
        (b'print("a  b")\nprint("c")\n', 'print("a b")', "line 1 differs in the spaces within it"),
        (b"v = 1\n", "", "empty"),
        (b"aaaaaa\n", "aaaaa", "2 times"),
        (b"v = 1\n", "v = 2", "the same"),
        (b"def f():\n  return 1\ndef f():\n    return 1\n", "def f():\nreturn 1", "2 times"),
    ],
)
def test_h56_no_unique_place_is_refused(bench: Bench, data: bytes, old: str, says: str) -> None:
    outcome, text, after = edit(bench, data, old, "v = 2")
    assert outcome is Outcome.ERROR
    assert says in text
    assert after == data


@pytest.mark.parametrize(
    ("data", "old", "new", "after"),
    [
        (b"  value = 1\n", "value  =  1", "value = 2", b"  value = 2\n"),
        (b"a\nname   = x\nsize\t= y\nb\n", "name = x\nsize = y\n", "name = z\n", b"a\nname   = z\nb\n"),
        (b"f('a  b',   c)\n", "f('a  b', c)", "f()", b"f()\n"),
    ],
)
def test_spaces_between_words_may_differ_where_the_place_is_unique_and_that_is_said(
    bench: Bench, data: bytes, old: str, new: str, after: bytes
) -> None:
    outcome, text, written = edit(bench, data, old, new)
    assert (outcome, written) == (Outcome.OK, after)
    assert "Not an exact match: the spaces between words differ" in text


def test_h57_replacement_is_literal(bench: Bench) -> None:
    literal = r"\1 \g<0> $& $1 \n"
    assert edit(bench, b"the price is", "price", literal)[2] == f"the {literal} is".encode()


def test_h87_look_alikes_make_a_hint(bench: Bench) -> None:
    data = "cafe\u0301 = 1\ncaf\u00e9 = 2\n".encode()
    outcome, text, after = edit(bench, data, "caf\u00e9 = 1", "x")
    assert (outcome, after) == (Outcome.ERROR, data)
    assert "line 1 looks alike" in text
    assert r"e\u0301" in text
    for text_there, old in (
        ("say \u201chello\u201d now\n", 'say "hello" now'),
        ("total\u00a0= 1 now\n", "total = 1 now"),
    ):
        outcome, text, after = edit(bench, text_there.encode(), old, "x")
        assert (outcome, after) == (Outcome.ERROR, text_there.encode())
        assert "line 1 looks alike" in text


@pytest.mark.parametrize(
    ("data", "old", "new", "after", "how"),
    [
        (
            b"class A:\n    def f(self):\n        return 1\n",
            "def f(self):\n    return 1",
            "def f(self):\n    return 2",
            b"class A:\n    def f(self):\n        return 2\n",
            "line ends and beginnings differ; new_string was indented",
        ),
        (b"value = 1  \nother = 2\n", "value = 1\nother = 2", "one", b"one\n", "line ends and beginnings differ"),
        (b'print("hello")\nnext\n', 'print(\\"hello\\")\\nnext', "done", b"done\n", "escaped once too often"),
        (b"alpha\nbeta\n", "alpha\\nbeta", "beta\\nalpha", b"beta\nalpha\n", "one level of escapes was taken off both"),
    ],
)
def test_looser_matches_are_unique_and_named(
    bench: Bench, data: bytes, old: str, new: str, after: bytes, how: str
) -> None:
    outcome, text, now = edit(bench, data, old, new)
    assert (outcome, now) == (Outcome.OK, after)
    assert "Not an exact match" in text
    assert how in text


@pytest.mark.parametrize(
    ("data", "old", "new", "after"),
    [
        (b"x   = 1 + 2", "x = 1 + 2\n", "x = 1 + 3\n", b"x   = 1 + 3"),
        (b"a\r\n  value = 1  ", "value = 1\n", "value = 2\r\nb\r\n", b"a\r\n  value = 2  \r\n  b"),
        (b"x   = 1 + 2", "x = 1 + 2\n", "x = 3\n\n", b"x   = 3\n"),
        (b"x   = 1 + 2\n", "x = 1 + 2\n", "x = 1 + 3\n", b"x   = 1 + 3\n"),
        (b"x   = 1 + 2\ny", "x = 1 + 2\n", "x = 1 + 3\n", b"x   = 1 + 3\ny"),
    ],
)
def test_h55_a_looser_match_adds_no_last_line_end(bench: Bench, data: bytes, old: str, new: str, after: bytes) -> None:
    outcome, _, written = edit(bench, data, old, new)
    assert (outcome, written) == (Outcome.OK, after)


INDENTED = "new_string was indented like the text it replaces"
CLASS = "class A:\n    def f(self):\n        x = 1\n        return x\n"


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ("all:\n\tgcc -c a.c\n", "    gcc -c a.c\n", "    gcc -O2 -c a.c\n", "all:\n\tgcc -O2 -c a.c\n"),
        ("all: a\n\tgcc a.c\n", "all: a\n    gcc a.c\n", "all: a\n\n    gcc b.c\n", "all: a\n\n\tgcc b.c\n"),
        ("def f():\n    return 1 \n", "        return 1\n", "        return 2\n", "def f():\n    return 2 \n"),
        ("a:\n    b:\n        c: 1\n", "  b:\n    c: 1\n", "  b:\n    c: 3\n", "a:\n    b:\n        c: 3\n"),
        (
            CLASS,
            "  def f(self):\n    x = 1\n",
            "  def g(self):\n    x = 2\n    y = 3\n",
            "class A:\n    def g(self):\n        x = 2\n        y = 3\n        return x\n",
        ),
        (
            "class A:\n    def f(self):\n        x = 1 \n",
            "def f(self):\n        x = 1\n",
            "def f(self):\n        x = 2\n",
            "class A:\n    def f(self):\n        x = 2 \n",
        ),
        ("if a:\r\n\tbb += 1\r\n", "  bb += 1\n", "  b = 2\r\n\r\n  c = 3\n", "if a:\r\n\tb = 2\r\n\r\n\tc = 3\r\n"),
    ],
)
def test_what_is_put_in_is_indented_as_the_file_is(bench: Bench, text: str, old: str, new: str, after: str) -> None:
    outcome, says, written = edit(bench, text.encode(), old, new)
    assert (outcome, written.decode()) == (Outcome.OK, after)
    assert INDENTED in says


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (CLASS, "def f(self):\nx = 1\nreturn x", "def f(self):\nreturn 1"),
        (CLASS, "  def f(self):\n    x = 1\n", "  def f(self):\n    if y:\n      x = 1\n"),
        ("all: a\n\tgcc -c a.c\n", "all: a\n    gcc -c a.c\n", "all: a\n        gcc -c a.c\n"),
    ],
)
def test_an_indentation_that_cant_be_told_is_refused(bench: Bench, text: str, old: str, new: str) -> None:
    outcome, says, written = edit(bench, text.encode(), old, new)
    assert (outcome, written.decode()) == (Outcome.ERROR, text)
    assert "its indentation differs from the file's" in says
    assert "copy the exact text" in says


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        (CLASS, "def f(self):\nx = 1\nreturn x\n", "", "class A:\n"),
        ("if a:  \n    b = 1\n", "if a:\n    b = 1\n", "if a:\n  b = 2\n", "if a:  \n  b = 2\n"),
    ],
)
def test_where_no_indentation_differs_or_nothing_is_put_in_none_is_changed(
    bench: Bench, text: str, old: str, new: str, after: str
) -> None:
    outcome, says, written = edit(bench, text.encode(), old, new)
    assert (outcome, written.decode()) == (Outcome.OK, after)
    assert INDENTED not in says


def test_a_place_that_nearly_fits_is_named(bench: Bench) -> None:
    text = edit(bench, b"one\ndef f():\n    return 1\n", "def f():\n    return 7", "x")[1]
    assert "its first line is at line 2" in text


@pytest.mark.parametrize("text", ["a" * 10_000, " aaaaa \n" * 10_000])
def test_places_are_counted_up_to_a_bound(text: str) -> None:
    with pytest.raises(MatchError, match=f"at least {COUNTED_MAX} times"):
        find(text, "aaaaa\naaaaa" if "\n" in text else "aaaaa", "b")
