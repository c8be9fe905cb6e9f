"""Kind J through the whole path: text that no encoder takes becomes text that all of them take."""

import pytest

from maka.contracts.content import Error, FunctionResponse, Outcome
from maka.edges.scripted_model import Call, Raw, Step, Turn, chunk
from tests.e2e.harness import World
from tests.edges.support import STOP


def escaped(text: str) -> bytes:
    """Return a chunk whose content is a JSON escape as it stands."""
    return chunk({"content": "@"}).replace(b"@", text.encode())


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ((escaped("\\ud83d"),), "\ufffd"),
        ((escaped("a\\ud83d"), escaped("\\ude00b")), "a\U0001f600b"),
        ((escaped("\\ude00"), escaped("x")), "\ufffdx"),
    ],
)
def test_h43_lone_surrogate_from_the_model(world: World, steps: tuple[Step, ...], text: str) -> None:
    maka = world.open([Raw(steps=(*steps, *STOP))])
    ended = maka.run("one")
    assert (ended.status, ended.final_text) == ("completed", text)
    maka.model.says(Turn(text="two"))
    assert maka.run("next").status == "completed"
    assert ("assistant", text) in maka.model.roles()


def test_h43_lone_surrogate_from_the_person(world: World) -> None:
    maka = world.open([Turn(text="ok")])
    assert maka.run("half \ud83d").status == "completed"
    assert maka.model.roles() == [("user", "half ?")]


def test_h44_nul_in_tool_arguments(world: World) -> None:
    calls = (
        Call(name="Bash", args={"command": "echo a\0b"}),
        Call(name="Read", args={"path": "a\0.txt"}),
        Call(name="Write", args={"path": "w.txt", "content": "x\0y"}),
    )
    maka = world.open([Turn(calls=calls), Turn(text="done")])
    assert maka.run().status == "completed"
    answers: list[FunctionResponse] = maka.contents(FunctionResponse)
    assert {answer.name: answer.outcome for answer in answers} == {
        "Bash": Outcome.REFUSED,
        "Read": Outcome.REFUSED,
        "Write": Outcome.OK,
    }
    assert (world.workspace / "w.txt").read_bytes() == b"x\0y"


def test_h45_broken_utf_8_in_the_stream(world: World) -> None:
    broken = chunk({"content": "@"}).replace(b"@", b"\xff\xfe")
    maka = world.open([Raw(steps=(chunk({"content": "ok"}), broken, *STOP))])
    ended = maka.run()
    assert (ended.status, ended.failure_class, ended.final_text) == ("failed", "provider_unavailable", "ok")
    (error,) = maka.contents(Error)
    assert "UTF-8" in error.message
