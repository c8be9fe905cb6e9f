"""What a boundary allows, as tables."""

import os
from itertools import product
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maka.contracts.boundary import Boundary, Expansion, FileEntry, Profile
from maka.contracts.boundary import covers as expansion_covers
from maka.contracts.limits import EXPANSION_BYTES_MAX, EXPANSION_ENTRIES_MAX, EXPANSION_PATH_CHARS_MAX
from maka.contracts.tool_ports import BoundaryNeed
from maka.tools.expansion import ExpansionError, expansion_of, normalise
from maka.tools.policy import Found, Ground, covers, is_under, judge, needed, protected_in, sandbox_policy
from tests.tools.harness import boundary

Access = Literal["read", "write"]
WS = Path("/ws")
GROUND = Ground(own=("/h/state", "/ws/own"), secrets=("/h/.ssh", "/ws/.netrc"))


def entry(path: str, access: Access = "write", scope: Literal["exact", "subtree"] = "subtree") -> FileEntry:
    return FileEntry(path=path, access=access, scope=scope)


@pytest.mark.parametrize(
    ("profile", "path", "access", "allowed"),
    [
        (Profile.ASK, "/ws", "read", True),
        (Profile.ASK, "/ws/a/b", "write", True),
        (Profile.ASK, "/wsx", "read", False),
        (Profile.ASK, "/", "read", False),
        (Profile.ASK, "/ws/a/.envrc", "read", True),
        (Profile.ASK, "/ws/a/.envrc", "write", False),
        (Profile.ASK, "/ws/.vscode/deep/x", "write", False),
        (Profile.ASK, "/ws/.git", "write", False),
        (Profile.ASK, "/ws/.git/index", "write", True),
        (Profile.ASK, "/ws/.git/refs/heads/main", "write", True),
        (Profile.ASK, "/ws/.git/config", "write", False),
        (Profile.ASK, "/ws/lib/.git/hooks/x", "write", False),
        (Profile.ASK, "/ws/.git/modules/a/config", "write", False),
        (Profile.ASK, "/ws/.gitignore", "write", True),
        (Profile.ASK, "/ws/own/x", "read", False),
        (Profile.ASK, "/ws/.netrc", "read", False),
        (Profile.EXPLORE, "/ws/a", "read", True),
        (Profile.EXPLORE, "/ws/a", "write", False),
        (Profile.BYPASS, "/h/state", "write", True),
    ],
)
def test_what_a_profile_allows(profile: Profile, path: str, access: Access, allowed: bool) -> None:
    assert covers(boundary(WS, profile), path, access, GROUND) is allowed


@pytest.mark.parametrize(
    ("granted", "path", "access", "allowed"),
    [
        (entry("/o"), "/o/x", "write", True),
        (entry("/o"), "/o/x", "read", True),
        (entry("/o", "read"), "/o/x", "write", False),
        (entry("/o/x", "write", "exact"), "/o/x", "write", True),
        (entry("/o/x", "write", "exact"), "/o/x/y", "write", False),
        (entry("/h"), "/h/.ssh/id", "read", False),
        (entry("/h/.ssh"), "/h/.ssh/id", "read", True),
        (entry("/h/.ssh/id", "read", "exact"), "/h/.ssh/id2", "read", False),
        (entry("/h"), "/h/state/x", "read", False),
        (entry("/h/state"), "/h/state/x", "read", False),
        (entry("/"), "/ws/.git/config", "write", False),
        (entry("/ws/.git/config", "write", "exact"), "/ws/.git/config", "write", True),
        (entry("/ws/.vscode"), "/ws/.vscode/x", "write", True),
        (entry("/ws/.vscode"), "/ws/.vscode/.envrc", "write", False),
    ],
)
def test_what_a_grant_allows(granted: FileEntry, path: str, access: Access, allowed: bool) -> None:
    assert covers(boundary(WS, Profile.ASK, granted), path, access, GROUND) is allowed


def test_a_workspace_below_a_protected_name_is_a_workspace() -> None:
    inside = boundary(Path("/h/.vscode/ext"))
    assert covers(inside, "/h/.vscode/ext/a", "write")
    assert not covers(inside, "/h/.vscode/ext/.idea/a", "write")


def test_a_need_names_the_smallest_expansion() -> None:
    need = judge(boundary(WS), "/o/x", "write", GROUND)
    assert need == BoundaryNeed(expansion=needed("/o/x", "write"), reason="it is outside the workspace")
    own = judge(boundary(WS), "/h/state/x", "read", GROUND)
    assert own is not None
    assert own.expansion is None


paths = st.lists(st.sampled_from(["a", "b", ".git", "config", ".envrc", "hooks", ".ssh"]), max_size=5).map(
    lambda parts: "/" + "/".join(parts)
)


@given(st.lists(st.tuples(paths, st.sampled_from(["read", "write"])), max_size=3), paths, st.booleans())
def test_what_is_needed_is_enough_and_no_grant_takes_away(
    granted: list[tuple[str, Access]], path: str, write: bool
) -> None:
    access: Access = "write" if write else "read"
    ground = Ground(own=("/a/b",), secrets=("/b/.ssh",))
    before = boundary(Path("/a"), Profile.ASK, *(entry(base, kind) for base, kind in granted))
    need = judge(before, path, access, ground)
    if need is None or need.expansion is None:
        return
    entries = tuple(one for grant in before.grants for one in grant.expansion.filesystem)
    assert covers(boundary(Path("/a"), Profile.ASK, *entries, *need.expansion.filesystem), path, access, ground)


@pytest.mark.parametrize(
    ("path", "found"),
    [("/a/b", None), ("/a/.git/config/x", "/a/.git/config"), ("/.envrc", "/.envrc"), ("/a/.git", "/a/.git")],
)
def test_protected_elements(path: str, found: str | None) -> None:
    assert protected_in(path) == found


def test_a_sandbox_is_told_what_is_there() -> None:
    found = Found(
        protected=("/ws/.envrc", "/ws/.git/config"),
        pinned=("/ws/.git",),
        git=("/repo/.git",),
        hidden=("/h/state", "/h/.ssh"),
        hidden_files=("/ws/.netrc",),
        missing=(entry("/gone"),),
    )
    session = boundary(
        WS, Profile.ASK, entry("/gone"), entry("/h/.ssh", "read"), entry("/ws/.envrc", "write", "exact"), network=True
    )
    policy = sandbox_policy(session, "/ws", found, GROUND)
    assert policy.writable == ("/ws", "/repo/.git"), "what is granted inside of another one is no mount of its own"
    assert policy.readable == ("/h/.ssh",)
    assert policy.protected == ("/ws/.git/config",)
    assert (policy.hidden, policy.hidden_files) == (("/h/state",), ("/ws/.netrc",))
    assert policy.network
    explore = sandbox_policy(boundary(WS, Profile.EXPLORE), "/ws", found, GROUND)
    assert (explore.writable, explore.readable, explore.network) == ((), ("/ws",), False)


# -- expansions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/proc", "/proc/1/environ", "/sys/kernel", "/dev", "/dev/null"])
@pytest.mark.parametrize("access", ["read", "write"])
def test_what_is_the_kernels_is_never_granted(path: str, access: Access) -> None:
    asked = Expansion(filesystem=(entry(path, access, "subtree" if os.path.isdir(path) else "exact"),))
    with pytest.raises(ExpansionError, match=r"requires_bypass: .* is the kernel's"):
        normalise(asked, "/", Ground())


def test_paths_become_real(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    asked = Expansion(
        filesystem=(
            entry("link/./new", "write", "exact"),
            entry("real", "read"),
            entry("link/../real/x", "read", "exact"),
        )
    )
    real = str(tmp_path.resolve() / "real")
    assert normalise(asked, str(tmp_path), Ground()) == Expansion(
        filesystem=(entry(f"{real}/new", "write", "exact"), entry(real, "read"))
    )


def test_what_a_later_entry_covers_is_dropped(tmp_path: Path) -> None:
    asked = Expansion(filesystem=(entry("a", "read", "exact"), entry(".", "write")), network=True)
    found = normalise(asked, str(tmp_path), Ground())
    assert found == Expansion(filesystem=(entry(str(tmp_path.resolve())),), network=True)
    assert expansion_covers(found, asked) is False  # relative paths are covered by nothing
    assert normalise(found, "/", Ground()) == found


def test_what_a_wider_entry_does_not_open_is_kept(tmp_path: Path) -> None:
    """A secret, and a protected name, have to be granted as such, beside what is around them."""
    home = tmp_path.resolve()
    for name in (".ssh", "ws/.git/hooks"):
        (home / name).mkdir(parents=True)
    ground = Ground(secrets=(f"{home}/.ssh",))
    key = entry(f"{home}/.ssh/id", "read", "exact")
    hooks = entry(f"{home}/ws/.git/hooks", "write")
    all_ssh = entry(f"{home}/.ssh", "read")
    for both in ((entry(str(home)), key, hooks), (key, hooks, entry(str(home)))):
        assert set(normalise(Expansion(filesystem=both), "/", ground).filesystem) == set(both)
    assert normalise(Expansion(filesystem=(key, all_ssh)), "/", ground).filesystem == (all_ssh,)


def test_refusals_have_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ground = Ground(own=(str(tmp_path.resolve() / "own"),))
    many = tuple(entry(f"f{number}", "read", "exact") for number in range(EXPANSION_ENTRIES_MAX + 1))
    long = "/".join(["d" * 200] * 20)
    cases: list[tuple[Expansion, str]] = [
        (Expansion(), "empty_expansion"),
        (Expansion(filesystem=many), "too_many_entries"),
        (Expansion(filesystem=(entry("x" * (EXPANSION_PATH_CHARS_MAX + 1)),)), "path_too_long"),
        (Expansion(filesystem=(entry("file"),)), "invalid_entry"),
        (Expansion(filesystem=(entry("gone"),)), "invalid_entry"),
        (Expansion(filesystem=(entry(".", "read", "exact"),)), "invalid_entry"),
        (Expansion(filesystem=(entry("a\0b", "read", "exact"),)), "invalid_path"),
        (Expansion(filesystem=(entry("", "read", "exact"),)), "invalid_path"),
        (Expansion(filesystem=(entry("own/x", "read", "exact"),)), "requires_bypass"),
        (Expansion(filesystem=(entry("/"),)), "requires_bypass"),
        (
            Expansion(filesystem=tuple(entry(f"{long}/{n}", "read", "exact") for n in range(EXPANSION_ENTRIES_MAX))),
            "payload_too_large",
        ),
    ]
    for asked, reason in cases:
        with pytest.raises(ExpansionError) as caught:
            normalise(asked, str(tmp_path), ground)
        assert caught.value.reason == reason


def test_what_comes_from_outside_is_closed() -> None:
    raw = {"filesystem": [{"path": "a", "access": "read", "scope": "exact"}]}
    assert expansion_of(raw) == Expansion(filesystem=(entry("a", "read", "exact"),))
    cases: list[tuple[object, str]] = [
        ({"files": []}, "invalid_expansion"),
        ({"filesystem": [{"path": "a", "access": "run", "scope": "exact"}]}, "invalid_expansion"),
        ([], "invalid_expansion"),
        ({"network": "x" * EXPANSION_BYTES_MAX}, "payload_too_large"),
    ]
    for wrong, reason in cases:
        with pytest.raises(ExpansionError) as caught:
            expansion_of(wrong)
        assert caught.value.reason == reason


def test_a_boundary_without_a_workspace_allows_nothing() -> None:
    assert not covers(Boundary(), "/ws/a", "read")


PATHS = st.sampled_from([f"/{'/'.join(parts)}" for size in (1, 2, 3) for parts in product("ab", repeat=size)])


@settings(max_examples=1_000)
@given(workspace=PATHS, granted=st.lists(PATHS, max_size=3), own=st.sets(PATHS, max_size=2), secrets=st.sets(PATHS))
def test_what_a_sandbox_is_told_hides_what_file_tools_refuse(
    workspace: str, granted: list[str], own: set[str], secrets: set[str]
) -> None:
    """Of the paths that hold another one the innermost decides, as mounts do; of two for the same path the stricter."""
    ground = Ground(own=tuple(own), secrets=tuple(secrets))
    entries = [entry(path, access="read") for path in granted]
    wide = boundary(Path(workspace), Profile.ASK, *entries)
    told = sandbox_policy(wide, workspace, Found(hidden=(*own, *secrets)), ground)
    for path in (*own, *secrets, *(f"{one}/x" for one in (*own, *secrets))):
        ways = {**dict.fromkeys((*told.readable, *told.writable), True), **dict.fromkeys(told.hidden, False)}
        innermost = max((base for base in ways if is_under(path, base)), key=len, default="")
        is_shown = ways.get(innermost, False)
        assert not (is_shown and any(is_under(path, one) for one in own)), (told, path)
        assert is_shown is covers(wide, path, "read", ground), (told, path)
