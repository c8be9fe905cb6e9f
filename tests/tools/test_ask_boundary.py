"""request_sandbox_boundary: what is allowed already isn't asked for, as a person's "deny" would deny nothing of it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from maka.contracts.actions import BoundaryRequest
from maka.contracts.boundary import Boundary, Expansion, FileEntry, Profile
from maka.contracts.ids import CallId
from maka.contracts.tool_ports import ToolCall, ToolEnv
from maka.tools.ask_boundary import ALLOWED, AskBoundaryTool
from maka.tools.policy import Ground
from tests.tools.harness import SESSION, boundary

CALL = CallId("0198c0de-0000-7000-8000-000000000002")


class Place:
    """A workspace and a folder beside it, with something protected and something secret in both."""

    def __init__(self, base: Path) -> None:
        self.base = base
        for name in ("ws", "out"):
            (base / name / ".git" / "hooks").mkdir(parents=True)
            (base / name / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
            (base / name / "in" / "deep").mkdir(parents=True)
            (base / name / "AGENTS.md").write_text("be good\n")
            (base / name / "key").write_text("swordfish")
        (base / "ws" / ".vscode").symlink_to(base / "ws" / "in")
        self.ground = Ground(secrets=tuple(str(base / name / "key") for name in ("ws", "out")))

    def entries(self, words: str) -> list[FileEntry]:
        """Read `write out/in, read out/key`: a folder with all below it, anything else alone."""
        found: list[FileEntry] = []
        for one in filter(None, words.split(", ")):
            access, _, name = one.partition(" ")
            path = self.base / name
            scope = "subtree" if path.is_dir() else "exact"
            found.append(msgspec.convert({"path": str(path), "access": access, "scope": scope}, FileEntry))
        return found

    def asks(self, within: Boundary, words: str, *, network: bool = False) -> Any:
        wanted = Expansion(filesystem=tuple(self.entries(words)), network=network)
        call = ToolCall(
            call_id=CALL,
            name="request_sandbox_boundary",
            args={"expansion": msgspec.to_builtins(wanted), "justification": "the task says so"},
        )
        env = ToolEnv(session_id=SESSION, cwd=str(self.base / "ws"), temp_suffix=".maka-1", boundary=within)
        return AskBoundaryTool(self.ground).prepare(call, env)

    def within(self, granted: str, profile: Profile = Profile.ASK, *, network: bool = False) -> Boundary:
        return boundary(self.base / "ws", profile, *self.entries(granted), network=network)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve())


@pytest.mark.parametrize(
    ("granted", "asked"),
    [
        ("write out", "write out"),
        ("write out", "read out"),
        ("write out", "write out/in"),
        ("write out", "write out/in/new"),
        ("write out", "write out/in, read out/in/deep"),
        ("read out", "read out/in"),
        ("write out/new", "write out/new"),
        ("write out/AGENTS.md", "write out/AGENTS.md"),
        ("write out/.git/hooks", "write out/.git/hooks, write out/.git/hooks/x"),
        ("read out/key", "read out/key"),
        ("write out, read out/key", "read out/key"),
        ("", "write ws"),
        ("", "read ws/in, write ws/new"),
    ],
)
def test_what_is_allowed_already_is_not_asked_for(place: Place, granted: str, asked: str) -> None:
    assert place.asks(place.within(granted), asked) == ALLOWED


@pytest.mark.parametrize(
    ("granted", "asked"),
    [
        ("read out", "write out"),
        ("write out/in", "write out"),
        ("write out", "write out/AGENTS.md"),
        ("write out", "write out/.git/hooks"),
        ("write out", "write out/.git/hooks/x"),
        ("write out", "read out/key"),
        ("write out/new", "write out/other"),
        ("", "write ws/AGENTS.md"),
        ("", "write ws/.git/hooks"),
        ("", "read ws/key"),
        ("", "write ws/in"),
    ],
)
def test_what_a_wider_grant_does_not_open_is_asked_for(place: Place, granted: str, asked: str) -> None:
    """Protected names and secrets are opened by name alone; `ws/in` is what a protected link leads to."""
    request = place.asks(place.within(granted), asked)
    assert isinstance(request, BoundaryRequest)
    assert (list(request.expansion.filesystem), request.is_rest) == (place.entries(asked), False)


def test_of_a_request_the_rest_alone_is_asked_for(place: Place) -> None:
    request = place.asks(place.within("write out/in"), "write out/in/deep, write out/AGENTS.md, read out/key")
    assert isinstance(request, BoundaryRequest)
    assert list(request.expansion.filesystem) == place.entries("write out/AGENTS.md, read out/key")
    assert request.is_rest


def test_the_network_is_asked_for_once(place: Place) -> None:
    wide = place.within("write out", network=True)
    assert place.asks(wide, "", network=True) == ALLOWED
    assert place.asks(wide, "write out", network=True) == ALLOWED
    beside = place.asks(wide, "read out/key", network=True)
    assert (beside.expansion, beside.is_rest) == (Expansion(filesystem=tuple(place.entries("read out/key"))), True)
    network = place.asks(place.within("write out"), "write out", network=True)
    assert (network.expansion, network.is_rest) == (Expansion(network=True), True)


def test_explore_asks_to_write_what_it_may_read(place: Place) -> None:
    explore = place.within("", Profile.EXPLORE)
    assert place.asks(explore, "read ws") == ALLOWED
    assert isinstance(place.asks(explore, "write ws"), BoundaryRequest)


def test_a_path_granted_alone_that_is_a_folder_by_now_is_asked_for(place: Place) -> None:
    granted = place.within("write out/new")
    (place.base / "out" / "new").mkdir()
    request = place.asks(granted, "write out/new")
    assert isinstance(request, BoundaryRequest)
    assert request.expansion.filesystem[0].scope == "subtree"
