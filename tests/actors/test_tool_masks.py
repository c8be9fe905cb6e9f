"""What a tool says passes its actor without a secret, in every field and piece; what can't be masked is refused."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from actors.tool_masks import masked_request
from maka.contracts.actions import BoundaryRequest, FileSeen, ProcessIdentity
from maka.contracts.boundary import Expansion, FileEntry
from maka.contracts.codec import encode
from maka.contracts.content import FunctionResponse, Outcome
from maka.contracts.ids import CallId
from maka.contracts.limits import ERROR_TEXT_CHARS_MAX
from maka.contracts.masks import SECRET_MARK
from maka.contracts.session_events import ToolOutputDelta
from maka.contracts.tool_ports import FileFact, ProcessFact, ToolCall, ToolEnv, ToolListener, ToolResult, WorkspaceDiff
from maka.edges.secrets import Secrets
from tests.actors.case import Case, asks, then
from tests.sim.laws import SECRET
from tests.sim.outside import Said
from tests.sim.tools import SimTool

KEY = SECRET
Act = Callable[[ToolListener], None]


def told(act: Act, monkeypatch: pytest.MonkeyPatch) -> tuple[Case, FunctionResponse]:
    """Run one call of a tool that does this, and hold every fact, blob and event to the law."""

    def start(self: SimTool, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        self.seen.started.add(call.call_id)
        act(listener)
        return lambda: None

    monkeypatch.setattr(SimTool, "start", start)
    case = Case(then(asks("Quick"), Said(text=("ok",))))
    assert case.finish().status == "completed"
    facts = case.host.session_facts(case.session_id)
    assert KEY.encode() not in b"".join(encode(item.event) for item in facts)
    assert KEY not in repr(case.sink.events)
    (answer,) = [item.event.content for item in facts if isinstance(item.event.content, FunctionResponse)]
    for ref in (answer.whole, answer.diff):
        assert ref is None or KEY.encode() not in (case.host.store.blob(ref.sha256) or b"")
    return case, answer


def ends(**fields: Any) -> Act:
    result = msgspec.convert({"outcome": "ok", "text": "done"}, ToolResult)
    return lambda listener: listener.ended(replace(result, **fields))


def test_every_field_of_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    _, answer = told(
        ends(
            text=f"it is {KEY}.",
            whole=b"\xff" + KEY.encode(),
            diff=f"-{KEY}\n+x\n",
            seen=FileSeen(path=f"/w/{KEY}", sha256="b" * 64),
            workspace=WorkspaceDiff(added=(f"a-{KEY}",), modified=(KEY,), deleted=(f"d/{KEY}/e",)),
        ),
        monkeypatch,
    )
    assert answer.result == f"it is {SECRET_MARK}."


@pytest.mark.parametrize("size", [1, 5, 23])
def test_live_output_in_pieces(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    text = f"a {KEY} b {KEY[:9]}"

    def act(listener: ToolListener) -> None:
        for at in range(0, len(text), size):
            listener.output("stdout", text[at : at + size])
            listener.output("stderr", "-")
        ends()(listener)

    case, _ = told(act, monkeypatch)
    shown = "".join(event.text for event in case.shown(ToolOutputDelta) if event.stream == "stdout")
    assert shown == f"a {SECRET_MARK} b {KEY[:9]}", "what was held back is shown at the end"


def test_what_a_tool_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def act(_: ToolListener) -> None:
        raise OSError("." * (ERROR_TEXT_CHARS_MAX - 40) + KEY)

    _, answer = told(act, monkeypatch)
    assert answer.outcome is Outcome.ERROR
    assert KEY[:6] not in answer.result


def test_the_command_line_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def act(listener: ToolListener) -> None:
        process = ProcessIdentity(pid=7, group=7, start_ticks=1, boot_id="boot")
        fact = ProcessFact(process=process, command=f"curl -H 'X-Key: {KEY}'")
        listener.commit(fact, lambda _: ends()(listener))

    case, _ = told(act, monkeypatch)
    acts = [item.event.actions for item in case.host.session_facts(case.session_id)]
    (started,) = [act.process_started for act in acts if act is not None and act.process_started is not None]
    assert started.command == f"curl -H 'X-Key: {SECRET_MARK}'"


def test_a_request_whose_path_holds_a_secret_is_not_recorded() -> None:
    masks = Secrets([KEY])
    entry = FileEntry(path=f"/w/{KEY}", access="read", scope="exact")
    asked = BoundaryRequest(call_id=CallId("c"), expansion=Expansion(filesystem=(entry,)), justification="x")
    assert masked_request(asked, masks) == "not asked: a path holds a secret, which would be recorded"
    assert masked_request(f"no {KEY}", masks) == f"no {SECRET_MARK}"
    fine = replace(asked, expansion=Expansion(network=True))
    assert masked_request(fine, masks) is fine


def test_a_path_that_holds_a_secret_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    granted: list[bool] = []

    def act(listener: ToolListener) -> None:
        fact = FileFact(path=f"/w/{KEY}", before_sha256=None, after_sha256="a" * 64, pre_image=None, temp_name=".t")
        listener.commit(fact, granted.append)

    _, answer = told(act, monkeypatch)
    assert granted == [False]
    assert answer.result == "the file's path holds a secret, so nothing was changed"
