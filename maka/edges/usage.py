"""A provider's token counts -> UsageReport. Absent rather than understated: input and output must both be known."""

from typing import Any

from maka.contracts.model_ports import UsageReport
from maka.edges.loose_json import count, mapping

_INPUT = ("prompt_tokens", "input_tokens")
_OUTPUT = ("completion_tokens", "output_tokens")


def read_usage(raw: object) -> UsageReport | None:
    """Return the counts of one request, or None where a side is unknown and can't be had from the total."""
    usage = mapping(raw)
    total = count(usage.get("total_tokens"))
    given, made = _first(usage, _INPUT), _first(usage, _OUTPUT)
    if total is not None and given is None and made is not None and total >= made:
        given = total - made
    elif total is not None and made is None and given is not None and total >= given:
        made = total - given
    # A request without a single token can't be: such a server writes zeros for "not known".
    if given is None or made is None or given + made == 0:
        return None
    details = mapping(usage.get("prompt_tokens_details")) or mapping(usage.get("input_tokens_details"))
    cached = _first({**usage, **details}, ("cached_tokens", "prompt_cache_hit_tokens"))
    details = mapping(usage.get("completion_tokens_details")) or mapping(usage.get("output_tokens_details"))
    return UsageReport(
        input=given,
        output=made,
        cached_input=cached,
        reasoning=count(details.get("reasoning_tokens")),
        total=total,
    )


def _first(usage: dict[str, Any], names: tuple[str, ...]) -> int | None:
    return next((value for name in names if (value := count(usage.get(name))) is not None), None)
