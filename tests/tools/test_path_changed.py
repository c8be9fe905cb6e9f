"""What is swapped between look and rename is `path_changed`, in this word, and what stands there then is left."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from maka.contracts.boundary import Profile
from maka.contracts.content import Outcome
from maka.tools.files import FileTurns
from tests.tools.conftest import make_tools
from tests.tools.harness import Bench, Recorder
from tests.tools.racer import Racer
from tests.tools.worlds import WORD, Move, Race, When, World, Worlds, snapshot

CHANGED = "path_changed: nothing was changed: d/a was changed by someone else meanwhile. Read it again"
FOLDER = "path_changed: nothing was changed: the folder of d/a was swapped. Try again"
LINK = "path_changed: d in d/a turned into a link while it was opened: try again"
LOST = "path_changed: d/a was written, but isn't there any more: something moved it. Look"
CALLS: dict[str, dict[str, Any]] = {"Write": {"content": "ours"}, "Edit": {"old_string": "old", "new_string": "ours"}}


class Place:
    """A workspace with the file d/a, what lies beside it, and all that can be done to it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.workspace, self.outside, self.held = base / "ws", base / "outside", base / "held"
        self.folder, self.file = self.workspace / "d", self.workspace / "d" / "a"
        for folder in (self.folder, self.outside):
            folder.mkdir(parents=True)
        self.file.write_text("old")
        (self.outside / "a").write_text("old")

    def another_file(self) -> None:
        """Of the same content and age, as a program leaves it that writes a new one beside it."""
        was = self.file.stat()
        self.held.write_text("old")
        os.utime(self.held, ns=(was.st_atime_ns, was.st_mtime_ns))
        self.held.rename(self.file)

    def written_in_place(self) -> None:
        was = self.file.stat()
        self.file.write_text("new")
        os.utime(self.file, ns=(was.st_atime_ns, was.st_mtime_ns))

    def link_to_a_file(self) -> None:
        self.file.rename(self.held)
        self.file.symlink_to(self.outside / "a")

    def link_to_itself(self) -> None:
        """What is read through it is what was looked at."""
        self.file.rename(self.held)
        self.file.symlink_to(self.held)

    def folder_for_the_file(self) -> None:
        self.file.unlink()
        self.file.mkdir()

    def pipe_for_the_file(self) -> None:
        self.file.unlink()
        os.mkfifo(self.file)

    def gone(self) -> None:
        self.file.unlink()

    def another_folder(self) -> None:
        """The file itself moves along, and is the one that was looked at."""
        self.folder.rename(self.held)
        self.folder.mkdir()
        (self.held / "a").rename(self.file)

    def link_to_a_folder(self) -> None:
        self.folder.rename(self.held)
        self.folder.symlink_to(self.outside)

    def link_to_the_folder(self) -> None:
        """It leads to the very folder that was looked at."""
        self.folder.rename(self.held)
        self.folder.symlink_to(self.held)


SWAPS: dict[Callable[[Place], None], str] = {
    Place.another_file: CHANGED,
    Place.written_in_place: CHANGED,
    Place.link_to_a_file: CHANGED,
    Place.link_to_itself: CHANGED,
    Place.folder_for_the_file: CHANGED,
    Place.pipe_for_the_file: CHANGED,
    Place.gone: CHANGED,
    Place.another_folder: FOLDER,
    Place.link_to_a_folder: LINK,
    Place.link_to_the_folder: LINK,
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve())


def bench_of(place: Place) -> Bench:
    return Bench(make_tools(), place.workspace)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("swap", "says"), SWAPS.items(), ids=[swap.__name__ for swap in SWAPS])
def test_what_is_swapped_between_look_and_rename_is_said_and_left(
    place: Place, swap: Callable[[Place], None], says: str, name: str
) -> None:
    seen: list[object] = []

    def swapped(_: object) -> None:
        swap(place)
        seen.append(snapshot(place.base))

    bench = bench_of(place)
    result = bench.begin(name, Recorder(on_commit=swapped), path="d/a", **CALLS[name]).wait()
    assert (result.outcome, result.text, result.seen) == (Outcome.ERROR, says, None)
    assert [snapshot(place.base)] == seen, "no byte, name or time of anything"


NEW: dict[Callable[[Place], None], str] = {
    Place.another_file: CHANGED,
    Place.folder_for_the_file: CHANGED,
    Place.link_to_a_file: CHANGED,
    Place.another_folder: FOLDER,
    Place.link_to_a_folder: LINK,
}


@pytest.mark.parametrize(("swap", "says"), NEW.items(), ids=[swap.__name__ for swap in NEW])
def test_a_new_file_takes_the_place_of_nothing_that_came_meanwhile(
    place: Place, swap: Callable[[Place], None], says: str
) -> None:
    place.file.unlink()

    def swapped(_: object) -> None:
        place.file.write_text("theirs")
        swap(place)

    result = bench_of(place).begin("Write", Recorder(on_commit=swapped), path="d/a", content="ours").wait()
    assert (result.outcome, result.text) == (Outcome.ERROR, says)
    assert not [path for path in place.base.rglob("*") if path.is_file() and "ours" in path.read_text()]
    assert (place.outside / "a").read_text() == "old"


def test_a_folder_that_was_not_there_is_never_one_that_a_link_leads_to(place: Place) -> None:
    def swapped(_: object) -> None:
        (place.workspace / "n").symlink_to(place.outside)

    result = bench_of(place).begin("Write", Recorder(on_commit=swapped), path="n/a", content="ours").wait()
    assert result.outcome is Outcome.ERROR
    assert result.text == "path_changed: n in n/a turned into a link while it was opened: try again"
    assert (place.outside / "a").read_text() == "old"


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("swap", [Place.another_file, Place.gone, Place.link_to_a_file, Place.link_to_a_folder])
def test_what_is_moved_right_after_the_rename_is_said_as_not_known(
    place: Place, swap: Callable[[Place], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced = os.replace

    def then_swapped(*args: Any, **kwargs: Any) -> None:
        replaced(*args, **kwargs)
        swap(place)

    monkeypatch.setattr(os, "replace", then_swapped)
    result = bench_of(place).run(name, path="d/a", **CALLS[name])
    assert (result.outcome, result.text, result.seen) == (Outcome.OUTCOME_UNKNOWN, LOST, None)
    assert (place.outside / "a").read_text() == "old"


# -- at every moment ----------------------------------------------------------------------------------------------


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Worlds]:
    made = Worlds(tmp_path)
    yield made
    made.close()


MOMENTS: tuple[When, ...] = (*range(1, 16), "commit")


@pytest.mark.parametrize("target", ["OUT/SAME", "e", "held0"])
@pytest.mark.parametrize("component", [0, 1], ids=["folder", "file"])
@pytest.mark.parametrize("name", ["Read", *CALLS])
def test_a_link_put_there_before_any_system_call_is_path_changed_or_comes_too_late(
    worlds: Worlds, name: Literal["Read", "Write", "Edit"], component: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first one it is no race: the path is what it leads to by then."""
    racer = Racer(monkeypatch)
    args: dict[str, Any] = {"Write": {"content": "ours"}, "Edit": {"old_string": "mine", "new_string": "ours"}}.get(
        name, {}
    )
    said: dict[When, tuple[Outcome, str]] = {}
    for when in MOMENTS:
        with worlds.one(Profile.ASK, None) as world:
            said[when] = raced(world, racer, Race(when, Move("swap", component, target)), name, args)
    later = {when: its for when, its in said.items() if when != 1}
    wrong = [its for its in later.values() if its[0] is not Outcome.OK and not its[1].startswith("path_changed: ")]
    assert not wrong, said
    assert sum(outcome is not Outcome.OK for outcome, _ in later.values()) >= (1 if name == "Read" else 3), said
    assert name == "Read" or said["commit"][0] is Outcome.ERROR


def raced(world: World, racer: Racer, race: Race, name: str, args: dict[str, Any]) -> tuple[Outcome, str]:
    bench = Bench(make_tools(turns=FileTurns(world.ground), ground=world.ground), world.workspace, world.boundary)
    recorder = Recorder(on_commit=lambda _: racer.at("commit"))
    with racer.racing(world, (race,), "d/a"):
        result = bench.begin(name, recorder, path="d/a", **args).wait()
    world.check(result, recorder, (WORD,))
    return result.outcome, result.text
