"""A command that follows a run, while the ledger is ahead of the events: nothing is left before it was shown."""

from collections.abc import Callable

from maka.cli.follow import Follower, Left, Request
from maka.cli.interrupts import Interrupts
from maka.contracts.commands import MessageAccepted
from maka.contracts.session_events import RunEnded, RunStarted, SessionEvent, ToolStart, UserQuestionAsked
from maka.edges.scripted_model import Call, Turn
from maka.subscription import Subscription
from projections.inbox import PendingWait
from tests.e2e.harness import Maka, World

ASK = Turn(calls=(Call(name="ask_user_question", args={"questions": [{"question": "Which?"}]}),))


class Seen:
    """A view, and what is done at a request."""

    def __init__(self, maka: Maka, *, leaves: bool) -> None:
        self.events: list[SessionEvent] = []
        self.found_waits: list[PendingWait] = []
        self.leaves = leaves
        self._maka = maka

    def event(self, event: SessionEvent) -> None:
        self.events.append(event)

    def ended(self, ended: RunEnded) -> None: ...

    def left(self, left: Left) -> None: ...

    def asked(self, request: Request) -> None:
        if not self.leaves:
            self._maka.manager.answer(request.session_id, request.request_id, answers=("this",))

    def found(self, wait: PendingWait) -> None:
        self.found_waits.append(wait)


def follow(maka: Maka, seen: Seen, send: Callable[[], MessageAccepted]) -> RunEnded | Left:
    def subscribe(position: int) -> Subscription:
        return maka.manager.subscribe(maka.session_id, after_position=position)

    after_position = maka.host.reader.head().position
    with Interrupts() as interrupts:
        follower = Follower(subscribe, lambda: False, maka.host.reader, seen, interrupts, seen)
        return follower.follow(send, after_position)


def sent_and_asked(maka: Maka) -> MessageAccepted:
    """Send a message whose run has asked, and waits, before the command has seen anything of it."""
    live = maka.send("which?")
    live.until(UserQuestionAsked)
    return live.accepted


def test_a_run_that_is_left_was_shown_up_to_what_it_waits_for(world: World) -> None:
    maka = world.open([ASK, Turn(text="thanks")])
    seen = Seen(maka, leaves=True)
    left = follow(maka, seen, lambda: sent_and_asked(maka))
    assert isinstance(left, Left) and not left.ahead
    assert [type(event) for event in seen.events if isinstance(event, RunStarted | ToolStart | UserQuestionAsked)] == [
        RunStarted,
        ToolStart,
        UserQuestionAsked,
    ]
    maka.manager.stop(maka.session_id, "test.end")


def test_what_our_run_asks_at_once_is_ours_to_answer_and_not_found(world: World) -> None:
    maka = world.open([ASK, Turn(text="thanks")])
    seen = Seen(maka, leaves=False)
    ended = follow(maka, seen, lambda: sent_and_asked(maka))
    assert isinstance(ended, RunEnded) and ended.final_text == "thanks"
    assert seen.found_waits == []
