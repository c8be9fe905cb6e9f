"""ProjectionActor: what readers are shown, when they join, when they lag, and when they break."""

from typing import Any

import pytest

from actors.messages_ledger import Subscribe
from maka.contracts.ids import SessionId
from maka.contracts.limits import SUBSCRIBER_BACKLOG_MAX
from maka.contracts.model_ports import ChatRequest
from maka.contracts.session_events import Complete, RunStarted, SessionEvent, TextComplete, TextDelta, UserMessage
from maka.subscription import Subscription, SubscriptionLostError
from tests.actors.case import Case
from tests.sim.host import SimHost
from tests.sim.outside import Said, SimSink


def streaming(_: ChatRequest) -> Said:
    return Said(text=("one ", "two ", "three"), hangs=True)


def text_of(sink: SimSink) -> str:
    """Put the text together by the offsets that the reader was given."""
    text = ""
    for event in sink.events:
        if isinstance(event, TextDelta):
            assert event.offset <= len(text), "a gap in the stream"
            text = text[: event.offset] + event.text
    return text


def test_h65_a_reader_that_joins_in_mid_stream_gets_the_text_so_far_and_then_what_follows() -> None:
    for seed in range(30):
        case = Case(streaming, seed=seed)
        case.until(lambda case=case: bool(case.shown(TextDelta)))  # type: ignore[misc]
        late = case.host.follow(case.session_id)
        case.host.world.run()
        assert text_of(late) == text_of(case.sink) == "one two three"


def test_h65_reading_on_from_a_position_repeats_and_misses_nothing() -> None:
    case = Case(lambda _: Said(text=("done",)))
    case.finish()
    everything = [event for event in case.sink.events if event.position is not None]
    for event in everything:
        assert event.position is not None
        sink = case.host.follow(case.session_id, event.position)
        case.host.world.run()
        later = [each for each in everything if (each.position or 0) > event.position]
        assert [each for each in sink.events if each.position is not None] == later


def test_a_position_from_the_future_shows_only_what_comes() -> None:
    case = Case(lambda _: Said(text=("done",)))
    case.finish()
    sink = case.host.follow(case.session_id, 10_000)
    case.host.world.run()
    assert sink.events == []


def test_a_reader_of_another_session_is_shown_nothing() -> None:
    host = SimHost(1, lambda _: Said(text=("done",)))
    mine, other = host.session(), host.session()
    sink = host.follow(other)
    host.send(mine, "hello")
    host.world.run()
    assert {event.session_id for event in sink.events} <= {other}


class Slow:
    """A reader that takes three batches and no more."""

    def __init__(self) -> None:
        self.events: list[SessionEvent] = []
        self.asked = 0

    def put(self, events: tuple[SessionEvent, ...]) -> bool:
        self.asked += 1
        self.events += events
        return self.asked < 3

    def lost(self) -> None:
        return


def test_h66_a_reader_that_does_not_keep_up_is_dropped_and_others_go_on() -> None:
    case = Case(lambda _: Said(text=("a", "b", "c", "d")))
    slow = Slow()
    case.host.follow(case.session_id)
    case.host.feed.tell(Subscribe(session_id=case.session_id, after_position=0, sink=slow))
    case.finish()
    assert slow.asked == 3, "it isn't asked again"
    kinds = [type(event) for event in case.sink.events]
    assert kinds[-1] is Complete
    assert {UserMessage, RunStarted, TextComplete} <= set(kinds)


def test_a_feed_that_crashes_fails_no_run() -> None:
    case = Case(streaming)
    for actor in case.host.world.actors:
        if type(actor).__name__ == "ProjectionActor":

            def broken(_: object) -> None:
                raise RuntimeError("planted")

            actor.receive = broken
    case.host.world.run()
    stopped = case.host.stop(case.session_id)
    case.finish()
    assert stopped.value.status == "aborted"


def test_a_subscription_whose_reader_lags_is_lost_at_its_bound() -> None:
    class Nobody:
        def tell(self, _: object) -> bool:
            return True

    nobody: Any = Nobody()
    subscription = Subscription(nobody)
    event = UserMessage(session_id=SessionId("s"), text="hello")
    assert subscription.put((event,) * SUBSCRIBER_BACKLOG_MAX)
    assert not subscription.put((event,))
    for _ in range(SUBSCRIBER_BACKLOG_MAX):
        assert subscription.get(0) == event
    with pytest.raises(SubscriptionLostError):
        subscription.get(0)
