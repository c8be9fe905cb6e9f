"""PURE: what a model wrote that is too long for a fact: what is kept of it, and what the model is told.

Laws: no answer of a model makes a fact that the ledger refuses; where something was cut, the fact says so and how long
it was. Words keep head and tail and are whole in a blob; a call with arguments that long is never run, since arguments
live in facts alone.
"""

import re

from maka.contracts.codec import canonical_json, hash_hex
from maka.contracts.content import BlobRef
from maka.contracts.limits import CALL_ARGUMENT_BYTES_MAX, CALL_FACT_BYTES_MAX, EVENT_BYTES_MAX
from projections.shorten import head_and_tail

NAME_CHARS_MAX = 200
ARGUMENTS_KEPT_CHARS = 4_000
WORDS_BYTES_MAX = EVENT_BYTES_MAX - (64 << 10)
"""What a text may take in its fact; the rest is for ids."""
_BYTES_PER_CHAR_MAX = 6
"""A control character is `\\u0001` in JSON."""
_TOO_LONG = re.compile(r"\[arguments of ([0-9,]+) bytes")


def name(given: str) -> str:
    """Return a name or an id of a provider as a fact holds it."""
    return head_and_tail(given, NAME_CHARS_MAX)


def arguments(raw: str, size_bytes: int) -> str:
    """Return what a fact keeps of arguments that are too long: their size, then how they begin."""
    note = f"[arguments of {size_bytes:,} bytes, too long to be kept: they begin as follows] "
    return note + raw[:ARGUMENTS_KEPT_CHARS]


def refusal(tool: str, malformed: str) -> str | None:
    """Return the result of a call whose arguments were too long; None for those that are no JSON object."""
    if (found := _TOO_LONG.match(malformed)) is None:
        return None
    most = f"{CALL_FACT_BYTES_MAX:,}"
    if int(found[1].replace(",", "")) <= CALL_FACT_BYTES_MAX:
        most = f"{CALL_ARGUMENT_BYTES_MAX:,} of all calls of one answer together"
    return (
        f"not run: the arguments of {tool} have {found[1]} bytes, and at most {most} are taken. Do it in parts: of a "
        "file, Write the beginning, then put in the rest with Edit or Bash, piece by piece"
    )


def words(text: str) -> tuple[str, BlobRef | None, tuple[bytes, ...]]:
    """Return what a fact keeps of a model's words, the name of the whole where that is more, and what to store."""
    if len(text) * _BYTES_PER_CHAR_MAX <= WORDS_BYTES_MAX or _size_bytes(text) <= WORDS_BYTES_MAX:
        return text, None, ()
    whole = text.encode()
    # The same share of a text costs about the same everywhere; where it doesn't, less is kept.
    keep = len(text) * WORDS_BYTES_MAX // _size_bytes(text)
    while _size_bytes(kept := head_and_tail(text, keep)) > WORDS_BYTES_MAX:
        keep = keep * 3 // 4
    return kept, BlobRef(sha256=hash_hex(whole), size_bytes=len(whole)), (whole,)


def _size_bytes(text: str) -> int:
    return len(canonical_json(text))
