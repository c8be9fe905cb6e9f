"""What a change of a text did, for people: a unified diff and its counts, in bounded time.

Laws:
- The time is bounded by the size of the texts. Equal beginnings and ends are set aside first; what is left is only
  compared line by line where it is small, since the comparison is quadratic.
- No name makes a line of its own: `git apply` takes each header for the one file that it is of.
- An empty file that comes or goes has no lines to show it by, so it has the header in which git says that by itself.
"""

from difflib import SequenceMatcher
from itertools import takewhile

from msgspec import Struct

from maka.contracts.limits import DIFF_BYTES_MAX

CONTEXT = 3
COMPARED_MAX = 1_000_000
"""The largest product of line counts that is compared line by line."""

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
Opcode = tuple[str, int, int, int, int]


class Diff(Struct, frozen=True, kw_only=True):
    """`text` is None where the diff would be too large."""

    text: str | None
    added: int
    removed: int

    @property
    def counts(self) -> str:
        return f"+{self.added} -{self.removed}"


def unified(path: str, before: bytes | None, after: bytes | None) -> Diff:
    """Compare two contents of a file; `before` is None for a new one, `after` for one that is removed."""
    old, new = _lines(before or b""), _lines(after or b"")
    changes = _changes(old, new)
    added = sum(j2 - j1 for _, _, _, j1, j2 in changes)
    removed = sum(i2 - i1 for _, i1, i2, _, _ in changes)
    if len(before or b"") + len(after or b"") > 2 * DIFF_BYTES_MAX and added + removed > 10_000:
        return Diff(text=None, added=added, removed=removed)
    if before != after and not (before or after):
        return Diff(text=_of_empty(path, "new" if before is None else "deleted"), added=0, removed=0)
    old_name = "/dev/null" if before is None else _name(f"a/{path}")
    new_name = "/dev/null" if after is None else _name(f"b/{path}")
    head = f"--- {old_name}\n+++ {new_name}\n"
    text = head + "".join(_hunk(hunk, old, new) for hunk in _hunks(changes))
    too_large = len(text) > DIFF_BYTES_MAX
    return Diff(text=None if too_large else text, added=added, removed=removed)


def _of_empty(path: str, how: str) -> str:
    """Return the header of a file without a line. A blank line ends it: else git takes the next file's for its own."""
    old, new = (_name(f"{side}/{path}").removesuffix("\t") for side in "ab")
    return f"diff --git {old} {new}\n{how} file mode 100644\n\n"


def _name(path: str) -> str:
    """Return a name as git writes it in a header: in quotes where it has a sign that would end it or isn't seen.

    Letters of all alphabets stay as they are. After a blank a tab says where the name ends: else a name that ends like
    a date would be cut there.
    """
    quoted = "".join(map(_quoted, path))
    if quoted != path:
        return f'"{quoted}"'
    return f"{path}\t" if " " in path else path


def _quoted(sign: str) -> str:
    if sign in _ESCAPES:
        return _ESCAPES[sign]
    if sign.isprintable():
        return sign
    return "".join(f"\\{byte:03o}" for byte in sign.encode("utf-8", "surrogatepass"))


def _lines(data: bytes) -> list[str]:
    """Lines with their ends; the last one may lack it."""
    parts = data.decode("utf-8", "replace").split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _changes(old: list[str], new: list[str]) -> list[Opcode]:
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    rest = min(len(old), len(new)) - same
    tail = 0
    while tail < rest and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    a, b = old[same : len(old) - tail], new[same : len(new) - tail]
    if not a and not b:
        return []
    if len(a) * len(b) > COMPARED_MAX:
        return [("replace", same, same + len(a), same, same + len(b))]
    codes = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return [(tag, i1 + same, i2 + same, j1 + same, j2 + same) for tag, i1, i2, j1, j2 in codes if tag != "equal"]


def _hunks(changes: list[Opcode]) -> list[list[Opcode]]:
    hunks: list[list[Opcode]] = []
    for change in changes:
        if hunks and change[1] - hunks[-1][-1][2] <= 2 * CONTEXT:
            hunks[-1].append(change)
        else:
            hunks.append([change])
    return hunks


def _hunk(changes: list[Opcode], old: list[str], new: list[str]) -> str:
    lead = min(CONTEXT, changes[0][1])
    trail = min(CONTEXT, len(old) - changes[-1][2])
    first_old, last_old = changes[0][1] - lead, changes[-1][2] + trail
    first_new, last_new = changes[0][3] - lead, changes[-1][4] + trail
    out = [f"@@ -{_span(first_old, last_old)} +{_span(first_new, last_new)} @@\n"]
    at = first_old
    for _, i1, i2, j1, j2 in changes:
        out += [_line(" ", line) for line in old[at:i1]]
        out += [_line("-", line) for line in old[i1:i2]]
        out += [_line("+", line) for line in new[j1:j2]]
        at = i2
    out += [_line(" ", line) for line in old[at:last_old]]
    return "".join(out)


def _span(first: int, last: int) -> str:
    count = last - first
    return f"{first + 1 if count else first},{count}"


def _line(mark: str, line: str) -> str:
    return mark + line if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
