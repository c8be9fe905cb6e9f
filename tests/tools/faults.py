"""Faults that are planted to see that the property of `test_no_escape` can fail: each takes one barrier away."""

import os
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.boundary import Boundary, Profile
from maka.contracts.process_ports import Launch
from maka.contracts.sandbox_ports import Sandbox, SandboxPolicy
from maka.tools import boundary, files, guard, inside, policy, repositories, search, walk
from maka.tools.policy import Ground

Plant = Callable[[pytest.MonkeyPatch, Sandbox], Sandbox]
Way = Callable[[pytest.MonkeyPatch], None]


class Fault(Struct, frozen=True):
    """A fault, in which sandbox and in which stories it shows."""

    name: str
    stories: Literal["files", "commands"]
    box: str
    plant: Plant

    @property
    def title(self) -> str:
        return f"{self.name} ({self.box})" if self.stories == "commands" or "search" in self.name else self.name


class Changed:
    """A sandbox that is told, or tells, something else."""

    missing = None
    closes_beside_hidden = False

    def __init__(
        self, inner: Sandbox, policy: Callable[[SandboxPolicy], SandboxPolicy], launch: Callable[[Launch], Launch]
    ) -> None:
        self.name = inner.name
        self._inner = inner
        self._policy = policy
        self._launch = launch

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy, env: Mapping[str, str]) -> Launch:
        return self._launch(self._inner.wrap(argv, self._policy(policy), env))


def same(launch: Launch) -> Launch:
    return launch


# -- file tools ---------------------------------------------------------------------------------------------------


def links_followed(*flags: tuple[Any, str]) -> Way:
    def plant(patch: pytest.MonkeyPatch) -> None:
        for module, name in flags:
            patch.setattr(module, name, getattr(module, name) & ~os.O_NOFOLLOW)

    return plant


def files_not_compared(patch: pytest.MonkeyPatch) -> None:
    """Let a file be what its name leads to: it isn't compared with what stood there, nor kept from being a link."""
    links_followed((boundary, "_READ"))(patch)

    def follows(path: str, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        del follow_symlinks
        return os.stat(path, dir_fd=dir_fd)

    def opens(*args: Any, **kwargs: Any) -> int:
        return os.open(*args, **kwargs)  # as it is at that moment: the racer stands before it

    patch.setattr(boundary, "os", SimpleNamespace(**{**vars(os), "stat": follows, "open": opens}))


def also_as(change: Callable[[Boundary], Boundary]) -> Way:
    """Allow what another boundary would allow, too."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = policy._permissions  # pyright: ignore[reportPrivateUsage]

        def wrong(one: Boundary) -> Iterator[Any]:
            yield from right(one)
            yield from right(change(one))

        patch.setattr(policy, "_permissions", wrong)

    return plant


def siblings_allowed(patch: pytest.MonkeyPatch) -> None:
    def under(path: str, base: str) -> bool:
        return path.startswith(base)

    patch.setattr(policy, "is_under", under)


def nothing_protected(patch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        return None

    def nowhere(*_: object) -> tuple[str, ...]:
        return ()

    patch.setattr(policy, "protected_in", none)
    patch.setattr(boundary, "led_to", nowhere)


def links_to_protected(patch: pytest.MonkeyPatch) -> None:
    """Judge a path by its name alone."""

    def named(path: str, cwd: str) -> str:
        return os.path.normpath(os.path.join(cwd, path))

    patch.setattr(boundary, "resolved", named)
    links_followed((boundary, "_READ"), (boundary, "_FOLDER"), (boundary, "_STEP"))(patch)


def no_secrets(patch: pytest.MonkeyPatch) -> None:
    right = policy.judge

    def wrong(one: Boundary, path: str, access: policy.Access, ground: Ground, led_to: Any = ()) -> Any:
        return right(one, path, access, replace(ground, secrets=()), led_to)

    patch.setattr(boundary, "judge", wrong)


def searched_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    def no_look(start: search.Start) -> None:
        del start

    patch.setattr(search.Start, "must_be_there", no_look)


def moved_by_path(patch: pytest.MonkeyPatch, inner: Sandbox) -> Sandbox:
    """Move what was planted aside by its path, whatever its folder has turned into."""

    def wrong(path: str) -> None:
        os.stat(path, follow_symlinks=False)
        os.rename(path, f"{path}{policy.ASIDE}-1")

    def always(_: str) -> bool:
        return True

    def followed(folder: str, until_s: float) -> tuple[list[tuple[str, repositories.Kind]], bool]:
        return repositories.kinds_in(folder), True

    patch.setattr(guard, "_move_aside", wrong)
    # The walls in front of this one: what a link leads to is neither walked through nor judged.
    patch.setattr(inside, "_is_in_its_folder", always)
    patch.setattr(walk, "_is_itself", os.path.isdir)
    patch.setattr(walk, "kinds_exactly_in", followed)
    return inner


def of_files(name: str, way: Way) -> Fault:
    def plant(patch: pytest.MonkeyPatch, box: Sandbox) -> Sandbox:
        way(patch)
        return box

    return Fault(name, "files", "bubblewrap", plant)


def of_searches(name: str, box: str, way: Way | None = None) -> Fault:
    def everything(told: SandboxPolicy) -> SandboxPolicy:
        return replace(told, reads_only=False)

    def plant(patch: pytest.MonkeyPatch, inner: Sandbox) -> Sandbox:
        if way is not None:
            way(patch)
        return Changed(inner, everything, same)

    return Fault(name, "files", box, plant)


# -- sandboxes ----------------------------------------------------------------------------------------------------


def of_policy(name: str, box: str, change: Callable[[SandboxPolicy], SandboxPolicy]) -> Fault:
    return Fault(name, "commands", box, lambda _, inner: Changed(inner, change, same))


def root_writable(_: pytest.MonkeyPatch, inner: Sandbox) -> Sandbox:
    def wrong(launch: Launch) -> Launch:
        right, *rest = launch.inputs
        assert b"--ro-bind\0/\0/" in right
        return replace(launch, inputs=(right.replace(b"--ro-bind\0/\0/", b"--bind\0/\0/"), *rest))

    box: Any = copy(inner)
    box._wall = None  # the second one holds alone
    return Changed(box, lambda told: told, wrong)


def all_rights(_: pytest.MonkeyPatch, inner: Sandbox) -> Sandbox:
    box: Any = copy(inner)
    begin = "    handled = _HANDLED.get(abi, _HANDLED_NOW)\n"
    assert begin in box._shim
    box._shim = box._shim.replace(begin, f"    return\n{begin}")
    found: Sandbox = box
    return found


def _unprotected(told: SandboxPolicy) -> SandboxPolicy:
    return replace(told, protected=(), pinned=())


def _unhidden(told: SandboxPolicy) -> SandboxPolicy:
    return replace(told, hidden=(), hidden_files=())


def _around(told: SandboxPolicy) -> SandboxPolicy:
    return replace(told, writable=(*told.writable, os.path.dirname(told.cwd)))


def _what_is_read(told: SandboxPolicy) -> SandboxPolicy:
    return replace(told, writable=(*told.writable, *told.readable), readable=())


_FLAGS = ((boundary, "_READ"), (boundary, "_FOLDER"), (boundary, "_STEP"), (files, "_NEW"))
_CHANGES = (
    ("nothing is protected", _unprotected),
    ("nothing is hidden", _unhidden),
    ("the parent is writable", _around),
    ("what may be read may be written", _what_is_read),
)
FAULTS = (
    of_files("O_NOFOLLOW is gone", links_followed(*_FLAGS)),
    of_files("O_NOFOLLOW is gone from the steps to a folder", links_followed((boundary, "_STEP"))),
    of_files("O_NOFOLLOW is gone from a file's folder", links_followed((boundary, "_FOLDER"))),
    of_files("no identity check of files", files_not_compared),
    of_files("paths are judged by name", links_to_protected),
    of_files("explore may write", also_as(lambda one: replace(one, profile=Profile.ASK))),
    of_files("the parent is allowed", also_as(lambda one: replace(one, workspace=os.path.dirname(one.workspace)))),
    of_files("siblings are allowed", siblings_allowed),
    of_files("nothing is protected", nothing_protected),
    of_files("no secrets", no_secrets),
    *(of_searches("a search may read all", box) for box in ("bubblewrap", "landlock", "landlock-no-mounts")),
    of_searches("no identity check of a search that may read all", "bubblewrap", searched_is_not_compared),
    *(Fault("moved aside by path", "commands", box, moved_by_path) for box in ("bubblewrap", "landlock-no-mounts")),
    Fault("the root is bound writable", "commands", "bubblewrap", root_writable),
    *(Fault("all rights", "commands", box, all_rights) for box in ("landlock", "landlock-no-mounts")),
    *(of_policy(name, box, change) for name, change in _CHANGES for box in ("bubblewrap", "landlock-no-mounts")),
)
