"""Batches, acknowledgements, back-pressure, and a stop at every place of a stream."""

from collections.abc import Callable

import pytest

from maka.contracts.limits import DELTA_MERGE_BYTES_MAX, DELTA_MERGE_S, STREAM_BACKLOG_BYTES_MAX
from maka.contracts.model_ports import DeltaBatch, ErrorKind
from maka.edges.deltas import DeltaMerger
from maka.edges.scripted_model import DONE, Gate, Raw, Repeat, Turn, by_step, chunk
from tests.edges.support import STOP, Edge, Heard


class FakeCall:
    def __init__(self, at: float, run: Callable[[], object]) -> None:
        self.at = at
        self.run = run
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeTime:
    """A loop's clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls: list[FakeCall] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], object], /) -> FakeCall:
        self.calls.append(FakeCall(self.now + delay, callback))
        return self.calls[-1]

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        due = [call for call in self.calls if call.at <= self.now and not call.is_cancelled]
        self.calls = [call for call in self.calls if call not in due]
        for call in due:
            call.run()


@pytest.fixture
def clock() -> FakeTime:
    return FakeTime()


@pytest.fixture
def sent() -> list[DeltaBatch]:
    return []


@pytest.fixture
def merger(clock: FakeTime, sent: list[DeltaBatch]) -> DeltaMerger:
    return DeltaMerger(clock, sent.append)


def texts(sent: list[DeltaBatch]) -> list[str]:
    return ["".join(text for _, text in batch.pieces) for batch in sent]


def test_the_first_piece_is_shown_at_once(merger: DeltaMerger, sent: list[DeltaBatch]) -> None:
    merger.add("text", "a")
    assert sent == [DeltaBatch(pieces=(("text", "a"),))]


def test_pieces_within_a_moment_are_one_batch(merger: DeltaMerger, sent: list[DeltaBatch], clock: FakeTime) -> None:
    for piece in "abc":
        merger.add("text", piece)
        merger.ack()
    assert texts(sent) == ["a"]
    clock.pass_by(DELTA_MERGE_S)
    assert texts(sent) == ["a", "bc"]
    merger.ack()
    clock.pass_by(DELTA_MERGE_S)
    merger.add("text", "d")
    assert texts(sent) == ["a", "bc", "d"]


def test_one_batch_is_unanswered(merger: DeltaMerger, sent: list[DeltaBatch], clock: FakeTime) -> None:
    merger.add("text", "a")
    merger.add("text", "b")
    clock.pass_by(10)
    assert texts(sent) == ["a"]
    merger.ack()
    assert texts(sent) == ["a", "b"]
    merger.ack()
    merger.ack()
    assert texts(sent) == ["a", "b"]


def test_a_full_batch_does_not_wait(merger: DeltaMerger, sent: list[DeltaBatch]) -> None:
    merger.add("text", "a")
    merger.ack()
    merger.add("text", "b" * DELTA_MERGE_BYTES_MAX)
    assert texts(sent) == ["a", "b" * DELTA_MERGE_BYTES_MAX]


def test_kinds_keep_their_order(merger: DeltaMerger, sent: list[DeltaBatch], clock: FakeTime) -> None:
    merger.add("text", "-")
    for kind, piece in (("thinking", "a"), ("thinking", "b"), ("text", "c"), ("thinking", "d")):
        merger.add(kind, piece)
    merger.ack()
    clock.pass_by(DELTA_MERGE_S)
    assert sent[1].pieces == (("thinking", "ab"), ("text", "c"), ("thinking", "d"))


@pytest.mark.parametrize("letter", ["x", "é", "😀"])
def test_no_batch_is_larger_than_a_partial_takes(letter: str, merger: DeltaMerger, sent: list[DeltaBatch]) -> None:
    merger.add("text", letter * 30_000)
    for _ in range(200):
        merger.ack()
    merger.add("text", letter * DELTA_MERGE_BYTES_MAX)
    merger.ack()
    assert max(len(text.encode()) for text in texts(sent)) <= DELTA_MERGE_BYTES_MAX
    assert "".join(texts(sent)).startswith(letter * 30_000)


def test_a_provider_that_runs_ahead_is_not_read_on(edge: Edge) -> None:
    """The server can't get rid of its endless text while nobody acknowledges."""
    far = Gate()
    piece = chunk({"content": "x" * 1_000})
    flood = (piece * 1_000,) * 24  # 24 MB, more than all socket buffers hold
    server = edge.serve(lambda _: Raw(steps=(*flood, far, *STOP)))
    heard = Heard(acks=False)
    edge.start(edge.provider(server, idle_s=0.2), heard)
    assert heard.first_batch.wait(30)
    # Longer than the idle limit: silence that the listener causes isn't the provider's.
    assert not far.reached.wait(0.4)
    assert len(heard.batches) == 1
    assert not heard.over.is_set()
    heard.acks = True
    heard.ack()
    assert far.reached.wait(30)
    far.open()
    assert heard.result.finish_reason == "stop"
    assert len(heard.text) == 24_000_000
    assert all(len(text) <= DELTA_MERGE_BYTES_MAX for text in texts(heard.batches))


def test_everything_is_said_before_the_verdict(edge: Edge) -> None:
    heard = Heard(acks=False)
    server = edge.serve(by_step([Turn(text="word " * 10_000, thinking="hm")]))
    edge.start(edge.provider(server), heard)
    assert heard.first_batch.wait(30)
    heard.acks = True
    heard.ack()
    assert heard.result.finish_reason == "stop"
    assert (heard.text, heard.said("thinking")) == ("word " * 10_000, "hm")


def cancelled(heard: Heard) -> bool:
    return heard.error.kind is ErrorKind.CANCELLED and not heard.error.retryable


def test_a_stop_before_the_head(edge: Edge) -> None:
    gate = Gate()
    server = edge.serve(lambda _: Raw(steps=STOP, head_gate=gate))
    heard = edge.start(edge.provider(server))
    assert gate.reached.wait(30)
    heard.cancel()
    assert cancelled(heard)
    assert server.requests[0].http.gone.wait(30)


def test_a_stop_at_once(edge: Edge) -> None:
    server = edge.serve(by_step([Turn(text="a")]))
    provider = edge.provider(server)
    for _ in range(20):
        heard = edge.start(provider)
        heard.cancel()
        heard.cancel()
        assert cancelled(heard)
    assert edge.start(provider).result.finish_reason == "stop"


def test_a_stop_in_mid_stream(edge: Edge) -> None:
    gate = Gate()
    server = edge.serve(lambda _: Raw(steps=(chunk({"content": "a"}), gate, chunk({"content": "b"}), *STOP)))
    heard = edge.start(edge.provider(server))
    assert heard.first_batch.wait(30)
    heard.cancel()
    assert cancelled(heard)
    assert server.requests[0].http.gone.wait(30)
    gate.open()
    assert heard.text == "a"


def test_a_stop_in_a_flood(edge: Edge) -> None:
    server = edge.serve(lambda _: Raw(steps=(Repeat(chunk({"content": "x" * 1_000}) * 100, 0.0),)))
    heard = edge.start(edge.provider(server))
    assert heard.first_batch.wait(30)
    heard.cancel()
    told = len(heard.batches)
    assert cancelled(heard)
    assert len(heard.batches) == told, "a batch after cancel had returned"
    assert server.requests[0].http.gone.wait(30)


def test_a_stop_in_back_pressure(edge: Edge) -> None:
    full = chunk({"content": "x" * STREAM_BACKLOG_BYTES_MAX})
    server = edge.serve(lambda _: Raw(steps=(full, full, Repeat(full, 0.0))))
    heard = Heard(acks=False)
    edge.start(edge.provider(server), heard)
    assert heard.first_batch.wait(30)
    heard.cancel()
    assert cancelled(heard)
    assert server.requests[0].http.gone.wait(30)


def test_a_stop_by_the_listener_itself(edge: Edge) -> None:
    server = edge.serve(lambda _: Raw(steps=(Repeat(chunk({"content": "x"}), 0.0),)))
    heard = Heard()
    heard.on_batch = heard.cancel
    edge.start(edge.provider(server), heard)
    assert cancelled(heard)
    assert len(heard.batches) == 1


def test_a_stop_after_the_end_changes_nothing(edge: Edge) -> None:
    heard = edge.hear(chunk({"content": "a"}), *STOP)
    heard.cancel()
    heard.ack()
    assert heard.result.finish_reason == "stop"


def test_h24_nothing_comes_after_a_stop(edge: Edge) -> None:
    """Also where the verdict is on its way: the listener that has cancelled never hears `finished`."""
    heard = Heard(acks=False)
    server = edge.serve(lambda _: Raw(steps=(chunk({"content": "a"}), chunk({"content": "b"}), *STOP, DONE)))
    edge.start(edge.provider(server), heard)
    assert heard.first_batch.wait(30)
    heard.cancel()
    heard.ack()
    assert cancelled(heard)
    assert heard.text.startswith("a")
    assert len(heard.batches) == 1


def test_two_hundred_streams_at_once(edge: Edge) -> None:
    server = edge.serve(by_step([Turn(text="words of one among many")]))
    provider = edge.provider(server)
    listeners = [edge.start(provider) for _ in range(200)]
    assert {heard.result.finish_reason for heard in listeners} == {"stop"}
    assert {heard.text for heard in listeners} == {"words of one among many"}


def test_a_loop_that_closes_ends_its_streams(edge: Edge) -> None:
    gate = Gate()
    server = edge.serve(lambda _: Raw(steps=(chunk({"content": "a"}), gate)))
    provider = edge.provider(server)
    heard = edge.start(provider)
    assert heard.first_batch.wait(30)
    edge.io.close()
    assert cancelled(heard)
    late = edge.start(provider)
    assert late.error.kind is ErrorKind.UNKNOWN
