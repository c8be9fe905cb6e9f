"""PURE: a filter on system calls, for what neither mounts nor Landlock can deny.

Laws:
- Of sockets only the internet's (those with a network alone) and the kernel's own can be made. Two that are connected
  with one another are nobody else's, unless they are of a kind that can be pointed at anyone later.
- So are refused: io_uring, which could make others; kernel keyrings; the calls of other processor modes.
"""

import struct

Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, value."""

ARCHITECTURES = {
    "x86_64": (0xC000003E, 41, 53, (248, 249, 250, 425), {302: 0, 203: 0, 144: 0, 142: 0, 314: 0, 141: 1, 251: 1}),
    "aarch64": (0xC00000B7, 198, 199, (217, 218, 219, 425), {261: 0, 122: 0, 119: 0, 118: 0, 274: 0, 140: 1, 30: 1}),
}
"""The kernel's word for a processor, its numbers of `socket` and `socketpair`, what is refused, and what gives a
process limits: with the place of the argument that names it, where only 0, the caller, may stand."""

_LOAD, _EQUAL, _AT_LEAST, _AND, _ANSWER = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16
_ALLOW, _ERROR = 0x7FFF0000, 0x50000
_PERM, _ACCES, _NOSYS, _NETUNREACH = (_ERROR | number for number in (1, 13, 38, 101))
_UNIX, _INTERNET, _NETLINK = 1, (2, 10), 16
_KIND, _STREAM, _SEQPACKET = 0xF, 1, 5


def call_filter(machine: str, *, network: bool, alone: bool = False, unix: bool = False) -> bytes:
    """Return the filter as the kernel reads it; empty where none is known for a machine."""
    if machine not in ARCHITECTURES:
        return b""
    program = instructions(machine, network=network, alone=alone, unix=unix)
    return b"".join(struct.pack("HBBI", *one) for one in program)


def instructions(machine: str, *, network: bool, alone: bool = False, unix: bool = False) -> list[Instruction]:
    """Return the filter of a known machine.

    Who is `alone` sees no other processes, and may set the limits of what it sees. `unix` lets unix sockets be made.
    """
    architecture, socket, pair, refused, of_one = ARCHITECTURES[machine]
    program = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_ANSWER, 0, 0, _NOSYS)]
    program += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, 0x40000000), (_ANSWER, 0, 0, _NOSYS)]
    for number in refused:
        program += [(_EQUAL, 0, 1, number), (_ANSWER, 0, 0, _NOSYS)]
    for number, place in () if alone else of_one.items():
        program += _only(number, [(_LOAD, 0, 0, _ARGUMENT + 8 * place)], {0: _ALLOW}, _PERM)
    if not unix:
        kind = [(_LOAD, 0, 0, _ARGUMENT + 8), (_AND, 0, 0, _KIND)]
        program += _only(pair, kind, {_STREAM: _ALLOW, _SEQPACKET: _ALLOW}, _ACCES)
    families = {**dict.fromkeys(_INTERNET, _ALLOW if network else _NETUNREACH), _NETLINK: _ALLOW}
    program += _only(socket, [(_LOAD, 0, 0, _ARGUMENT)], families | ({_UNIX: _ALLOW} if unix else {}), _ACCES)
    return [*program, (_ANSWER, 0, 0, _ALLOW)]


def _only(number: int, value: list[Instruction], known: dict[int, int], other: int) -> list[Instruction]:
    """Answer one call by a value of it, and go on with all others: the number is held again then."""
    checks = [one for word, answer in known.items() for one in ((_EQUAL, 0, 1, word), (_ANSWER, 0, 0, answer))]
    body = [*value, *checks, (_ANSWER, 0, 0, other)]
    return [(_EQUAL, 0, len(body), number), *body]
