"""What a sandbox denied is told with what would allow it: real commands, and the same again once that is granted."""

import os
from pathlib import Path
from typing import Literal

import pytest

from maka.contracts.boundary import Expansion, FileEntry, Profile
from maka.contracts.content import Outcome
from maka.contracts.sandbox_ports import Sandbox
from maka.edges.processes import AsyncProcesses
from maka.tools.policy import Ground, needed
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.denied import (
    HOOKS,
    OUT,
    entries_of,
    filled,
    granted,
    needs,
    read,
    there_and_back,
    write,
)
from tests.tools.harness import Bench, boundary

pytestmark = pytest.mark.one_sandbox


@pytest.fixture
def bench(denying: Bench) -> Bench:
    return denying


AGENTS = [write("WS/AGENTS.md", "exact")]
CONFIG = [write("WS/.git/config", "exact")]
EVERYWHERE: list[tuple[str, list[FileEntry]]] = [
    ("echo x > .git/hooks/x", HOOKS),
    ("touch .git/hooks/x", HOOKS),
    ("echo x > '.git/hooks/my höok'", HOOKS),
    ("cp a .git/hooks/b", HOOKS),
    ("install -m 755 a .git/hooks/pre-commit", HOOKS),
    ("PYTHON -c \"open('.git/hooks/x', 'w')\"", HOOKS),
    ("node -e \"require('fs').writeFileSync('.git/hooks/x', 'a')\"", HOOKS),
    ("echo x > AGENTS.md", AGENTS),
    ("cp a AGENTS.md", AGENTS),
    ("dd if=a of=AGENTS.md", AGENTS),
    ("echo x >> .git/config", CONFIG),
    ("touch OUT/x", OUT),
    ("touch 'OUT/d e/x y'", [write("OUT/d e")]),
    ("touch OUT/dé/ü", [write("OUT/dé")]),
    ("touch 'OUT/d e/x' OUT/dé/x", [write("OUT/dé"), write("OUT/d e")]),
    ("cp a d/f OUT", OUT),
    ("cd OUT && touch z", OUT),
    ("cd way; cd dé; echo x > z", [write("OUT/dé")]),
    ("echo x > way/y", OUT),
    ("echo x >> wayf", [write("OUT/notes", "exact")]),
    ("sh -c 'echo x > OUT/notes'", [write("OUT/notes", "exact")]),
    ("rm OUT/notes", OUT),
    ("mv OUT/notes OUT/n2", OUT),
    ("sed -i s/n/m/ OUT/notes", OUT),
    ("ln -s a OUT/l", OUT),
    ("mkdir -p OUT/new/deep", OUT),
    ("find OUT -name notes -delete", OUT),
    ("tar cf OUT/x.tar a", OUT),
    ("curl -o OUT/x file:///etc/hostname", OUT),
    ('perl -e \'open(my $f, ">", "OUT/n") or die "Cannot open OUT/n: $!"\'', OUT),
    ("gcc -x c /dev/null -c -o OUT/m.o", OUT),
    ("cat HOME/.ssh/id", [read("HOME/.ssh/id")]),
    ("cat ~/.netrc", [read("HOME/.netrc")]),
    ("echo x > HOME/notes", [write("HOME/notes", "exact")]),
]


@pytest.mark.parametrize(("command", "entries"), EVERYWHERE)
def test_what_is_named_lets_the_command_work(bench: Bench, command: str, entries: list[FileEntry]) -> None:
    there_and_back(bench, command, *entries_of(entries, bench))


HELD: list[tuple[str, list[FileEntry]]] = [
    ("git config x.y z", CONFIG),
    ("git remote add o /x", CONFIG),
    ("sed -i s/a/b/ .git/config", CONFIG),
    ("sed -i s/e/b/ AGENTS.md", AGENTS),
    ("mv AGENTS.md b", AGENTS),
    ("rm AGENTS.md", AGENTS),
    ("PYTHON -c \"import os; os.rename('a', 'AGENTS.md')\"", AGENTS),
    ("PYTHON -c \"import os; os.remove('AGENTS.md')\"", AGENTS),
    ("node -e \"require('fs').rmSync('AGENTS.md')\"", AGENTS),
    ("rm -r .git/hooks", HOOKS),
]


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
@pytest.mark.parametrize(("command", "entries"), HELD)
def test_a_protected_file_that_was_granted_can_be_replaced(
    bench: Bench, command: str, entries: list[FileEntry]
) -> None:
    """While it isn't, a mount holds it: no such file goes away, whoever asks (EBUSY)."""
    there_and_back(bench, command, *entries_of(entries, bench))


@pytest.mark.parametrize("sandbox", ["landlock-no-mounts"], indirect=True)
@pytest.mark.parametrize(
    "command",
    ["git config x.y z", "sed -i s/e/b/ AGENTS.md", "mv AGENTS.md b", "rm AGENTS.md", "touch new", "mv a OUT/a"],
)
def test_no_expansion_opens_a_folder_that_is_closed_for_names(bench: Bench, command: str) -> None:
    result = bench.run("Bash", command=filled(command, bench))
    assert needs(result) is None
    assert "requires_bypass" in result.text and "closes such a folder" in result.text


@pytest.mark.parametrize("command", ["touch BESIDE/x", "rm BESIDE/notes", "mkdir BESIDE/d"])
def test_beside_something_hidden_names_come_and_go_in_bubblewrap_alone(
    bench: Bench, sandbox: Sandbox, command: str
) -> None:
    command = filled(command, bench)
    expansion = needs(bench.run("Bash", command=command))
    folder = filled("BESIDE", bench)
    assert expansion == (None if sandbox.closes_beside_hidden else needed(folder, "write", "subtree"))
    wide = granted(bench, needed(folder, "write", "subtree")).run("Bash", command=command)
    assert (wide.outcome is Outcome.OK) is (expansion is not None), "what is said is so"


UNGRANTED = [
    "cat HOME/state/data",
    "echo x > HOME/state/data",
    "echo \"mkdir: cannot create directory '/': Read-only file system\"; false",
    "echo x > /proc/sys/kernel/core_pattern",
    "ln OUT/notes l",
    "ln a OUT/l",
    "mv .git g2",
]


@pytest.mark.parametrize("command", UNGRANTED)
def test_what_no_expansion_opens_requires_a_bypass(bench: Bench, command: str) -> None:
    result = bench.run("Bash", command=filled(command, bench))
    assert result.outcome is Outcome.ERROR
    assert needs(result) is None
    assert "requires_bypass" in result.text


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
@pytest.mark.parametrize("names", ["'a', 'OUT/a'", "'d/f', '.git/hooks/f'"])
def test_nothing_is_renamed_across_mounts(bench: Bench, names: str) -> None:
    """That stays so whatever is granted, and a copy works (EXDEV)."""
    command = filled(f'PYTHON -c "import os; os.rename({names})"', bench)
    for one in (bench, granted(bench, needed(filled("OUT", bench), "write", "subtree"))):
        result = one.run("Bash", command=command)
        assert needs(result) is None
        assert "copy it instead" in result.text


# -- explore ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "path", "scope"),
    [
        ("echo x > x", "", "subtree"),
        ("touch x", "", "subtree"),
        ("echo x > a", "a", "exact"),
        ("cd d; echo x > z", "d", "subtree"),
        ("PYTHON -c \"open('x', 'w')\"", "", "subtree"),
        ("rm a", "", "subtree"),
        ("mv a b", "", "subtree"),
        ("sed -i s/1/2/ a", "", "subtree"),
        ("mkdir -p p/q/r", "", "subtree"),
        ("tar cf x.tar a", "", "subtree"),
    ],
)
def test_explore_names_the_workspace_or_a_part_of_it(
    processes: AsyncProcesses,
    workspace: Path,
    sandbox: Sandbox,
    command: str,
    path: str,
    scope: Literal["exact", "subtree"],
) -> None:
    (workspace / "d").mkdir()
    (workspace / "a").write_text("1\n")
    tools = make_tools(processes, sandbox=sandbox, ground=Ground())
    bench = Bench(tools, workspace, boundary(workspace, Profile.EXPLORE))
    at = os.path.join(workspace.resolve(), path).rstrip("/")
    there_and_back(bench, command, write(at, scope))


# -- what is hidden -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [".ssh/id", ".netrc", "state/data"])
def test_what_is_hidden_lacks_what_file_tools_say(bench: Bench, home: Path, name: str) -> None:
    path = str(home.resolve() / name)
    for command in (f"cat {path}", f"cat ~/{name}", f"cp {path} here"):
        if "cp" in command and not name.startswith("."):
            continue
        asked = bench.run("Bash", command=command)
        assert needs(asked) == needs(bench.run("Read", path=path)), asked.text


def test_what_isnt_there_lacks_nothing(bench: Bench) -> None:
    for command in ("cat HOME/.ssh/none", "cat OUT/none", "cat none", "ls /nowhere/x"):
        assert bench.run("Bash", command=filled(command, bench)).need is None


@pytest.mark.parametrize("command", ["echo x > OUT/later/z", "mkdir OUT/later/d", "touch OUT/later/z"])
def test_a_file_that_was_granted_and_is_a_folder_by_now_is_denied_with_the_folder(bench: Bench, command: str) -> None:
    (alone,) = entries_of([write("OUT/later", "exact")], bench)
    Path(alone.path).mkdir()
    there_and_back(granted(bench, Expansion(filesystem=(alone,))), command, *entries_of([write("OUT/later")], bench))
