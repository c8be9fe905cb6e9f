"""Short words for people: durations, tokens, arguments, endings, and what to do after a failure."""

import re
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from maka.cli.output import one_line
from maka.cli.revealed import brief
from maka.contracts.commands import StopReceipt
from maka.contracts.errors import CLI_ON_ASK, FailureClass
from maka.contracts.session_events import ProviderRetry, RunEnded, Usage
from projections.settlement import COMMAND_TOOL

ID_CHARS = 8
ASIDE_CHARS_MAX = 1_000
_ASKING = ("ask_user_question", "request_sandbox_boundary")
_ASIDE = re.compile(
    r"These were changed by the command and (?:were moved aside \(to|could NOT be moved aside:)[^\n]*"
    r"|These (?:settings were|protected files were) replaced [^\n]*"
    r"|Not all that the command made could be looked at\.[^\n]*"
    r"|The command changed what the git index [^\n]*"
)
"""What `maka.tools.inside` says of protected files; a test holds the two together."""
ID_END_CHARS_MIN = 4
_TELLING = ("command", "file_path", "path", "url", "query", "name")
_ADVICE = {
    FailureClass.AUTH: "check the profile's key: maka doctor",
    FailureClass.BILLING: "the provider wants to be paid: see its console",
    FailureClass.RATE_LIMIT: "try again later, or use another profile with -m",
    FailureClass.CONTEXT_OVERFLOW: "start a new session, or use a model with a larger window",
    FailureClass.ANSWER_TOO_LONG: "ask for less at a time",
    FailureClass.NETWORK: "is the server there? maka doctor tells",
    FailureClass.PROVIDER_UNAVAILABLE: "try again with --continue",
    FailureClass.TIMEOUT: "try again with --continue, or raise first_event_s or idle_s of the profile",
    FailureClass.REJECTED: "are the model's name and the base URL right? maka doctor tells",
    FailureClass.TOOL_STEP_CAP_REACHED: "go on with --continue, or raise --max-steps",
    FailureClass.DEADLINE: "go on with --continue, or raise --timeout",
    FailureClass.BUDGET: "go on with --continue",
    FailureClass.RUN_LIMIT_REACHED: "go on with --continue",
    FailureClass.LEDGER_UNAVAILABLE: "make room on the disk, then go on with --continue",
}

_ASKED = "it asked a person: run it in a terminal, or with --on-ask park, or allow it beforehand with --allow"


def duration(milliseconds: int | None) -> str:
    """Return a duration as a person says it."""
    if milliseconds is None:
        return "?"
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1_000), 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def is_end(name: str, whole: str) -> bool:
    """Say whether a name means this id: the whole of it, or an end that is too long to be met by accident."""
    return len(name) >= ID_END_CHARS_MIN and whole.endswith(name.lower())


def short_id(value: str) -> str:
    """Return the end of an id: ids of one time begin alike."""
    return value[-ID_CHARS:]


def moment(unix_ms: int) -> str:
    """Return a time of day in this machine's zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_ms / 1_000))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def tokens(usage: Usage) -> str:
    """Return a run's tokens; what isn't known is said, never guessed."""
    if usage.input is None or usage.output is None:
        return "tokens not reported"
    cached = f" ({usage.cached_input:,} cached)" if usage.cached_input else ""
    return f"{usage.input:,} tokens in{cached}, {usage.output:,} out"


def brief_args(args: dict[str, Any], chars_max: int = 100) -> str:
    """Return the telling argument of a tool call, or all of them, on one line: nothing hidden, the end shown."""
    pattern, path = args.get("pattern"), args.get("path")
    if isinstance(pattern, str):
        return brief(f"{pattern} in {path}" if isinstance(path, str) else pattern, chars_max)
    for name in _TELLING:
        if isinstance(value := args.get(name), str):
            return brief(value, chars_max)
    return brief(msgspec.json.encode(args).decode(), chars_max) if args else ""


def call_args(name: str, args: dict[str, Any], chars_max: int = 100) -> str:
    """Return the telling argument of a call, "" where the call asks the person: the request itself is shown."""
    return "" if name in _ASKING else brief_args(args, chars_max)


def aside_lines(result: str) -> list[str]:
    """Return what a command's result says of protected files that were moved aside, couldn't be, or were replaced."""
    return [brief(found[0], ASIDE_CHARS_MAX) for found in _ASIDE.finditer(result)]


def cut_answer(stop_reason: str | None) -> str:
    """Say that the last answer is not whole, "" where it is."""
    return "The answer was cut at the model's token limit: raise max_output_tokens." * (stop_reason == "max_tokens")


def is_told(note: str) -> bool:
    """Say whether a notice is worth a line: what ended a run is told by its ending."""
    return note != "step_limit"


def ending(ended: RunEnded, tools: int | None = None) -> str:
    """Return the line that sums a run up."""
    parts = [duration(ended.duration_ms), counted(ended.steps, "step")]
    if tools is not None:
        parts.append(counted(tools, "tool call"))
    parts.append(tokens(ended.usage))
    return " · ".join(parts)


def verdict(status: str, failure_class: str | None, abort_source: str | None) -> str:
    """Return how a run ended, with its class or source."""
    detail = failure_class or abort_source
    return f"{status} ({detail})" if detail else status


def advice(failure_class: str | None) -> str:
    """Return what to do after a failure, "" where there is nothing better than to read the message."""
    known = {str(name): text for name, text in _ADVICE.items()}
    return known.get(failure_class or "", "")


def what_to_do(failure_class: str | None, abort_source: str | None) -> str:
    """Return what to do after a run that didn't complete, as a sentence, "" where nothing is known."""
    todo = _ASKED if abort_source == CLI_ON_ASK else advice(failure_class)
    return f"{todo[:1].upper()}{todo[1:]}." if todo else ""


def failure_line(ended: RunEnded, message: str | None) -> str:
    """Return the one line that says why a run didn't complete and what to do."""
    text = f"The run {verdict(ended.status, ended.failure_class, ended.abort_source)}"
    todo = what_to_do(ended.failure_class, ended.abort_source)
    parts = [text if not message else f"{text}: {one_line(message, 500)}", todo]
    return ". ".join(part.rstrip(".") for part in parts if part) + "."


def retry(event: ProviderRetry) -> str:
    """Say that a request is tried again, and when."""
    wait = duration(event.delay_ms)
    return f"trying again in {wait} ({event.attempt} of {event.attempts_max}): {one_line(event.reason, 200)}"


_NOT_PUT_RIGHT = (
    "  What a command left may not have been put right: look for a new .git, .envrc, AGENTS.md and the like."
)


def receipt_lines(receipt: StopReceipt) -> Sequence[str]:
    """Return what a stop did, one line for the run and one for each call that was open."""
    if receipt.run_id is None:
        return ("Nothing was running.", *_going_on(receipt.background))
    head = f"Stopped run {receipt.run_id} ({receipt.abort_source or receipt.status}), which was {receipt.was}."
    calls = (f"  {call.name}: {call.outcome}" for call in receipt.calls)
    unknown = any((call.name, call.outcome) == (COMMAND_TOOL, "outcome_unknown") for call in receipt.calls)
    return (head, *calls, *((_NOT_PUT_RIGHT,) if unknown else ()), *_going_on(receipt.background))


def _going_on(shells: Sequence[str]) -> Sequence[str]:
    if not shells:
        return ()
    names = ", ".join(shells)
    return (f"  In the background go on: {names}. stop_background ends one, leaving Maka ends all; see maka ps.",)


def honest_status(status: str, *, owned: bool) -> str:
    """Return a session's or run's status: what the facts call running is interrupted where nobody runs it."""
    return "interrupted" if status in ("running", "opening") and not owned else status


INTERRUPTED = "Maka ended while a run was under way; the next maka run closes it and goes on."
