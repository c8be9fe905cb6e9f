"""Paths that leave the workspace, and paths that are no paths."""

import os
from pathlib import Path
from typing import Any

import pytest

from maka.contracts.content import Outcome
from maka.edges.processes import AsyncProcesses
from tests.tools.conftest import make_tools
from tests.tools.harness import Bench, Recorder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    (path / "x").write_text("secret")
    return path


@pytest.mark.parametrize(
    "path", ["link/x", "../outside/x", "./link/../outside/x", "{outside}/x", "sub/../../outside/x", "link", ".."]
)
def test_h60_what_leaves_the_workspace_is_refused(bench: Bench, workspace: Path, outside: Path, path: str) -> None:
    (workspace / "link").symlink_to(outside)
    (workspace / "sub").mkdir()
    path = path.format(outside=outside)
    for result in (
        bench.run("Read", path=path),
        bench.run("Write", path=path, content="written"),
        bench.run("Edit", path=path, old_string="secret", new_string="written"),
    ):
        assert result.outcome is Outcome.REFUSED
        assert "sandbox_boundary_required" in result.text
        assert "outside the workspace" in result.text
        assert str(outside.parent.resolve()) in result.text  # the real path is shown
        assert "secret" not in result.text
    assert (outside / "x").read_text() == "secret"
    assert sorted(os.listdir(outside)) == ["x"]


def test_h60_a_dangling_link_to_the_outside_creates_nothing(bench: Bench, workspace: Path, outside: Path) -> None:
    (workspace / "new").symlink_to(outside / "made")
    assert bench.run("Write", path="new", content="x").outcome is Outcome.REFUSED
    assert not (outside / "made").exists()


def test_h60_links_that_stay_inside_work(bench: Bench, workspace: Path) -> None:
    (workspace / "real").mkdir()
    (workspace / "real" / "x").write_text("hello there")
    (workspace / "link").symlink_to("real")
    (workspace / "file").symlink_to("link/x")
    assert bench.run("Read", path="link/x").text == "hello there"
    assert bench.run("Edit", path="file", old_string="there", new_string="you").outcome is Outcome.OK
    assert (workspace / "real" / "x").read_text() == "hello you"
    assert (workspace / "file").is_symlink()


def test_h60_the_workspace_itself_may_be_a_link(bench: Bench, workspace: Path, tmp_path: Path) -> None:
    alias = tmp_path / "alias"
    alias.symlink_to(workspace)
    through = Bench(bench.tools, alias)
    assert through.run("Write", path="a", content="1").outcome is Outcome.OK
    assert through.run("Read", path=str(alias / "a")).text == "1"
    assert through.run("Read", path=str(workspace / "a")).text == "1"
    assert through.run("Read", path="../outside").outcome is Outcome.REFUSED
    assert through.run("Bash", command="cat a").text == "1"


def test_h60_a_folder_swapped_for_a_link_after_the_check_doesnt_escape(
    bench: Bench, workspace: Path, outside: Path
) -> None:
    (workspace / "sub").mkdir()

    def swap(_: object) -> None:
        (workspace / "sub").rmdir()
        (workspace / "sub").symlink_to(outside)

    result = bench.begin("Write", Recorder(on_commit=swap), path="sub/y", content="written").wait()
    assert result.outcome is Outcome.ERROR
    assert sorted(os.listdir(outside)) == ["x"]


def test_h60_a_link_loop_is_an_error(bench: Bench, workspace: Path) -> None:
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    assert bench.run("Read", path="a").outcome is Outcome.ERROR
    assert bench.run("Write", path="a/x", content="x").outcome is Outcome.ERROR


@pytest.mark.parametrize("path", ["a\0.txt", "x" * 300, "d/" * 3000 + "x"], ids=["nul", "long name", "long path"])
def test_h44_impossible_paths_are_error_results(bench: Bench, path: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("Read", {}),
        ("Write", {"content": "x"}),
        ("Edit", {"old_string": "a", "new_string": "b"}),
    ]
    for name, args in calls:
        recorder = bench.begin(name, path=path, **args)
        assert recorder.wait().outcome is Outcome.ERROR
        assert recorder.facts == []


def test_h44_nul_in_content_is_stored_as_it_is(bench: Bench, workspace: Path) -> None:
    assert bench.run("Write", path="n", content="x\0y").outcome is Outcome.OK
    assert (workspace / "n").read_bytes() == b"x\0y"
    assert bench.run("Read", path="n").text == "x\0y"


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("Read", {"path": "a"}),
        ("Write", {"path": "sub/a", "content": "x"}),
        ("Edit", {"path": "a", "old_string": "a", "new_string": "b"}),
        ("Glob", {"pattern": "*"}),
        ("Grep", {"pattern": "a"}),
    ],
)
def test_h53_no_file_tool_makes_a_workspace_that_is_gone(
    processes: AsyncProcesses, workspace: Path, name: str, args: dict[str, str]
) -> None:
    bench = Bench(make_tools(processes), workspace)
    workspace.rmdir()
    result = bench.run(name, **args)
    assert result.outcome is Outcome.ERROR
    assert f"the working directory {workspace.resolve()} does not exist (any more): create it again" in result.text
    assert not workspace.exists()
    workspace.mkdir()
    assert bench.run("Write", path="sub/a", content="x").outcome is Outcome.OK
