"""Fragments of tool calls -> whole calls, tolerant of real providers' quirks.

Laws:
- A fragment belongs to the call of its `index`, else of its id, else to the last one. A new id together with a name
  begins a call even on a used index; an id without a name never does, since some servers mint one per fragment.
- Arguments are joined. Only where that gives no object are other readings tried: each fragment held all text so far,
  or the last one repeated the whole.
- An answer's arguments are held in memory up to a bound. Where it is passed, the longest call keeps how it
  begins and its length, and the answer is read on; one that is endless all the same is a CallOverflowError.
- Nothing is repaired: arguments that are no JSON object stay `raw` with `args` None, and no call gets `{}` by guess
  but one whose arguments are empty.
"""

from typing import Any

import msgspec

from maka.contracts.limits import ANSWER_CALL_BYTES_MAX, CALL_ARGUMENT_BYTES_MAX
from maka.contracts.model_ports import AssembledCall
from maka.edges.chunks import CallFragment
from maka.edges.loose_json import decode, is_mapping
from maka.edges.surrogates import mend, mend_values

_CALL_OVERHEAD_BYTES = 256
_NAMELESS = "unnamed"
_BEGINNING_CHARS = 8_000


class CallOverflowError(ValueError):
    """More call arguments in one answer than the limit."""


class _OpenCall:
    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.name = ""
        self.parts: list[str] = []
        self.size = 0
        self.held = 0
        self.too_long = False

    def add(self, fragment: CallFragment) -> int:
        """Take a fragment; returns the bytes that are held more for it."""
        self.id = self.id or fragment.id
        self._add_name(fragment.name)
        arguments = fragment.arguments
        if arguments is None or arguments == "":
            return 0
        part = arguments if isinstance(arguments, str) else msgspec.json.encode(mend_values(arguments)).decode()
        size = len(part) if part.isascii() else len(part.encode("utf-8", "surrogatepass"))
        self.size += size
        if self.too_long:
            return 0
        self.parts.append(part)
        self.held += size
        return size

    def shed(self) -> int:
        """Keep only how the arguments begin, from now on too; returns the bytes that are let go."""
        held, beginning = self.held, "".join(self.parts)[:_BEGINNING_CHARS]
        self.parts, self.held, self.too_long = [beginning], 0, True
        return held

    def _add_name(self, name: str) -> None:
        if name.startswith(self.name):
            self.name = name or self.name  # the first one, the same again, or all of it so far
        elif not self.parts:
            self.name += name

    def looks_whole(self) -> bool:
        return bool(self.parts) and self.parts[-1].endswith("}") and _object("".join(self.parts)) is not None

    def close(self, cut_by_limit: bool) -> AssembledCall:
        raw, args = (mend("".join(self.parts)), None) if self.too_long else self._read()
        if not raw.strip() and not cut_by_limit:
            args = {}
        return AssembledCall(
            provider_id=mend(self.id) or None,
            name=mend(self.name) or _NAMELESS,
            args=args,
            raw=raw,
            cut=cut_by_limit and args is None,
            too_long=self.size if self.too_long else None,
        )

    def _read(self) -> tuple[str, dict[str, Any] | None]:
        joined = mend("".join(self.parts))
        args = _object(joined)
        if args is None and len(self.parts) > 1:
            last = mend(self.parts[-1])
            if (found := _object(last)) is not None and (self._is_cumulative() or joined == last + last):
                return last, found
        return joined, args

    def _is_cumulative(self) -> bool:
        return all(late.startswith(early) for early, late in zip(self.parts, self.parts[1:], strict=False))


class CallAssembler:
    """The calls of one answer, in the order in which they began."""

    def __init__(self, bytes_max: int = CALL_ARGUMENT_BYTES_MAX, answer_bytes_max: int = ANSWER_CALL_BYTES_MAX) -> None:
        self._calls: list[_OpenCall] = []
        self._by_index: dict[int, _OpenCall] = {}
        self._room = bytes_max
        self._left = answer_bytes_max

    def add(self, fragment: CallFragment) -> None:
        """Take the next fragment. Raises CallOverflowError."""
        call = self._find(fragment)
        if call is None:
            call = _OpenCall(fragment.id)
            self._calls.append(call)
            self._room -= _CALL_OVERHEAD_BYTES
        if fragment.index is not None:
            self._by_index[fragment.index] = call
        before = call.size
        self._room -= call.add(fragment) + len(fragment.name)
        self._left -= call.size - before
        if self._room < 0:
            self._room += max(self._calls, key=lambda call: call.held).shed()
        if self._room < 0 or self._left < 0:
            raise CallOverflowError("the answer's tool calls are longer than Maka takes: ask for less at a time")

    def close(self, finish_reason: str) -> tuple[AssembledCall, ...]:
        """Return the whole calls. A call that `length` ended inside its arguments is marked as cut."""
        return tuple(call.close(finish_reason == "length") for call in self._calls)

    def _find(self, fragment: CallFragment) -> _OpenCall | None:
        """Return the call that a fragment goes on with, or None if it begins one."""
        if fragment.index is not None:
            current = self._by_index.get(fragment.index)
        elif fragment.id:
            current = next((call for call in self._calls if call.id == fragment.id), None)
            current = current or (self._last() if not fragment.name else None)
        else:
            current = self._last()
        if current is None or not fragment.name:
            return current
        if fragment.id:
            return current if current.id in ("", fragment.id) else None
        # A name without an id: the same name sent again, unless the call before it is whole and this has arguments.
        return None if fragment.arguments and current.looks_whole() else current

    def _last(self) -> _OpenCall | None:
        return self._calls[-1] if self._calls else None


def _object(raw: str) -> dict[str, Any] | None:
    """Return the object that a text is, exactly as the ledger will hold it (which knows no NaN)."""
    try:
        value = msgspec.json.decode(msgspec.json.encode(mend_values(decode(raw))))
    except (ValueError, RecursionError, OverflowError):
        return None
    return value if is_mapping(value) else None
