"""Token counts: normalised, and absent rather than understated."""

import pytest

from maka.contracts.model_ports import UsageReport
from maka.edges.scripted_model import DONE, chunk, frame
from maka.edges.usage import read_usage
from tests.edges.support import Edge, finish


@pytest.mark.parametrize(
    ("raw", "report"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}, UsageReport(input=3, output=1, total=4)),
        ({"prompt_tokens": 3, "completion_tokens": 0}, UsageReport(input=3, output=0)),
        ({"input_tokens": 3, "output_tokens": 1}, UsageReport(input=3, output=1)),
        ({"prompt_tokens": 3, "total_tokens": 4}, UsageReport(input=3, output=1, total=4)),
        ({"completion_tokens": 3, "total_tokens": 4}, UsageReport(input=1, output=3, total=4)),
        ({"prompt_tokens": 3.0, "completion_tokens": "1"}, UsageReport(input=3, output=1)),
        ({"prompt_tokens": 3}, None),
        ({"prompt_tokens": 5, "total_tokens": 4}, None),
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, None),
        ({"prompt_tokens": -1, "completion_tokens": 1}, None),
        ({"prompt_tokens": True, "completion_tokens": 1}, None),
        ({"prompt_tokens": None, "completion_tokens": 1e300}, None),
        ({}, None),
        (None, None),
        ([1], None),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            UsageReport(input=9, output=5, cached_input=4, reasoning=2),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 5, "prompt_cache_hit_tokens": 4},
            UsageReport(input=9, output=5, cached_input=4),
        ),
    ],
)
def test_spellings_of_usage(raw: object, report: UsageReport | None) -> None:
    assert read_usage(raw) == report


def test_the_last_count_is_the_one(edge: Edge) -> None:
    def usage(made: int) -> dict[str, int]:
        return {"prompt_tokens": 3, "completion_tokens": made}

    heard = edge.hear(
        chunk({"content": "a"}, usage=usage(1)),
        chunk({"content": "b"}, usage=usage(2)),
        chunk({}, "stop", usage=None),
        frame({"choices": [], "usage": usage(7)}),
        DONE,
    )
    assert heard.result.usage == UsageReport(input=3, output=7)
    assert edge.hear(chunk({"content": "a"}), finish("stop"), DONE).result.usage is None


def test_usage_within_a_choice(edge: Edge) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop", "usage": usage}
    heard = edge.hear(frame({"choices": [choice]}), DONE)
    assert heard.result.usage == UsageReport(input=3, output=2)
