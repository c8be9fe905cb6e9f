"""Kind J: half characters and broken bytes stop at the edge."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka.contracts.model_ports import ErrorKind
from maka.edges.scripted_model import DONE
from maka.edges.sse import SseFrame, SseOverflowError, SseParser
from maka.edges.surrogates import Joiner, mend, mend_values
from tests.edges.support import CALLS, STOP, Edge


def delta(inner: bytes) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{%b},"finish_reason":null}]}\n\n' % inner


def test_h43_lone_surrogate_from_the_model(edge: Edge) -> None:
    heard = edge.hear(delta(b'"content":"\\ud83d"'), *STOP)
    assert heard.result.finish_reason == "stop"
    assert heard.text == "\ufffd"


def test_h43_halves_in_two_fragments_are_joined(edge: Edge) -> None:
    heard = edge.hear(
        delta(b'"content":"a\\ud83d"'),
        delta(b'"reasoning_content":"\\ud83d"'),
        delta(b'"content":"\\ude00b"'),
        delta(b'"content":"\\ude00"'),
        *STOP,
    )
    assert heard.text == "a\U0001f600b\ufffd"
    assert heard.said("thinking") == "\ufffd"


def test_h43_halves_everywhere_else(edge: Edge) -> None:
    call = b'"tool_calls":[{"index":0,"id":"k\\ud83d","function":{"name":"n\\ud83d","arguments":%b}}]'
    more = b'"tool_calls":[{"index":0,"function":{"arguments":"\\ude00\\\\ud83d\\"}"}}]'
    heard = edge.hear(delta(call % b'"{\\"a\\":\\"\\ud83d"'), delta(more), *CALLS)
    made = heard.result.calls[0]
    assert (made.provider_id, made.name, made.args) == ("k\ufffd", "n\ufffd", {"a": "\U0001f600\ufffd"})
    assert msgspec.json.encode(heard.result)
    heard = edge.hear(delta(call % b'{"a\\ud83d":["\\ud83d"]}'), *CALLS)
    assert heard.result.calls[0].args == {"a\ufffd": ["\ufffd"]}
    heard = edge.hear(b'data: {"error":"\\ud83d"}\n\n')
    assert msgspec.json.encode(heard.error)


def test_h45_broken_utf8_in_the_stream(edge: Edge) -> None:
    heard = edge.hear(delta(b'"content":"ok"'), delta(b'"content":"\xff\xfe"'), *STOP)
    assert heard.text == "ok"
    assert (heard.error.kind, heard.observed) == (ErrorKind.PROVIDER_UNAVAILABLE, True)
    assert "not UTF-8" in heard.error.message


def test_a_number_that_json_does_not_know(edge: Edge) -> None:
    call = b'"tool_calls":[{"index":0,"id":"k","function":{"name":"n","arguments":"{\\"a\\":NaN,\\"b\\":1%b}"}}]'
    heard = edge.hear(delta(call % (b"0" * 40)), *CALLS)
    assert heard.result.calls[0].args == {"a": None, "b": 10**40}


@given(st.text(st.characters(codec=None), max_size=20), st.lists(st.integers(0, 20), max_size=5))
def test_joining_pieces_is_mending_the_whole(text: str, cuts: list[int]) -> None:
    joiner = Joiner()
    places = [0, *sorted(cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(places)]
    whole = mend("".join(pieces))
    assert "".join([*map(joiner.feed, pieces), joiner.close()]) == whole
    assert whole.encode().decode() == whole
    assert mend_values({text: [text, 1, None]}) == {mend(text): [mend(text), 1, None]}


STREAM = (
    b"\xef\xbb\xbf: hi\nevent: x\ndata: 1\ndata:2\n\n\n\r\ndata: {\xc3\xa9}\r\n\r\nid: 7\nretry: 1\n\ndata\ndata: \n\n"
    b"nonsense\n\ndata: last"
)
FRAMES = [SseFrame("x", b"1\n2"), SseFrame("", b"{\xc3\xa9}"), SseFrame("", b"\n")]


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_frames_do_not_depend_on_where_the_bytes_are_cut(cuts: list[int]) -> None:
    parser = SseParser()
    places = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[start:end] for start, end in pairwise(places)]
    assert [frame for chunk in chunks for frame in parser.feed(chunk)] == FRAMES


def test_a_frame_without_end_is_bounded() -> None:
    parser = SseParser(frame_bytes_max=100)
    assert parser.feed(b"data: " + b"x" * 90 + b"\n\n") == [SseFrame("", b"x" * 90)]
    parser.feed(b"data: " + b"x" * 60)
    with pytest.raises(SseOverflowError):
        parser.feed(b"x" * 60)
    parser = SseParser(frame_bytes_max=100)
    parser.feed(b"data: " + b"x" * 60 + b"\n")
    with pytest.raises(SseOverflowError):
        parser.feed(b"data: " + b"x" * 60 + b"\n")


def test_a_stream_of_one_endless_line_fails(edge: Edge) -> None:
    heard = edge.hear(b"data: ", *(b"x" * (1 << 20) for _ in range(9)), DONE)
    assert "longer than" in heard.error.message
