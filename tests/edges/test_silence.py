"""The deadline that a silent provider meets: never early, hardly late, and seldom moved. And steps made in time."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from maka.edges.chat_stream import deadline_after
from maka.edges.scripted_model import Raw, Step, chunk
from tests.edges.support import STOP, Edge

SILENCE_S = 8.0
# Eighths are exact in binary: no rounding blurs the bounds.
PAUSES_S = st.lists(st.integers(0, 64).map(lambda eighths: eighths / 8), min_size=1, max_size=50)


@given(PAUSES_S)
def test_a_silence_is_never_ended_early_and_at_most_an_eighth_late(pauses_s: list[float]) -> None:
    until_s, now_s, moves = None, 0.0, 0
    for pause_s in pauses_s:
        now_s += pause_s
        new_s = deadline_after(until_s, now_s, SILENCE_S)
        assert new_s is not None
        assert SILENCE_S <= new_s - now_s <= SILENCE_S * 1.125
        moves += new_s != until_s
        until_s = new_s
    assert moves <= now_s + 2  # an eighth of the silence is one second


def test_a_long_first_wait_and_a_short_last_one_move_it_at_once() -> None:
    assert deadline_after(300.0, 1.0, SILENCE_S) == 10.0
    assert deadline_after(None, 1.0, SILENCE_S) == 10.0
    assert deadline_after(10.0, 2.0, 0.8) == 2.0 + 0.8 * 1.125


def test_for_ever_has_no_deadline() -> None:
    assert deadline_after(300.0, 1.0, 0) is None


def test_steps_are_made_while_they_are_sent(edge: Edge) -> None:
    made: list[str] = []

    def steps() -> Iterator[Step]:
        for word in ("a", "b", "c"):
            made.append(word)
            yield chunk({"content": word})
        yield from STOP

    server = edge.serve(lambda _: Raw(steps=steps()))
    heard = edge.start(edge.provider(server)).wait()
    assert heard.text == "".join(made) == "abc"
