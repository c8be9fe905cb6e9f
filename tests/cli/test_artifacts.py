"""`maka artifacts` over real runs: what is listed, and that what is printed is what was, whatever became of files."""

from hashlib import sha256
from pathlib import Path

import pytest

from maka.edges.scripted_model import Call, ScriptedModel, Turn, by_step
from tests.cli.real import Machine

LONG = "i=0; while [ $i -lt 6000 ]; do echo a line number $i; i=$((i+1)); done"
WHOLE = "".join(f"a line number {number}\n" for number in range(6000))
BEFORE, AFTER = "plum = 1\n\xe4pfel = 2\n", "plum = 1\n\xe4pfel = 3\n"


def edit(old: str, new: str) -> Call:
    return Call(name="Edit", args={"path": "src/fruit.py", "old_string": old, "new_string": new})


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine after one run; what is asked of it changes nothing in its state root."""
    machine = Machine(tmp_path_factory.mktemp("artifacts"))
    steps = (
        Turn(calls=(Call(name="Write", args={"path": "src/fruit.py", "content": BEFORE}),)),
        Turn(
            calls=(
                edit("\xe4pfel = 2", "\xe4pfel = 3"),
                Call(name="Bash", args={"command": LONG}),
                Call(name="Bash", args={"command": "echo short"}),
                edit("nothing like it", "x"),
            )
        ),
        Turn(text="done"),
    )
    model = ScriptedModel.start(by_step(steps))
    try:
        assert machine.run(model, "--boundary", "ask", "go").code == 0
    finally:
        model.close()
    return machine


def test_what_a_session_left_is_listed(machine: Machine) -> None:
    listed = machine.maka("artifacts", "@last", "--json").lines
    kinds = sorted((each["kind"], each["name"], each["tool"]) for each in listed)
    assert kinds == [
        ("diff", "src/fruit.py", "Edit"),
        ("diff", "src/fruit.py", "Write"),
        ("file", "src/fruit.py", "Edit"),
        ("file", "src/fruit.py", "Write"),
        ("output", LONG, "Bash"),
    ]
    assert [each["number"] for each in listed] == [1, 2, 3, 4, 5]
    run_id = listed[0]["runId"]
    assert machine.maka("artifacts", run_id[-8:], "--json").lines == listed, "one run is all there was"
    table = machine.maka("artifacts", "@last").out
    assert table.splitlines()[0].split() == ["kind", "bytes", "tool", "run", "when", "name"]
    assert "src/fruit.py" in table


def test_each_is_printed_as_it_was(machine: Machine) -> None:
    (machine.workspace / "src" / "fruit.py").unlink(missing_ok=True)
    listed = machine.maka("artifacts", "@last", "--json").lines
    said = {}
    for each in listed:
        done = machine.maka("artifacts", "@last", str(each["number"]))
        assert (done.code, done.err) == (0, "")
        assert sha256(done.out.encode()).hexdigest() == each["sha256"]
        said[each["kind"], each["tool"]] = done.out
    assert said["file", "Write"] == BEFORE
    assert said["file", "Edit"] == AFTER, "made again from the call and the old content"
    assert said["output", "Bash"] == WHOLE
    assert "-\xe4pfel = 2\n+\xe4pfel = 3\n" in said["diff", "Edit"]


def test_one_is_written_to_a_file(machine: Machine, tmp_path: Path) -> None:
    (number,) = (
        each["number"] for each in machine.maka("artifacts", "@last", "--json").lines if each["kind"] == "output"
    )
    target = tmp_path / "whole.txt"
    assert machine.maka("artifacts", "@last", str(number), "-o", str(target)).out == ""
    assert target.read_text() == WHOLE


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("@last", "99"), "none with the number 99"),
        (("@last", "0"), "0 is not in the range"),
        (("@last", "-o", "x"), "give its number"),
        (("@last", "1", "--json"), "--json is for the list"),
        (("nobody",), "There is no session"),
        (("@last", "1", "-o", "no/such/folder/x"), "No such file"),
    ],
)
def test_what_can_t_be_had_is_one_line(machine: Machine, args: tuple[str, ...], words: str) -> None:
    done = machine.maka("artifacts", *args)
    assert done.code != 0
    assert words in done.err
    assert done.err.count("\n") == 1 or done.out.startswith("{")


def test_a_session_without_any_says_so(tmp_path: Path) -> None:
    machine, model = Machine(tmp_path), ScriptedModel.start(by_step([Turn(text="hello")]))
    try:
        assert machine.run(model, "say hello").code == 0
    finally:
        model.close()
    done = machine.maka("artifacts", "@last")
    assert (done.code, done.out) == (0, "")
    assert "nothing was left" in done.err
