"""PURE: a filter on system calls, for what neither mounts nor Landlock can deny.

Laws:
- Of sockets only the internet's (those with a network alone) and the kernel's own can be made. Two that are connected
  with one another are nobody else's, unless they are of a kind that can be pointed at anyone later.
- So are refused: io_uring, which could make others; kernel keyrings; the calls of other processor modes.
- Who isn't alone may set no limits or priorities but its own, and shares no memory, semaphores or queues that have a
  number or a name for the whole machine.
"""

import struct

from msgspec import Struct

Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, value."""


class Architecture(Struct, frozen=True, kw_only=True):
    """The kernel's word for a processor, and its numbers of calls.

    `shared` are those of System V's memory, semaphores and queues and the opening of POSIX queues. Of `limits` the
    first argument names a process, of both priorities the second, after what kind of thing it names.
    """

    word: int
    socket: int
    pair: int
    refused: tuple[int, ...]
    shared: tuple[int, ...]
    limits: tuple[int, ...]
    priority: int
    io_priority: int


ARCHITECTURES = {
    "x86_64": Architecture(
        word=0xC000003E,
        socket=41,
        pair=53,
        refused=(248, 249, 250, 425),
        shared=(29, 30, 31, 64, 65, 66, 67, 68, 69, 70, 71, 220, 240, 241),
        limits=(302, 203, 144, 142, 314),
        priority=141,
        io_priority=251,
    ),
    "aarch64": Architecture(
        word=0xC00000B7,
        socket=198,
        pair=199,
        refused=(217, 218, 219, 425),
        shared=(180, 181, *range(186, 198)),
        limits=(261, 122, 119, 118, 274),
        priority=140,
        io_priority=30,
    ),
}

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
    its = ARCHITECTURES[machine]
    program = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, its.word), (_ANSWER, 0, 0, _NOSYS)]
    program += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, 0x40000000), (_ANSWER, 0, 0, _NOSYS)]
    for number in its.refused if alone else (*its.refused, *its.shared):
        program += [(_EQUAL, 0, 1, number), (_ANSWER, 0, 0, _NOSYS)]
    if not alone:
        for number in its.limits:
            program += _only(number, [(_LOAD, 0, 0, _ARGUMENT)], {0: _ALLOW}, _PERM)
        for number, kind_of_process in ((its.priority, 0), (its.io_priority, 1)):
            # The second argument is looked at only where the first says that it is a process.
            kind = [(_LOAD, 0, 0, _ARGUMENT), (_EQUAL, 1, 0, kind_of_process), (_ANSWER, 0, 0, _PERM)]
            program += _only(number, [*kind, (_LOAD, 0, 0, _ARGUMENT + 8)], {0: _ALLOW}, _PERM)
    if not unix:
        kind = [(_LOAD, 0, 0, _ARGUMENT + 8), (_AND, 0, 0, _KIND)]
        program += _only(its.pair, kind, {_STREAM: _ALLOW, _SEQPACKET: _ALLOW}, _ACCES)
    families = {**dict.fromkeys(_INTERNET, _ALLOW if network else _NETUNREACH), _NETLINK: _ALLOW}
    program += _only(its.socket, [(_LOAD, 0, 0, _ARGUMENT)], families | ({_UNIX: _ALLOW} if unix else {}), _ACCES)
    return [*program, (_ANSWER, 0, 0, _ALLOW)]


def _only(number: int, value: list[Instruction], known: dict[int, int], other: int) -> list[Instruction]:
    """Answer one call by a value of it, and go on with all others: the number is held again then."""
    checks = [one for word, answer in known.items() for one in ((_EQUAL, 0, 1, word), (_ANSWER, 0, 0, answer))]
    body = [*value, *checks, (_ANSWER, 0, 0, other)]
    return [(_EQUAL, 0, len(body), number), *body]
