"""What a program asks a SessionManager about files: changes, an undo beforehand, artifacts; and what it may not ask.

Only the model's words are scripted. The command line answers from the same reads, so its JSON is compared.
"""

import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.json import encode
from msgspec.structs import replace

import maka
from actors import session_undo
from maka.contracts.errors import RefusalCode, RefusedError
from maka.contracts.ids import RunId
from maka.edges.scripted_model import Call, ScriptedModel, Turn, by_step
from maka.session_manager import SessionManager
from tests.cli.conftest import Cli

OLD, NEW = "an old pond\na frog leaps in\n", "an old pond\na cat leaps in\n"
LONG = "i=0; while [ $i -lt 6000 ]; do echo a line number $i; i=$((i+1)); done; echo made > made.txt"
CALLS = (
    Call(name="Edit", args={"path": "pond.txt", "old_string": "frog", "new_string": "cat"}),
    Call(name="Write", args={"path": "deep/new.txt", "content": "new\n"}),
    Call(name="Write", args={"path": "data.bin", "content": "text\n"}),
)


def digest(data: str | bytes) -> str:
    return sha256(data.encode() if isinstance(data, str) else data).hexdigest()


class Program:
    """A program with one session, in which a run has changed things."""

    def __init__(self, host: maka.Host, workspace: Path, session_id: str, run_id: str) -> None:
        self.host = host
        self.manager = host.manager
        self.workspace = workspace
        self.session_id = session_id
        self.run_id = run_id


@pytest.fixture
def program(tmp_path: Path, surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "pond.txt").write_text(OLD)
    (workspace / "data.bin").write_bytes(b"\0\1")
    monkeypatch.chdir(surroundings)
    command = (Call(name="Bash", args={"command": LONG}),)
    model = ScriptedModel.start(by_step([Turn(calls=CALLS), Turn(calls=command), Turn(text="Done.")]))
    profile = f'[models.local]\nbase_url = "{model.base_url}"\nmodel = "{model.model}"\n'
    (tmp_path / "config.toml").write_text(profile, "utf-8")
    try:
        with maka.open_host(maka.load_config()) as host:
            session = host.manager.create_session(str(workspace))
            with host.manager.subscribe(session.session_id) as events:
                accepted = host.manager.send_message(session.session_id, "change it", profile="local")
                while not isinstance(events.get(60), maka.Complete):
                    pass
            assert accepted.run_id is not None
            yield Program(host, workspace.resolve(), session.session_id, accepted.run_id)
    finally:
        model.close()


def test_changes_are_data(program: Program) -> None:
    found = program.manager.changes(program.session_id)
    assert (found.session_id, found.run_id, found.boundary) == (program.session_id, None, "ask")
    data, new, pond = found.files
    assert (data.path, data.how, data.is_binary, data.diff) == ("data.bin", "changed", True, None)
    assert (new.path, new.how, new.before_sha256, new.after_sha256) == (
        "deep/new.txt",
        "created",
        None,
        digest("new\n"),
    )
    assert (pond.before_sha256, pond.after_sha256, pond.current_sha256) == (digest(OLD), digest(NEW), digest(NEW))
    assert (pond.added, pond.removed, pond.is_binary) == (1, 1, False)
    assert pond.diff is not None and "-a frog leaps in\n+a cat leaps in\n" in pond.diff
    assert found.commands.added == ("made.txt",)
    assert program.manager.changes(program.session_id, program.run_id) == replace(found, run_id=RunId(program.run_id))


def test_a_path_is_taken_as_it_was_shown_and_one_that_a_person_changed_is_told(program: Program) -> None:
    (program.workspace / "pond.txt").write_text("a person's\n")
    (pond,) = program.manager.changes(program.session_id, files=["pond.txt"]).files
    assert pond.current_sha256 == digest("a person's\n")
    assert any("the file changed since" in note for note in pond.notes)
    (same,) = program.manager.changes(program.session_id, files=[str(program.workspace / "pond.txt")]).files
    assert same == pond
    assert program.manager.changes(program.session_id, files=["nothing"]).files == ()


def test_a_plan_says_what_an_undo_does_and_does_nothing(program: Program) -> None:
    pond = program.workspace / "pond.txt"
    pond.write_text("a person's\n")
    head = program.host.reader.head()
    plan = program.manager.undo_plan(program.session_id)
    new, data = program.workspace / "deep/new.txt", program.workspace / "data.bin"
    assert [(file.path, file.outcome) for file in plan.files] == [(str(data), "planned"), (str(new), "planned")]
    (left,) = plan.left
    assert (left.path, left.reason, left.current_sha256) == (str(pond), "changed", digest("a person's\n"))
    assert (plan.run_id, plan.status, plan.commands.added) == (None, None, ("made.txt",))
    assert (program.host.reader.head(), new.read_text()) == (head, "new\n")
    forced = program.manager.undo_plan(program.session_id, files=["pond.txt"], force=True)
    assert [file.path for file in forced.files] == [str(pond)]

    done = program.manager.undo(program.session_id)
    planned = [(file.path, file.before_sha256, file.after_sha256) for file in plan.files]
    assert [(file.path, file.before_sha256, file.after_sha256) for file in done.files] == planned
    assert (done.left, done.status) == (plan.left, "completed")
    assert program.manager.undo(program.session_id, files=["pond.txt"], force=True).files[0].outcome == "ok"
    assert pond.read_text() == OLD, "named as changes() names it, from whatever folder the program runs in"


def test_a_plan_of_more_files_than_one_undo_takes_is_refused_as_the_undo_is(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_undo, "UNDO_FILES_MAX", 2)
    for ask in (program.manager.undo_plan, program.manager.undo):
        with pytest.raises(RefusedError, match="3 files are more than the 2 of one undo"):
            ask(program.session_id)


def test_artifacts_are_data_and_their_content_is_what_was(program: Program) -> None:
    found = program.manager.artifacts(program.session_id)
    assert found == program.manager.artifacts(program.session_id, program.run_id)
    (program.workspace / "deep/new.txt").write_text("other\n")
    content = {(each.kind, each.name): program.manager.artifact_content(program.session_id, each) for each in found}
    assert content["file", "deep/new.txt"] == b"new\n"
    assert content["file", "pond.txt"] == NEW.encode()
    output = next(each for each in found if each.kind == "output")
    whole = content["output", output.name]
    assert (len(whole), digest(whole)) == (output.size_bytes, output.sha256)
    assert whole.endswith(b"a line number 5999\n")


def test_content_is_whole_or_refused(program: Program) -> None:
    found = program.manager.artifacts(program.session_id)
    for kind in ("output", "file"):
        one = next(each for each in found if each.kind == kind)
        size = len(program.manager.artifact_content(program.session_id, one))
        assert len(program.manager.artifact_content(program.session_id, one, bytes_max=size)) == size
        with pytest.raises(RefusedError, match=f"more than the {size - 1:,} of bytes_max"):
            program.manager.artifact_content(program.session_id, one, bytes_max=size - 1)


def test_the_command_line_says_the_same(program: Program, cli: Cli) -> None:
    def printed(*args: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in cli(*args, "--json")[1].splitlines()]

    found = json.loads(encode(program.manager.changes(program.session_id)))
    plan = json.loads(encode(program.manager.undo_plan(program.session_id)))
    listed = json.loads(encode(program.manager.artifacts(program.session_id)))
    program.host.close()  # a store is opened once in a process
    assert printed("diff", "1") == [found]
    assert printed("undo", "1", "--dry-run") == [{**plan, "boundary": "ask"}]
    numbered = [{"number": at, **each, "boundary": "ask"} for at, each in enumerate(listed, 1)]
    assert printed("artifacts", "1") == numbered


Ask = Callable[[SessionManager, str, str], object]
ASKS: dict[str, Ask] = {
    "changes": lambda manager, session, run: manager.changes(session, run),
    "undo_plan": lambda manager, session, run: manager.undo_plan(session, run_id=run),
    "undo": lambda manager, session, run: manager.undo(session, run_id=run),
    "artifacts": lambda manager, session, run: manager.artifacts(session, run),
}
NOBODY = "01890000-0000-7000-8000-000000000001"


@pytest.mark.parametrize("name", ASKS)
def test_an_unknown_session_or_run_is_a_typed_refusal(program: Program, name: str) -> None:
    manager, ask = program.manager, ASKS[name]
    other = manager.create_session(str(program.workspace)).session_id
    head = program.host.reader.head()
    unknown, invalid = RefusalCode.UNKNOWN_RUN, RefusalCode.INVALID_INPUT
    cases: list[tuple[object, object, RefusalCode]] = [
        (NOBODY, program.run_id, RefusalCode.UNKNOWN_SESSION),
        (program.session_id, NOBODY, unknown),
        (other, program.run_id, unknown),
        (program.session_id, program.session_id, unknown),
        (program.session_id, "no id", invalid),
        (program.session_id, 5, invalid),
        (None, program.run_id, invalid),
    ]
    for session, run, code in cases:
        with pytest.raises(RefusedError) as refused:
            ask(manager, cast("Any", session), cast("Any", run))
        assert refused.value.refusal.code is code, (session, run)
    assert program.host.reader.head() == head


BAD: dict[str, tuple[str, Callable[[SessionManager, str, Any], object]]] = {
    "one text for files": ("list or tuple", lambda manager, s, _: manager.changes(s, files="pond.txt")),
    "a number for a file": ("a path is a text", lambda manager, s, _: manager.changes(s, files=[cast("Any", 5)])),
    "a NUL": ("NUL", lambda manager, s, _: manager.undo_plan(s, files=["a\0b"])),
    "force without files": ("name them", lambda manager, s, _: manager.undo_plan(s, force=True)),
    "a word for force": (
        "doesn't fit",
        lambda manager, s, _: manager.undo_plan(s, files=["a"], force=cast("Any", "y")),
    ),
    "no artifact": ("artifacts", lambda manager, s, _: manager.artifact_content(s, cast("Any", 1))),
    "a changed artifact": (
        "no such artifact",
        lambda manager, s, one: manager.artifact_content(s, replace(one, sha256="0" * 64)),
    ),
    "an artifact of another session": (
        "no such artifact",
        lambda manager, s, one: manager.artifact_content(manager.create_session(".").session_id, one),
    ),
    "a word for a size": (
        "whole number",
        lambda manager, s, one: manager.artifact_content(s, one, bytes_max=cast("Any", "all")),
    ),
    "a negative size": ("whole number", lambda manager, s, one: manager.artifact_content(s, one, bytes_max=-1)),
}


def test_bad_input_is_refused_in_words(program: Program) -> None:
    one = program.manager.artifacts(program.session_id)[0]
    for words, call in BAD.values():
        with pytest.raises(RefusedError, match=words):
            call(program.manager, program.session_id, one)


def test_background_shells_of_an_unknown_session_are_refused(program: Program) -> None:
    assert program.manager.background(program.session_id) == []
    with pytest.raises(RefusedError, match="no such session"):
        program.manager.background(NOBODY)


@pytest.mark.parametrize("absolute", [False, True], ids=["", "absolute"])
def test_a_file_that_is_a_link_now_is_named_as_changes_names_it(program: Program, absolute: bool) -> None:
    pond, secret = program.workspace / "pond.txt", program.workspace.parent / "secret"
    secret.write_text("swordfish\n")
    pond.unlink()
    pond.symlink_to(secret)
    (program.workspace / "deep").rename(program.workspace / "moved")
    (program.workspace / "deep").symlink_to("moved")
    for path in ("pond.txt", "deep/new.txt"):
        named = str(program.workspace.resolve() / path) if absolute else path
        assert [each.path for each in program.manager.changes(program.session_id, files=[named]).files] == [path]
        (left,) = program.manager.undo_plan(program.session_id, files=[named]).left
        assert left.path.endswith(path)
        assert left.reason != "nothing"
        receipt = program.manager.undo(program.session_id, files=[named])
        assert [each.path for each in receipt.left] == [left.path]
    assert secret.read_text() == "swordfish\n"
