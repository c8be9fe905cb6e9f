"""The script of the demo: find the failing tests of the sample project, fix the bug, run the tests again.

Law: it is truthful. Each answer is decided by the tool results that came back; it reports a number or a success only
where a test run said so, and says what is wrong where something else came back.
"""

import re
from typing import Any

from msgspec import Struct

from maka.edges.loose_json import decode, mapping, sequence, text
from maka.edges.scripted_turns import Call, Reply, Script, ScriptRequest, Turn

TASK = "find the failing tests in this project, fix the problem, and run the tests again"
TESTS = "python -m pytest -q"
MODULE = "bookings/interval.py"
BUG = "return self.start <= other.end and other.start <= self.end"
FIX = "return self.start < other.end and other.start < self.end"

_BAD = re.compile(r"\b(\d+) (?:failed|errors?)\b")
_PASSED = re.compile(r"\b(\d+) passed\b")
_NAMES = re.compile(r"^FAILED (\S+)", re.MULTILINE)


class _Done(Struct, frozen=True):
    """A call of this task, with its result."""

    name: str
    args: dict[str, Any]
    result: str


def demo_script(pace_s: float = 0.02) -> Script:
    """Return the script; `pace_s` is the pause between two pieces of text, so that a person can read along."""

    def script(request: ScriptRequest) -> Reply:
        prompt, done = _so_far(request)
        if "test" not in prompt.lower():
            return _say(f"I'm a scripted model and know one task only: {TASK}.", pace_s)
        return _next(done, pace_s)

    return script


def _so_far(request: ScriptRequest) -> tuple[str, list[_Done]]:
    """Return the last prompt, and the calls since then with their results."""
    prompt, calls, done = "", dict[str, tuple[str, dict[str, Any]]](), list[_Done]()
    for message in request.messages:
        if message.get("role") == "user":
            prompt, done = text(message.get("content")), []
        for call in map(mapping, sequence(message.get("tool_calls"))):
            function = mapping(call.get("function"))
            calls[text(call.get("id"))] = (text(function.get("name")), mapping(decode(text(function.get("arguments")))))
        if message.get("role") == "tool":
            name, args = calls.get(text(message.get("tool_call_id")), ("", {}))
            done.append(_Done(name, args, text(message.get("content"))))
    return prompt, done


def _next(done: list[_Done], pace_s: float) -> Reply:
    if not done:
        return _say("I'll run the tests first to see what fails.", pace_s, Call(name="Bash", args={"command": TESTS}))
    last = done[-1]
    match last.name:
        case "Bash" if any(step.name == "Edit" for step in done):
            return _say(_after_the_fix(last.result), pace_s)
        case "Bash":
            return _after_first_run(last.result, pace_s)
        case "Grep":
            return _after_search(last.result, pace_s)
        case "Read":
            return _after_reading(last.result, pace_s)
        case "Edit":
            again = Call(name="Bash", args={"command": TESTS})
            return _say("Now the tests once more, to see whether that was it.", pace_s, again)
        case _:
            return _say(f"I don't know what to make of a result of {last.name or 'an unknown tool'}.", pace_s)


def _after_first_run(result: str, pace_s: float) -> Reply:
    failed, passed = _number(_BAD, result), _number(_PASSED, result)
    if failed is None:
        if passed is None:
            return _say(f"I couldn't run the tests. What came back: {_first_line(result)}", pace_s)
        return _say(f"All {passed} tests pass: there is nothing to fix.", pace_s)
    names = "".join(f"\n- {name}" for name in _NAMES.findall(result))
    return Turn(
        thinking="What the failing tests share is how two intervals are compared.",
        text=f"{failed} of the tests fail:{names}\nI'll look for the place where intervals are compared.",
        calls=(Call(name="Grep", args={"pattern": "def overlaps", "path": "bookings"}),),
        pace_s=pace_s,
    )


def _after_search(result: str, pace_s: float) -> Reply:
    if "interval.py" not in result:
        return _say(f"I looked for `overlaps` and found no such place: {_first_line(result)}", pace_s)
    return _say("That is the place; I'll read the whole module.", pace_s, Call(name="Read", args={"path": MODULE}))


def _after_reading(result: str, pace_s: float) -> Reply:
    if BUG not in result:
        return _say(f"{MODULE} doesn't hold the comparison that I expected, so I change nothing.", pace_s)
    return Turn(
        thinking="An interval doesn't contain its end, yet the comparison counts two that only touch as overlapping.",
        text="Intervals are half-open, but `overlaps` compares with `<=`, so two that only touch count as overlapping. "
        "It has to be `<`.",
        calls=(Call(name="Edit", args={"path": MODULE, "old_string": BUG, "new_string": FIX}),),
        pace_s=pace_s,
    )


def _after_the_fix(result: str) -> str:
    failed, passed = _number(_BAD, result), _number(_PASSED, result)
    if failed is not None:
        return f"{failed} tests still fail after my change, so it isn't fixed. {_first_line(result)}"
    if passed is None:
        return f"I changed {MODULE}, but I couldn't run the tests again. What came back: {_first_line(result)}"
    return (
        f"Fixed: all {passed} tests pass. `Interval.overlaps` in {MODULE} compared with `<=`, although an interval's "
        "end isn't part of it; it now compares with `<`, so back-to-back bookings are accepted again."
    )


def _say(words: str, pace_s: float, *calls: Call) -> Turn:
    return Turn(text=words, calls=calls, pace_s=pace_s)


def _number(pattern: re.Pattern[str], result: str) -> int | None:
    """Return the sum of the numbers of that kind in the last line that has any: a test run ends with its summary."""
    found = next((numbers for line in reversed(result.splitlines()) if (numbers := pattern.findall(line))), None)
    return sum(map(int, found)) if found else None


def _first_line(result: str) -> str:
    return next((line.strip()[:300] for line in result.splitlines() if line.strip()), "(nothing)")
