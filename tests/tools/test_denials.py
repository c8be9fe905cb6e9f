"""What a sandbox denied is told with what would allow it: real commands, and the same again once that is granted."""

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from maka.contracts.boundary import Boundary, Expansion, FileEntry, Profile
from maka.contracts.content import Outcome
from maka.contracts.tool_ports import Sandbox, ToolResult
from maka.edges.processes import AsyncProcesses
from maka.tools.policy import Ground, needed
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.harness import CHILD_ENV, Bench, boundary

PYTHON = os.path.realpath(sys.executable)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with nothing secret in it."""
    path = tmp_path.resolve() / "outside"
    for folder in ("d e", "dé"):
        (path / folder).mkdir(parents=True)
    (path / "notes").write_text("notes\n")
    return path


@pytest.fixture
def bench(
    processes: AsyncProcesses, repository: Path, sandbox: Sandbox, ground: Ground, home: Path, outside: Path
) -> Bench:
    (repository / "d").mkdir()
    (repository / "d" / "f").write_text("f\n")
    (repository / "way").symlink_to(outside)
    (repository / "wayf").symlink_to(outside / "notes")
    own = Ground(own=ground.own, secrets=ground.secrets, programs=(*ground.programs, str(outside)))
    env = {**CHILD_ENV, "HOME": str(home.resolve())}
    return Bench(make_tools(processes, sandbox=sandbox, ground=own, child_env=env), repository, boundary(repository))


def filled(command: str, bench: Bench) -> str:
    base = bench.cwd.resolve().parent
    places = {"OUT": base / "outside", "HOME": base / "home", "WS": bench.cwd.resolve(), "PYTHON": PYTHON}
    for word, place in places.items():
        command = command.replace(word, str(place))
    return command


def granted(bench: Bench, expansion: Expansion) -> Bench:
    has = [entry for grant in bench.boundary.grants for entry in grant.expansion.filesystem]
    wide = boundary(bench.cwd, bench.boundary.profile, *has, *expansion.filesystem, network=expansion.network)
    return Bench(bench.tools, bench.cwd, wide)


def needs(result: ToolResult) -> Expansion | None:
    assert result.need is not None, result.text
    return result.need.expansion


def can_run(command: str) -> None:
    """Skip a command whose program isn't here, inside."""
    program = command.split()[0]
    if program in ("node", "perl", "curl", "tar", "gcc") and shutil.which(program, path=CHILD_ENV["PATH"]) is None:
        pytest.skip(f"{program} is missing")


def there_and_back(bench: Bench, command: str, *entries: FileEntry) -> None:
    """A command is denied exactly this, and works once that is granted."""
    can_run(command)
    command = filled(command, bench)
    denied = bench.run("Bash", command=command)
    assert denied.outcome is Outcome.ERROR
    expansion = Expansion(filesystem=entries)
    assert needs(denied) == expansion, denied.text
    again = granted(bench, expansion).run("Bash", command=command)
    assert (again.outcome, again.need) == (Outcome.OK, None), again.text


def write(path: str, scope: Literal["exact", "subtree"] = "subtree") -> FileEntry:
    return FileEntry(path=path, access="write", scope=scope)


def read(path: str) -> FileEntry:
    return FileEntry(path=path, access="read", scope="exact")


HOOKS = [write("WS/.git/hooks")]
OUT = [write("OUT")]
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


def entries_of(entries: list[FileEntry], bench: Bench) -> list[FileEntry]:
    return [replace(entry, path=filled(entry.path, bench)) for entry in entries]


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


@pytest.mark.parametrize("command", ["touch HOME/x", "rm HOME/notes", "mkdir HOME/d"])
def test_beside_something_hidden_names_come_and_go_in_bubblewrap_alone(
    bench: Bench, sandbox: Sandbox, command: str
) -> None:
    command = filled(command, bench)
    expansion = needs(bench.run("Bash", command=command))
    home = filled("HOME", bench)
    assert expansion == (None if sandbox.closes_beside_hidden else needed(home, "write", "subtree"))
    wide = granted(bench, needed(home, "write", "subtree")).run("Bash", command=command)
    assert (wide.outcome is Outcome.OK) is (expansion is not None), "what is said is so"


UNGRANTED = [
    "cat HOME/state/data",
    "echo x > HOME/state/data",
    "mkdir /new-folder",
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


# -- a command that ends well -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "entries"),
    [
        ("touch OUT/x || true", OUT),
        ("(echo x > .git/hooks/post-commit); echo done", HOOKS),
        ("touch OUT/x 2>&1 | cat", OUT),
        ("cat ~/.ssh/id || echo none", [read("HOME/.ssh/id")]),
    ],
)
def test_a_denied_part_is_told_where_the_command_ends_well(
    bench: Bench, command: str, entries: list[FileEntry]
) -> None:
    command = filled(command, bench)
    result = bench.run("Bash", command=command)
    assert (result.outcome, result.exit_code) == (Outcome.OK, 0)
    assert needs(result) == Expansion(filesystem=tuple(entries_of(entries, bench)))
    assert "has probably denied a part of it" in result.text
    assert '"error"' not in result.text
    again = granted(bench, Expansion(filesystem=tuple(entries_of(entries, bench)))).run("Bash", command=command)
    assert "probably" not in again.text


LOGS = {
    "docker": (
        "npm ERR! code EACCES\nnpm ERR! syscall mkdir\nnpm ERR! path /app/node_modules\nnpm ERR! errno -13\n"
        "npm ERR! Error: EACCES: permission denied, mkdir '/app/node_modules'\nnpm ERR!   code: 'EACCES',\n"
    ),
    "ssh": "git@github.com: Permission denied (publickey).\nfatal: Could not read from remote repository.\n",
    "pytest": (
        '>       with pytest.raises(PermissionError, match="Permission denied"):\n'
        "E       Failed: DID NOT RAISE <class 'PermissionError'>\n"
    ),
    "server": (
        'nginx[9]: [crit] 7#7: *1 open() "/var/www/none/x" failed (13: Permission denied), client: 192.0.2.1\n'
        'kernel: audit: apparmor="DENIED" operation="open" name="/etc/shadow" comm="cat" requested_mask="r"\n'
    ),
    "sources": (
        '    "denied": r"permission denied|operation not permitted",\n'
        "docs/errors.md:14:- `EACCES`: permission denied, see /etc/fstab\n"
        'src/io.c:77:    perror("open: Permission denied");\n'
    ),
    "find": "find: '/proc/1/fd': Permission denied\nfind: '/etc': Permission denied\n./a.py\n",
    "make": "make: /usr/bin/none: No such file or directory\nmake: *** [Makefile:3: main.o] Error 1\n",
}


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("ending", ["", " 2>&1", "; false"])
def test_a_log_that_is_printed_is_no_denial(bench: Bench, log: str, ending: str) -> None:
    """Not even where the command fails, or its errors stand among what it prints."""
    (bench.cwd / "d" / "build.log").write_text(LOGS[log])
    result = bench.run("Bash", command=f"cat d/build.log{ending}")
    assert result.need is None, result.text
    assert result.outcome is (Outcome.ERROR if "false" in ending else Outcome.OK)


def test_what_is_printed_for_others_is_not_what_a_command_says_of_itself(bench: Bench) -> None:
    words = filled("touch: cannot touch 'OUT/x': Read-only file system", bench)
    assert bench.run("Bash", command=f'echo "{words}"').need is None
    assert bench.run("Bash", command=f'echo "{words}" >&2').need is not None


# -- the network --------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[int]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    with HTTPServer(("127.0.0.1", 0), Answer) as its:
        thread = threading.Thread(target=its.serve_forever)
        thread.start()
        yield int(its.server_port)
        its.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "command",
    [
        "curl -sS http://127.0.0.1:PORT",
        "PYTHON -I -c \"import urllib.request as r; r.urlopen('http://127.0.0.1:PORT')\"",
        "node -e \"require('http').get('http://127.0.0.1:PORT')\"",
    ],
)
def test_a_refused_loopback_asks_for_the_network(bench: Bench, server: int, command: str) -> None:
    can_run(command)
    command = filled(command.replace("PORT", str(server)), bench)
    denied = bench.run("Bash", command=command)
    expansion = Expansion(network=True)
    assert needs(denied) == expansion
    assert "likely" in denied.text
    assert granted(bench, expansion).run("Bash", command=command).outcome is Outcome.OK


def test_with_the_network_a_refused_connection_lacks_nothing(bench: Bench) -> None:
    wide = granted(bench, Expansion(network=True))
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); p = s.getsockname(); s.close(); "
    result = wide.run("Bash", command=f'{PYTHON} -I -c "{code}socket.create_connection(p)"')
    assert "refused" in result.text
    assert result.need is None


def test_a_server_that_comes_up_a_moment_later_is_no_denial(bench: Bench) -> None:
    result = bench.run("Bash", command="echo 'curl: (7) Failed to connect: Connection refused' >&2; echo up")
    assert (result.outcome, result.need) == (Outcome.OK, None)


@pytest.mark.parametrize(
    "code", ["import socket; socket.socket(socket.AF_UNIX)", "import multiprocessing as m; m.Manager()"]
)
def test_a_unix_socket_requires_a_bypass_or_the_setting(bench: Bench, code: str) -> None:
    result = bench.run("Bash", command=f'{PYTHON} -I -c "{code}"')
    assert needs(result) is None
    assert "unix_sockets = true" in result.text


def test_a_sandbox_inside_of_the_sandbox_is_a_command_that_ran(bench: Bench) -> None:
    if shutil.which("bwrap", path=CHILD_ENV["PATH"]) is None:
        pytest.skip("bwrap is missing")
    result = bench.run("Bash", command="bwrap --ro-bind / / --bind /nothing /x true")
    assert result.outcome is Outcome.ERROR
    assert "No command was run" not in result.text


def test_a_bypass_lacks_nothing(bench: Bench) -> None:
    free = Bench(bench.tools, bench.cwd, Boundary(profile=Profile.BYPASS, workspace=str(bench.cwd.resolve())))
    assert free.run("Bash", command="cat /nowhere/x").need is None
