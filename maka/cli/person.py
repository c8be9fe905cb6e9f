"""What the person at the terminal says to a request: one key each, words where they are wanted."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from maka.cli.asking import Asked, questions_of
from maka.cli.keys import Keys
from maka.contracts.actions import Question
from maka.contracts.boundary import Scope

_SCOPES: dict[str, Scope] = {"a": "session", "s": "session", "o": "once", "w": "workspace"}
_SAID = {
    "once": "allowed for this run",
    "session": "allowed for this session",
    "workspace": "allowed for this workspace",
}
_ALLOW = "allow? [a] for this session  [o] once, for this run  [w] for this workspace, later sessions too  [d] deny"
_WORDS, _NOTHING = "t", "0"


class Given(Struct, frozen=True, kw_only=True):
    """An answer: a decision with its scope, or one text a question (None: left open)."""

    decision: Literal["allow", "deny"] | None = None
    scope: Scope = "session"
    answers: tuple[str | None, ...] | None = None


class _Said(Struct, frozen=True):
    text: str | None


def ask(keys: Keys, asked: Asked, more: Mapping[str, str]) -> Given | str:
    """Let the person answer a request; returns the key where it was one of `more` (key -> what it does).

    Raises LeftError where the input ended.
    """
    questions = questions_of(asked)
    if not questions:
        return _ask_boundary(keys, more)
    answers: list[str | None] = []
    for number, question in enumerate(questions, 1):
        said = _ask_one(keys, question, f" {number}" if len(questions) > 1 else "", more)
        if isinstance(said, str):
            return said
        answers.append(said.text)
    return Given(answers=tuple(answers))


def _ask_boundary(keys: Keys, more: Mapping[str, str]) -> Given | str:
    key = keys.key(f"  {_ALLOW}{_choices(more)}: ", "".join([*_SCOPES, "d", *more]))
    if key in more:
        keys.tell(more[key])
        return key
    if key == "d":
        keys.tell("denied")
        return Given(decision="deny")
    keys.tell(_SAID[_SCOPES[key]])
    return Given(decision="allow", scope=_SCOPES[key])


def _ask_one(keys: Keys, question: Question, which: str, more: Mapping[str, str]) -> _Said | str:
    if not question.options:
        return _Said(keys.line(f"  answer{which} (empty: none; Ctrl-D: not now): ") or None)
    numbers = "".join(str(number) for number in range(1, len(question.options) + 1))
    own = {_WORDS: "in your own words", _NOTHING: "no answer", **more}
    key = keys.key(f"  answer{which}? [1-{numbers[-1]}]{_choices(own)}: ", "".join([*numbers, *own]))
    keys.tell(f"[{key}]" if key in numbers else own[key])
    if key in more:
        return key
    if key == _WORDS:
        return _Said(keys.line(f"  answer{which}: ") or None)
    return _Said(None if key == _NOTHING else question.options[int(key) - 1])


def _choices(named: Mapping[str, str]) -> str:
    return "".join(f"  [{key}] {what}" for key, what in named.items())
