"""What no answer opens in a broad folder (a folder, a name that a program makes up), and what a person can do."""

import os
import shlex
from pathlib import Path

import pytest

from maka.contracts.boundary import Expansion
from maka.contracts.content import Outcome
from tests.tools.denied import OUT, can_run, entries_of, filled, granted, needs, there_and_back, write
from tests.tools.harness import Bench

pytestmark = pytest.mark.one_sandbox


@pytest.fixture
def bench(denying: Bench) -> Bench:
    return denying


FOLDERS = [
    ("mkdir -p HOME/new", "HOME/new"),
    ("mkdir -p HOME/new/a/b", "HOME/new"),
    ("git clone -q --no-checkout . HOME/new", "HOME/new"),
    ("PYTHON -c \"import os; os.makedirs('HOME/new/a/b')\"", "HOME/new"),
    ("PYTHON -c \"import pathlib; pathlib.Path('HOME/new').mkdir(exist_ok=True)\"", "HOME/new"),
    ("PYTHON -m venv --without-pip HOME/new", "HOME/new"),
    ("node -e \"const f = require('fs'); f.existsSync('HOME/new') || f.mkdirSync('HOME/new')\"", "HOME/new"),
    ("cp -r d HOME/new", "HOME/new"),
    ("install -d HOME/new/a", "HOME/new"),
    ("mkdir -p 'HOME/.config/a b/c'", "HOME/.config"),
    ("mkdir -p HOME/folder/new", "HOME/folder/new"),
]


@pytest.mark.parametrize(("command", "folder"), FOLDERS)
def test_what_is_told_of_a_folder_in_a_broad_one_lets_the_command_work(bench: Bench, command: str, folder: str) -> None:
    can_run(command)
    os.mkdir(filled("HOME/folder", bench))
    command, path = filled(command, bench), filled(folder, bench)
    denied = bench.run("Bash", command=command)
    assert needs(denied) is None, denied.text
    assert '"error":"no_expansion"' in denied.text
    assert "requires_bypass" not in denied.text
    assert f"mkdir -p {shlex.quote(path)}) and allow it (--allow write:{shlex.quote(path)}," in denied.text
    os.makedirs(path)
    again = granted(bench, Expansion(filesystem=(write(path),))).run("Bash", command=command)
    assert (again.outcome, again.need) == (Outcome.OK, None), again.text


def test_a_name_that_a_program_makes_up_is_never_asked_for(bench: Bench) -> None:
    """It is another one each time, so an answer would lead to the next question."""
    command, home = filled("sed -i s/n/m/ HOME/notes", bench), filled("HOME", bench)
    denied = bench.run("Bash", command=command)
    assert needs(denied) is None
    assert '"error":"no_expansion"' in denied.text
    assert f"allow the folder (--allow write:{home}," in denied.text
    again = granted(bench, Expansion(filesystem=(write(home),))).run("Bash", command=command)
    told = again.need is not None and again.need.expansion is None and not again.need.instead
    assert again.outcome is Outcome.OK or told, "where the sandbox closes a home beside its secrets, that is said"


def test_it_is_told_below_success_too(bench: Bench) -> None:
    result = bench.run("Bash", command=filled("mkdir HOME/new || true", bench))
    assert (result.outcome, needs(result)) == (Outcome.OK, None)
    assert "No expansion of the boundary allows that. Use a folder inside the workspace" in result.text


@pytest.mark.parametrize(
    "command", ["mkdir OUT/new", "mkdir -p OUT/new/a/b", "install -d OUT/new/a", "cp -r d OUT/new"]
)
def test_in_another_folder_that_is_asked_for(bench: Bench, command: str) -> None:
    there_and_back(bench, command, *entries_of(OUT, bench))


@pytest.mark.parametrize(
    "code",
    ["open('HOME/x', 'w')", "pathlib.Path('HOME/x').touch()", "os.makedirs('d', exist_ok=True); open('HOME/x', 'w')"],
)
def test_a_file_stays_a_file(bench: Bench, code: str) -> None:
    result = bench.run("Bash", command=filled(f'PYTHON -c "import os, pathlib; {code}"', bench))
    assert needs(result) == Expansion(filesystem=(write(filled("HOME/x", bench), "exact"),)), result.text


def test_a_file_in_a_folder_that_is_to_be_made_is_told_the_same(bench: Bench) -> None:
    path = filled("HOME/new/a/x", bench)
    refused = bench.run("Write", path=path, content="x")
    assert refused.outcome is Outcome.REFUSED
    assert needs(refused) is None
    new = filled("HOME/new", bench)
    assert f"mkdir -p {new}) and allow it (--allow write:{new}," in refused.text
    os.mkdir(new)
    wide = granted(bench, Expansion(filesystem=(write(new),)))
    assert wide.run("Write", path=path, content="x").outcome is Outcome.OK
    assert Path(path).read_text() == "x"


def test_a_file_in_a_broad_folder_that_is_there_can_be_asked_for(bench: Bench) -> None:
    path = filled("HOME/x", bench)
    expansion = Expansion(filesystem=(write(path, "exact"),))
    assert needs(bench.run("Write", path=path, content="x")) == expansion
    assert granted(bench, expansion).run("Write", path=path, content="x").outcome is Outcome.OK
