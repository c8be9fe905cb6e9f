"""Bounds, kept output and diffs as laws over drawn texts."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka.contracts.actions import ProcessIdentity
from maka.contracts.content import Outcome
from maka.contracts.limits import (
    BASH_TIMEOUT_MAX_S,
    DIFF_BYTES_MAX,
    EDIT_CHARS_MAX,
    EDIT_LINES_MAX,
    FILES_REMEMBERED_MAX,
    RESULT_BYTES_MAX,
    RESULT_LINES_MAX,
)
from maka.contracts.process_ports import ProcessEnd, ProcessHandle, ProcessListener, ProcessSpec
from maka.edges.process_tree import identity_of
from maka.tools.diffs import unified
from maka.tools.edit_match import MatchError, find, replaced
from maka.tools.files import FileTurns
from maka.tools.output import Kept
from maka.tools.policy import Ground
from maka.tools.results import cut_middle, line_count, take_head, take_tail
from tests.tools.conftest import make_tools
from tests.tools.harness import SESSION, Bench

texts = st.text(st.sampled_from("ab é€😀\n"), max_size=60)
small = st.integers(1, 20)


@given(texts, small, small)
def test_a_head_is_a_beginning_within_its_bounds(text: str, lines: int, size: int) -> None:
    head = take_head(text, lines, size)
    assert text.startswith(head)
    assert line_count(head) <= lines
    assert len(head.encode()) <= size
    if line_count(text) <= lines and len(text.encode()) <= size:
        assert head == text


@given(texts, small, small)
def test_a_tail_is_an_end_within_its_bounds(text: str, lines: int, size: int) -> None:
    tail = take_tail(text, lines, size)
    assert text.endswith(tail)
    assert line_count(tail) <= lines
    assert len(tail.encode()) <= size
    if line_count(text) <= lines and len(text.encode()) <= size:
        assert tail == text


@pytest.mark.parametrize("text", ["x\n" * 9_000, "y" * 300_000, "é\n" * 40_000 + "end", "z" * 49_000 + "\n" * 3_000])
def test_a_middle_cut_fits_the_model_with_its_marker(text: str) -> None:
    cut = cut_middle(text, text, line_count(text), len(text.encode()), "hint")
    assert len(cut.encode()) <= RESULT_BYTES_MAX
    assert line_count(cut) <= RESULT_LINES_MAX
    assert "hint]" in cut


@given(st.lists(texts, max_size=12), st.integers(4, 40), small)
def test_kept_output_is_head_and_tail(pieces: list[str], half: int, size: int) -> None:
    kept = Kept(half)
    for piece in pieces:
        kept.add(piece.encode())
    data = "".join(pieces).encode()
    assert kept.size == len(data)
    assert kept.lines == line_count("".join(pieces))
    if not kept.dropped:
        assert kept.whole() == data
    else:
        before, _, after = kept.whole().partition(b"\n[... ")
        assert data.startswith(before) and len(before) == half
        assert data.endswith(after.partition(b"...]\n")[2])
    head, tail = kept.ends(min(size, half))
    assert data.decode().startswith(head)
    assert data.decode().endswith(tail)


def patched(old: list[str], diff: str) -> list[str]:
    """Apply a unified diff, strictly."""
    out: list[str] = []
    at = 0
    lines = diff.split("\n")[2:-1]
    for line in lines:
        if line.startswith("@@"):
            first, count = (int(number) for number in line.split()[1][1:].split(","))
            start = first - 1 if count else first
            out += old[at:start]
            at = start
        elif line.startswith("\\"):
            continue
        else:
            mark, text = line[0], line[1:]
            if mark in " -":
                assert old[at].rstrip("\n") == text
                at += 1
            if mark in " +":
                out.append(text + "\n")
    return out + old[at:]


@given(st.lists(st.sampled_from("abc"), max_size=25), st.lists(st.sampled_from("abc"), max_size=25))
def test_a_diff_leads_from_one_text_to_the_other(old: list[str], new: list[str]) -> None:
    before, after = ["".join((char, "\n")) for char in old], ["".join((char, "\n")) for char in new]
    diff = unified("f", "".join(before).encode(), "".join(after).encode())
    assert diff.text is not None
    assert patched(before, diff.text) == after
    assert len(new) - len(old) == diff.added - diff.removed


def test_a_diff_names_a_missing_line_end() -> None:
    diff = unified("f", b"a\nb", b"a\nb\n")
    assert diff.text == "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n"


def test_a_large_diff_is_counted_only() -> None:
    old = b"".join(b"%d\n" % number for number in range(300_000))
    new = b"".join(b"%d\n" % number for number in range(300_000, 600_000))
    diff = unified("f", old, new)
    assert (diff.text, diff.added, diff.removed) == (None, 300_000, 300_000)
    assert len(old) > DIFF_BYTES_MAX


@given(st.text("ab\n ", max_size=30), st.text("ab\n", min_size=1, max_size=4), st.text("xy\n\\", max_size=4))
def test_an_exact_edit_is_plain_replacement(text: str, old: str, new: str) -> None:
    places = sum(text.startswith(old, at) for at in range(len(text)))
    for ends in ("\n", "\r\n"):
        there = text.replace("\n", ends)
        if old == new:
            continue
        if places == 1:
            expected = text.replace(old, new).replace("\n", ends)
            # A text without a single line end has no style of its own.
            if "\n" in text or ends == "\n":
                assert replaced(there, find(there, old, new)) == expected
        elif places > 1:
            with pytest.raises(MatchError):
                find(there, old, new)


@pytest.mark.parametrize("content", ["x" * (EDIT_CHARS_MAX + 1), "\n" * (EDIT_LINES_MAX + 1)])
def test_too_much_text_is_not_edited(bench: Bench, workspace: Path, content: str) -> None:
    (workspace / "f").write_text(content)
    assert "too large to edit" in bench.run("Edit", path="f", old_string="value", new_string="y").text


def test_what_was_written_is_remembered_within_a_bound() -> None:
    turns = FileTurns(Ground())
    for number in range(FILES_REMEMBERED_MAX + 1):
        turns.wrote(SESSION, str(number), "hash")
    assert turns.last_written(SESSION, "0") is None
    assert turns.last_written(SESSION, "1") == "hash"


class FakeProcesses:
    """Ends a process as told."""

    def __init__(self, end: ProcessEnd) -> None:
        self._end = end
        self.specs: list[ProcessSpec] = []
        self._listener: ProcessListener | None = None

    def spawn(self, spec: ProcessSpec, listener: ProcessListener) -> ProcessHandle:
        self.specs.append(spec)
        self._listener = listener
        listener.waiting(identity_of(1))
        return self

    def release(self) -> None:
        assert self._listener is not None
        self._listener.output("stdout", b"part\n")
        self._listener.ended(self._end)

    def cancel(self) -> None:
        raise AssertionError("nothing is cancelled here")

    def kill_left_over(self, found: Sequence[ProcessIdentity]) -> list[ProcessIdentity]:
        raise AssertionError(found)


@pytest.mark.parametrize(
    ("end", "outcome", "says"),
    [
        (ProcessEnd(cause="cancelled", signal=9, survivors=(7, 8)), Outcome.OUTCOME_UNKNOWN, "may still run: 7, 8"),
        (ProcessEnd(cause="exited", exit_code=0, survivors=(7,)), Outcome.OUTCOME_UNKNOWN, "may still run: 7"),
        (ProcessEnd(cause="unknown"), Outcome.OUTCOME_UNKNOWN, "not known"),
        (ProcessEnd(cause="timeout", signal=15), Outcome.TIMEOUT, "timed out after 600 s"),
    ],
)
def test_endings_that_no_test_can_bring_about(workspace: Path, end: ProcessEnd, outcome: Outcome, says: str) -> None:
    processes = FakeProcesses(end)
    bench = Bench(make_tools(processes, child_env={}, rg_path="rg"), workspace)
    result = bench.run("Bash", command="x", timeout_ms=int(BASH_TIMEOUT_MAX_S) * 1000)
    assert result.outcome is outcome
    assert result.text.startswith("part\n[")
    assert says in result.text
    assert processes.specs[0].timeout_s == BASH_TIMEOUT_MAX_S
