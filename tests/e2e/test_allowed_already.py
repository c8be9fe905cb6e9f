"""A request for what is allowed already asks nobody; of one that is allowed in part the rest alone is asked for."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from maka.contracts.boundary import Expansion
from maka.contracts.session_events import SandboxBoundaryRequest
from maka.edges.scripted_model import Call, ScriptRequest, Turn
from maka.tools.ask_boundary import ALLOWED
from maka.tools.policy import needed
from tests.e2e.harness import World


def asks(*expansions: Expansion) -> Any:
    """Ask for these, one in each step, and say what the last answer was."""

    def script(request: ScriptRequest) -> Turn:
        told = request.tool_results()
        if len(told) == len(expansions):
            return Turn(text=told[-1])
        asked = {"expansion": json.loads(msgspec.json.encode(expansions[len(told)])), "justification": "needed"}
        return Turn(calls=(Call(name="request_sandbox_boundary", args=asked),))

    return script


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out" / "in").mkdir(parents=True)
    return (tmp_path / "out").resolve()


@pytest.mark.parametrize("scope", ["once", "session", "workspace"])
def test_what_an_answer_granted_is_not_asked_for_again(world: World, out: Path, scope: Any) -> None:
    whole, part = needed(str(out), "write", "subtree"), needed(str(out / "in"), "write", "subtree")
    maka = world.open(asks(whole, whole, part))
    live = maka.send()
    maka.manager.answer(maka.session_id, live.until(SandboxBoundaryRequest).request_id, decision="allow", scope=scope)
    ended = live.end()
    assert (ended.status, ended.final_text) == ("completed", ALLOWED)
    assert len(live.of(SandboxBoundaryRequest)) == 1


def test_a_denied_rest_denies_nothing_that_was_allowed(world: World, out: Path) -> None:
    inner = needed(str(out / "in"), "write", "subtree")
    maka = world.open(asks(Expansion(filesystem=inner.filesystem, network=True)))
    maka.manager.change_boundary(maka.session_id, grants=inner, scope="session")
    live = maka.send()
    request = live.until(SandboxBoundaryRequest)
    assert request.expansion == Expansion(network=True), "what is shown is what is granted"
    maka.reopen()
    events = maka.follow(maka.session_id)
    maka.manager.answer(maka.session_id, request.request_id, decision="deny")
    assert events.end().final_text.startswith("The person denied the part that wasn't allowed already.")


@pytest.mark.parametrize("how", ["deny", "park", "fail"])
def test_with_an_allow_no_run_is_parked_denied_or_stopped(world: World, out: Path, how: str) -> None:
    machine = world.machine
    server = world.model(asks(needed(str(out), "write", "subtree"))).server
    machine.config.write_text(f'[models.mine]\nbase_url = "{server.base_url}"\nmodel = "{server.model}"\n', "utf-8")
    done = machine.maka("run", "--allow", f"write:{out}", "--on-ask", how, "--json", "go")
    assert (done.code, done.record["status"]) == (0, "completed")
    assert done.record["finalText"] == ALLOWED
    assert machine.maka("inbox", "--json").lines == []
