"""Sockets on this machine: a command reaches nobody's by any name, and what it needs for itself works."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from maka.contracts.boundary import Profile
from maka.contracts.content import Outcome
from maka.contracts.sandbox_ports import Sandbox
from maka.edges.bubblewrap import find_bubblewrap
from maka.edges.processes import AsyncProcesses
from maka.tools.policy import Ground
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.harness import Bench, Recorder, boundary

pytestmark = pytest.mark.one_sandbox

PYTHON = os.path.realpath(sys.executable)


@pytest.fixture
def outside() -> Generator[Path]:
    """A folder with a short name: that of a socket has at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="maka-s-") as folder:
        yield Path(folder).resolve()


@pytest.fixture
def workspace() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="maka-w-") as folder:
        yield Path(folder).resolve()


@pytest.fixture
def ground(outside: Path) -> Ground:
    return Ground(programs=(str(outside),))


@pytest.fixture
def bench(processes: AsyncProcesses, workspace: Path, sandbox: Sandbox, ground: Ground) -> Bench:
    return Bench(make_tools(processes, sandbox=sandbox, ground=ground), workspace)


def python(code: str) -> str:
    return f"{PYTHON} -I -S -c '{code}'"


def connecting(path: Path) -> str:
    return python(f'import socket; socket.socket(socket.AF_UNIX).connect("{path}"); print("reached")')


@contextmanager
def service(folder: Path, name: str) -> Generator[socket.socket]:
    """Listen under a name relative to a folder, which is all that the kernel lists of it."""
    before = os.getcwd()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(folder)
        try:
            server.bind(name)
        finally:
            os.chdir(before)
        server.listen()
        server.setblocking(False)
        yield server


def nobody_came(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return True
    return False


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("place", ["outside", "workspace", "renamed", "through a link"])
def test_no_socket_of_another_program_is_reached(
    bench: Bench, outside: Path, workspace: Path, place: str, network: bool
) -> None:
    bench = Bench(bench.tools, workspace, boundary(workspace, Profile.ASK, network=network))
    folder = workspace.resolve() if place == "workspace" else outside
    if place == "through a link":
        (outside / "link").symlink_to(outside)
        folder = outside / "link"
    with service(folder, "s") as server:
        path = folder / "s"
        if place == "renamed":
            path = path.rename(folder / "t")
        with socket.socket(socket.AF_UNIX) as ours:
            ours.connect(str(path))  # it is there, and answers outside
            server.accept()[0].close()
        result = bench.run("Bash", command=connecting(path))
        assert nobody_came(server)
    assert result.outcome is Outcome.ERROR
    assert "Permission" in result.text
    assert "reached" not in result.text.replace(connecting(path), "")


def test_a_socket_that_comes_later_isnt_reached(bench: Bench, outside: Path) -> None:
    path = outside / "later"
    waits = f'import os, socket; print("on", flush=True)\nwhile not os.path.exists("{path}"): pass\n'
    code = f'{waits}socket.socket(socket.AF_UNIX).connect("{path}")'
    recorder = bench.begin("Bash", Recorder(), command=python(code))
    assert recorder.spoke.wait(30)
    with service(outside, "later") as server:
        assert recorder.wait().outcome is Outcome.ERROR
        assert nobody_came(server)


def test_no_datagram_of_a_pair_arrives(bench: Bench, outside: Path) -> None:
    """One of two connected sockets that can be pointed at anyone would be a way out."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(outside / "d"))
        server.setblocking(False)
        path = (outside / "d").rename(outside / "e")  # no list has this name
        pair = "import socket; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)"
        command = python(f'{pair}; a.sendto(b"x", "{path}")')
        subprocess.run(["sh", "-c", command], check=True)
        assert server.recv(1) == b"x"  # it is there, and hears it from outside
        assert bench.run("Bash", command=command).outcome is Outcome.ERROR
        with pytest.raises(BlockingIOError):
            server.recv(1)


def test_a_command_talks_with_itself(bench: Bench) -> None:
    pair = 'import socket; a, b = socket.socketpair(); a.sendall(b"hi"); print(b.recv(2))'
    assert "b'hi'" in bench.run("Bash", command=python(pair)).text


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_processes_of_a_command_share_semaphores(bench: Bench) -> None:
    """They are files in /dev/shm, which a command has of its own where mounts are allowed."""
    fork = 'import multiprocessing as m; print(m.get_context("fork").Pool(2).map(abs, [-1, -2]))'
    assert "[1, 2]" in bench.run("Bash", command=f"{PYTHON} -I -c '{fork}'").text


def test_loopback_is_the_command_s_own(processes: AsyncProcesses, workspace: Path) -> None:
    if isinstance(found := find_bubblewrap(), str):
        pytest.skip(found)
    code = (
        'import socket; s = socket.create_server(("127.0.0.1", 0)); '
        'c = socket.create_connection(s.getsockname()); print("own")'
    )
    assert "own" in Bench(make_tools(processes, sandbox=found), workspace).run("Bash", command=python(code)).text


def test_unix_sockets_are_let_through_where_the_person_says_so(
    processes: AsyncProcesses, workspace: Path, outside: Path, ground: Ground
) -> None:
    """Then commands serve one another by them; the services that can be found stay hidden."""
    if isinstance(found := find_bubblewrap(unix_sockets=True), str):
        pytest.skip(found)
    bench = Bench(make_tools(processes, sandbox=found, ground=ground), workspace)
    own = 'import socket; s = socket.socket(socket.AF_UNIX); s.bind("own"); s.listen(); '
    own += 'socket.socket(socket.AF_UNIX).connect("own"); print("served")'
    assert "served" in bench.run("Bash", command=python(own)).text
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(outside / "s"))
        server.listen()
        assert bench.run("Bash", command=connecting(outside / "s")).outcome is Outcome.ERROR
