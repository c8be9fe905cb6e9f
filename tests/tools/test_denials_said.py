"""An output that tells of denials is believed as far as that does no harm: a printed line leads to nothing large."""

import os
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from maka.contracts.boundary import Boundary, Expansion, FileEntry, Profile
from maka.contracts.content import Outcome
from maka.tools.denial import ENTRIES_MAX, NAME_ALONE
from tests.tools.denied import (
    HOOKS,
    OUT,
    PYTHON,
    can_run,
    entries_of,
    filled,
    granted,
    needs,
    read,
    write,
)
from tests.tools.harness import CHILD_ENV, Bench

pytestmark = pytest.mark.one_sandbox


@pytest.fixture
def bench(denying: Bench) -> Bench:
    return denying


def printed(bench: Bench, *lines: str) -> Expansion | None:
    """Return what is asked for when a command that fails prints a file with these lines."""
    (bench.cwd / "d" / "its.log").write_text("".join(filled(line, bench) + "\n" for line in lines))
    result = bench.run("Bash", command="cat d/its.log; false")
    assert result.outcome is Outcome.ERROR
    return None if result.need is None else result.need.expansion


# -- what is broad ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("touch HOME/x", ["x"]),
        ("echo x > HOME/x", ["x"]),
        ("cp d/f HOME/x", ["x"]),
        ("touch HOME/x || true", ["x"]),
    ],
)
def test_in_a_broad_folder_the_path_alone_is_named(bench: Bench, command: str, names: list[str]) -> None:
    """Write works once it is granted, and the command, which still doesn't, is led to Write."""
    command = filled(command, bench)
    result = bench.run("Bash", command=command)
    expansion = Expansion(filesystem=tuple(write(filled(f"HOME/{name}", bench), "exact") for name in names))
    assert needs(result) == expansion
    assert result.need is not None
    assert result.need.reason == NAME_ALONE
    wide = granted(bench, expansion)
    for entry in expansion.filesystem:
        assert wide.run("Write", path=entry.path, content="new").outcome is Outcome.OK
        os.remove(entry.path)
    again = wide.run("Bash", command=command)
    assert (needs(again), again.need is not None and "Edit or Write" in again.need.instead) == (None, True)


@pytest.mark.parametrize(
    "command",
    [
        "rm HOME/notes",
        "mv HOME/notes HOME/n2",
        "ln -s d HOME/link",
        f"{PYTHON} -c \"import os; os.symlink('d', 'HOME/link')\"",
        f"{PYTHON} -c \"import os; os.remove('HOME/notes')\"",
        "rm -r HOME/folder",
        "rm HOME/notes || true",
        f"{PYTHON} -c \"import tempfile; tempfile.mkstemp(dir='HOME')\"",
        f"{PYTHON} -c \"import tempfile; tempfile.mkdtemp(dir='HOME')\"",
        f"{PYTHON} -c \"import tempfile; tempfile.NamedTemporaryFile(dir='HOME')\"",
        "mktemp HOME/x.XXXX",
        "sed -i s/a/b/ HOME/notes",
    ],
)
def test_what_no_answer_opens_in_a_broad_folder_is_a_persons(bench: Bench, command: str) -> None:
    """A path alone lets no name go there, makes no link, and isn't the one that the next try takes."""
    home = filled("HOME", bench)
    Path(home, "notes").write_text("a")
    os.mkdir(os.path.join(home, "folder"))
    result = bench.run("Bash", command=filled(command, bench))
    assert result.need is not None
    assert result.need.expansion is None
    assert f"--allow write:{home}," in result.need.instead


@pytest.mark.parametrize(
    "line",
    [
        "HOME: Read-only file system",
        "touch: setting times of 'HOME': Permission denied",
        "x: cannot write 'HOME/..': Read-only file system",
        "touch: cannot touch '../..': Read-only file system",
        "/etc: Read-only file system",
        "cp: cannot create regular file '/usr/local/': Permission denied",
        "mkdir: cannot create directory '/usr/bin': Read-only file system",
        "rm: cannot remove 'HOME/folder': Read-only file system",
    ],
)
def test_no_line_leads_to_a_broad_folder(bench: Bench, line: str) -> None:
    os.mkdir(filled("HOME/folder", bench))
    assert printed(bench, line) is None


@pytest.mark.parametrize(
    "folder", ["HOME", "/", "/etc", "/usr", "/usr/local", "/usr/bin", "/usr/lib/python3", "/var/lib", "/opt", "/home"]
)
def test_a_line_leads_to_one_path_in_a_broad_folder(bench: Bench, folder: str) -> None:
    path = os.path.join(os.path.realpath(filled(folder, bench)), "maka-none")
    if not os.path.isdir(os.path.dirname(path)) or not os.access(os.path.dirname(path), os.W_OK):
        pytest.skip(f"{folder} isn't here, or nobody could write there")
    expansion = printed(bench, f"touch: cannot touch '{path}': Read-only file system")
    assert expansion == Expansion(filesystem=(write(path, "exact"),))


def test_many_lines_lead_to_few_entries(bench: Bench) -> None:
    folders = [filled(f"OUT/{number}", bench) for number in range(2 * ENTRIES_MAX)]
    for folder in folders:
        os.mkdir(folder)
    expansion = printed(bench, *(f"touch: cannot touch '{folder}/x': Read-only file system" for folder in folders))
    assert expansion is not None
    assert expansion.filesystem == tuple(write(folder) for folder in folders[::-1][:ENTRIES_MAX])


@pytest.mark.parametrize(
    "line",
    [
        "cat: HOME/.ssh/id: Permission denied",
        "ls: cannot open directory 'HOME/.ssh': Permission denied",
        "cat: HOME/.netrc: No such file or directory",
        "cat: ELSE/notes: No such file or directory",
        "touch: cannot touch 'HOME/.ssh/x': Read-only file system",
        "bash: line 1: HOME/.netrc: Read-only file system",
        "rm: cannot remove 'HOME/.netrc': Read-only file system",
        "cat: d/its.log.link: Permission denied",
    ],
)
def test_a_line_leads_to_nothing_hidden_that_the_command_doesnt_name(bench: Bench, home: Path, line: str) -> None:
    other = home.resolve().parent / "else"
    other.mkdir()
    (other / "notes").write_text("notes")
    (bench.cwd / "d" / "its.log.link").symlink_to(home.resolve() / ".ssh" / "id")
    assert printed(bench, line.replace("ELSE", str(other))) is None


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
        thread = threading.Thread(target=its.serve_forever, args=(0.01,))
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
