"""Of two names in a denial only what was to come or to go is proposed: what is read, or linked to, needs nothing."""

from pathlib import Path

import pytest

from maka.contracts.boundary import Expansion, FileEntry
from maka.contracts.content import Outcome
from maka.tools.denial_words import denials
from maka.tools.policy import needed
from tests.tools.conftest import MOUNTING
from tests.tools.denied import OUT, can_run, entries_of, filled, granted, needs, read, there_and_back, write
from tests.tools.harness import Bench

pytestmark = pytest.mark.one_sandbox


@pytest.fixture
def bench(denying: Bench) -> Bench:
    return denying


def python(code: str) -> str:
    return f'PYTHON -c "import os, pathlib, shutil; {code}"'


def node(code: str) -> str:
    return f"node -e \"require('fs').{code}\""


PAIRS: list[tuple[str, list[FileEntry]]] = [
    (python("os.symlink('HOME/notes', 'OUT/l')"), OUT),
    (python("pathlib.Path('OUT/l').symlink_to('HOME/notes')"), OUT),
    (python("shutil.copy('HOME/notes', 'OUT/c')"), OUT),
    (python("os.rename('OUT/notes', 'OUT/n2')"), OUT),
    (python("pathlib.Path('OUT/notes').rename('OUT/d e/n2')"), OUT),
    (node("symlinkSync('HOME/notes', 'OUT/l')"), OUT),
    (node("copyFileSync('HOME/notes', 'OUT/c')"), OUT),
    (node("copyFileSync('HOME/notes', 'OUT/notes')"), [write("OUT/notes", "exact")]),
    (node("cpSync('d', 'OUT/d2', {recursive: true})"), OUT),
    (node("renameSync('OUT/notes', 'OUT/n2')"), OUT),
    (node("copyFileSync('HOME/.ssh/id', 'a')"), [read("HOME/.ssh/id")]),
    ("ln -s HOME/notes OUT/l", OUT),
    ("cp -s HOME/notes OUT/l", OUT),
    ("cp HOME/notes OUT/c", OUT),
    ("install -m 644 HOME/notes OUT/c", OUT),
    ("mv OUT/notes OUT/n2", OUT),
]


@pytest.mark.parametrize(("command", "entries"), PAIRS)
def test_what_is_read_or_linked_to_is_not_proposed(bench: Bench, command: str, entries: list[FileEntry]) -> None:
    there_and_back(bench, command, *entries_of(entries, bench))


@pytest.mark.parametrize("call", ["os.symlink('HOME/notes', 'OUT/l')", "os.rename('OUT/notes', 'OUT/n2')"])
def test_a_traceback_says_which_call_it_was(bench: Bench, call: str) -> None:
    source = f"import os\n\n\ndef make():\n    {filled(call, bench)}\n\n\nmake()\n"
    (bench.cwd / "s.py").write_text(source)
    there_and_back(bench, "PYTHON s.py", *entries_of(OUT, bench))


@pytest.mark.parametrize("command", [python("os.link('HOME/notes', 'OUT/l')"), node("linkSync('HOME/notes', 'OUT/l')")])
def test_a_hard_link_is_not_made_across_mounts(bench: Bench, command: str) -> None:
    can_run(command)
    for one in (bench, granted(bench, needed(filled("OUT", bench), "write", "subtree"))):
        result = one.run("Bash", command=filled(command, bench))
        assert needs(result) is None
        assert "copy it instead" in result.text


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_what_git_copies_needs_its_place_alone(bench: Bench) -> None:
    Path(filled("OUT/r/.git/hooks", bench)).mkdir(parents=True)
    result = bench.run("Bash", command=filled("git -C OUT/r init -q", bench))
    assert result.outcome is Outcome.ERROR
    assert needs(result) == Expansion(filesystem=(write(filled("OUT/r/.git", bench)),)), result.text


READ_ONLY = "Read-only file system"
LINES = [
    (f"fatal: cannot copy '/t/description' to '/p/.git/description': {READ_ONLY}", ["/p/.git/description"]),
    (f"fatal: cannot symlink '/t/x' '/p/.git/x': {READ_ONLY}", ["/p/.git/x"]),
    (f"ln: failed to create symbolic link '/p/l' -> '/t/x': {READ_ONLY}", ["/p/l"]),
    (f"/usr/bin/ln: failed to create symbolic link '/p/l' -> '/t/x': {READ_ONLY}", ["/p/l"]),
    (f"cp: cannot create symbolic link '/p/l' to '/t/x': {READ_ONLY}", ["/p/l"]),
    (f"cp: error copying '/t/x' to '/p/x': {READ_ONLY}", ["/p/x"]),
    (f"mv: cannot move '/t/x' to '/p/x': {READ_ONLY}", ["/t/x", "/p/x"]),
    (f'rsync: [generator] symlink "/p/l" -> "/t/x" failed: {READ_ONLY} (30)', ["/p/l"]),
    (f'rsync: [receiver] rename "/p/.x.a1" -> "/p/x": {READ_ONLY} (30)', ["/p/.x.a1", "/p/x"]),
    (f"mv: inter-device move failed: '/t/x' to '/p/x'; unable to remove target: {READ_ONLY}", ["/t/x", "/p/x"]),
    ("Error: EACCES: permission denied, copyfile '/t/x' -> '/p/x'", ["/p/x"]),
    ("npm error EROFS: read-only file system, symlink '../t/x' -> '/p/.bin/x'", ["/p/.bin/x"]),
    ("Error: EROFS: read-only file system, rename '/t/x' -> '/p/x'", ["/t/x", "/p/x"]),
    (f"OSError: [Errno 30] {READ_ONLY}: '/t/x' -> '/p/x'", ["/p/x"]),
    (f"tar: /p/l: Cannot create symlink to ‘/t/x’: {READ_ONLY}", ["/p/l"]),
]


@pytest.mark.parametrize(("line", "names"), LINES)
def test_of_two_names_those_count_that_come_or_go(line: str, names: list[str]) -> None:
    (said,) = denials(line)
    # Other words of a sentence are no paths.
    assert [name for name in said.names if name.startswith("/")] == names


def test_two_calls_in_a_command_leave_the_last_name(bench: Bench) -> None:
    command = python("os.symlink('x', 'y'); os.rename('HOME/notes', 'OUT/n')")
    (said,) = denials("OSError: [Errno 30] Read-only file system: '/t/x' -> '/p/x'", command=command)
    assert said.names == ("/p/x",)
    (said,) = denials("OSError: [Errno 30] Read-only file system: '/t/x' -> '/p/x'", command="os.rename(x, y)")
    assert said.names == ("/t/x", "/p/x")
