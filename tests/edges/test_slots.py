"""`max_concurrent`: a profile's requests wait for a slot, and a stop frees the slot or the place in the row."""

from maka.contracts.model_ports import ErrorKind
from maka.edges.scripted_model import Gate, Raw, chunk
from tests.edges.support import Edge

STOP = (chunk({}, "stop"),)


def test_a_profile_sends_no_more_requests_at_once_than_it_may(edge: Edge) -> None:
    gate = Gate()
    server = edge.serve(lambda _: Raw(steps=(chunk({"content": "a"}), gate, *STOP)))
    provider = edge.provider(server, max_concurrent=1)
    first = edge.start(provider)
    assert first.first_batch.wait(30)
    waiting, later = edge.start(provider), edge.start(provider)
    waiting.cancel()
    assert waiting.error.kind is ErrorKind.CANCELLED
    assert server.request_count == 1
    gate.open()
    assert first.result.finish_reason == "stop"
    assert later.result.finish_reason == "stop"
    assert server.request_count == 2


def test_a_stopped_request_gives_its_slot_back(edge: Edge) -> None:
    gate = Gate()
    server = edge.serve(lambda _: Raw(steps=(chunk({"content": "a"}), gate, *STOP)))
    provider = edge.provider(server, max_concurrent=1)
    first = edge.start(provider)
    assert first.first_batch.wait(30)
    first.cancel()
    second = edge.start(provider)
    assert second.first_batch.wait(30)
    gate.open()
    assert second.result.finish_reason == "stop"
