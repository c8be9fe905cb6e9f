"""Kind T through the whole path: a provider's key reaches the provider, and nothing else."""

import subprocess
from pathlib import Path

from maka.contracts.codec import export_line
from maka.contracts.content import Error, FunctionResponse
from maka.contracts.masks import SECRET_MARK
from maka.contracts.session_events import ToolOutputDelta
from maka.edges.scripted_model import Call, Fault, Reply, ScriptRequest, Turn
from tests.e2e import checks
from tests.e2e.harness import World

NAME, KEY = "ACME_MODEL_ACCESS", "acme0123456789abcdefghij"


def with_key(world: World) -> dict[str, str]:
    """Configure a profile that takes its key from a variable, and return the person's environment."""
    models = f'[models.theirs]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\nkey_env = "{NAME}"\n'
    world.machine.config.write_text(models, "utf-8")
    world.patch.setenv(NAME, KEY)
    return {NAME: KEY, "COPY_OF_IT": KEY, "HARMLESS": "seen"}


def holders(root: Path, secret: str) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_h73_provider_key_visible_to_tools(world: World) -> None:
    command = "env | sort; cat /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n' | grep ^HARMLESS"
    env = with_key(world)
    maka = world.open(
        [Turn(calls=(Call(name="Bash", args={"command": command}),)), Turn(text="ok")], key_env=NAME, env=env
    )
    assert maka.run().status == "completed"
    assert maka.model.requests[0].http.headers["authorization"] == f"Bearer {KEY}", "the provider gets it"
    (answer,) = maka.contents(FunctionResponse)
    assert "HARMLESS=seen" in answer.result
    assert KEY not in answer.result
    maka.close()
    assert not holders(world.machine.state, KEY)


def test_h74_key_in_logs(world: World) -> None:
    def echo(request: ScriptRequest) -> Reply:
        told = request.http.headers["authorization"]
        return Fault(
            status=401, error={"message": f"Incorrect API key provided: {told} ({KEY})", "code": "invalid_api_key"}
        )

    maka = world.open(echo, key_env=NAME, env=with_key(world))
    live = maka.send()
    ended = live.end()
    assert (ended.failure_class, ended.exit) == ("auth", "not_ready")
    (error,) = maka.contents(Error)
    assert "Incorrect API key provided: Bearer *** (***)" in error.message
    assert KEY not in repr(live.seen)
    assert not [item for item in maka.facts() if KEY.encode() in export_line(item)]
    maka.close()
    assert (world.machine.state / "maka.log").exists()
    assert not holders(world.machine.state, KEY)


def prepare(world: World) -> None:
    """Put the key where tools meet it: in files, names, settings of git, instructions."""
    work = world.workspace
    (work / ".env").write_text(f"MODE=test\nKEY={KEY}\n", "utf-8")
    (work / "AGENTS.md").write_text(f"The key is {KEY}, and tests run with make.\n", "utf-8")
    (work / f"dump-{KEY}.txt").write_text("needle\n", "utf-8")
    (work / "long.txt").write_text("needle" + "." * 180 + KEY + "." * 60_000 + KEY + "." * 200_000, "utf-8")
    (work / "key.py").write_text(f"raise SystemExit('refused: ' + {KEY!r})\n", "utf-8")
    (work / "letters.py").write_text(LETTERS, "utf-8")
    subprocess.run(["git", "init", "-q"], cwd=work, check=True, env=world.machine.env)
    remote = f"https://me:{KEY}@host.invalid/r.git"
    subprocess.run(["git", "remote", "add", "origin", remote], cwd=work, check=True, env=world.machine.env)


LETTERS = """
import sys
key = open(".env").read().split("KEY=")[1].strip()
for letter in key:
    sys.stdout.write(letter)
    sys.stdout.flush()
for at, letter in enumerate(key):
    stream = sys.stderr if at % 2 else sys.stdout
    stream.write(letter)
    stream.flush()
sys.stdout.write("\\n" + (key + "-") * 200_000)
"""
COMMANDS = (
    "cat .env AGENTS.md; git remote -v; ls",
    "python3 letters.py",
    "python3 key.py",
    "cp .env copy-$(sed -n 's/KEY=//p' .env); ls nowhere-$(sed -n 's/KEY=//p' .env)",
    "exec -a $(sed -n 's/KEY=//p' .env) sh -c 'cat /proc/$$/cmdline'",
)
CALLS = (
    *(Call(name="Bash", args={"command": command}) for command in COMMANDS),
    Call(name="Read", args={"path": ".env"}),
    Call(name="Read", args={"path": "long.txt"}),
    Call(name="Grep", args={"pattern": "KEY|needle|refused|host"}),
    Call(name="Glob", args={"pattern": "**/*"}),
    Call(name="Edit", args={"path": "key.py", "old_string": "there is no such line", "new_string": "x"}),
)


def parts(root: Path) -> list[Path]:
    """Return the files that hold the key, or so much of its beginning or its end that it could be guessed."""
    return [path for part in (KEY, KEY[:12], KEY[-12:]) for path in holders(root, part)]


def test_h73_the_key_is_nowhere_after_tools_met_it_in_every_way(world: World) -> None:
    env = with_key(world)
    prepare(world)
    maka = world.open([Turn(calls=CALLS), Turn(text="done")], key_env=NAME, env=env)
    live = maka.send()
    ended = live.end()
    assert ended.status == "completed"
    answers = maka.contents(FunctionResponse)
    assert len(answers) == len(CALLS)
    marked = [answer.name for answer in answers if SECRET_MARK in answer.result]
    assert sorted(marked) == ["Bash"] * 5 + ["Glob", "Grep", "Read", "Read"], "each of them met it"
    assert any(answer.whole for answer in answers), "a long output is kept as a whole, too"
    shown = "".join(event.text for event in live.of(ToolOutputDelta))
    assert SECRET_MARK in shown
    assert KEY not in repr(live.seen) + shown
    for request in maka.model.requests:
        assert KEY not in repr(request.data), "the model isn't told it, not even by instructions"
    assert SECRET_MARK in str(maka.model.requests[0].messages[0]["content"])
    assert not parts(world.machine.state), "while it runs: partials and pages of the ledger included"
    maka.close()
    assert not parts(world.machine.state)
    for command in ("export", "log --json", "show --full", "show --json", "diff"):
        done = world.machine.maka(*command.split(), "@last")
        assert done.code == 0, done
        assert KEY[:12] not in done.out + done.err, command


def test_the_old_content_of_a_file_is_the_one_place_where_a_key_stays(world: World) -> None:
    """An undo puts back exact bytes, so they are kept; nothing shows or exports them."""
    env = with_key(world)
    prepare(world)
    edit = Call(name="Edit", args={"path": ".env", "old_string": "MODE=test", "new_string": "MODE=live"})
    maka = world.open([Turn(calls=(edit,)), Turn(text="done")], key_env=NAME, env=env)
    assert maka.run().status == "completed"
    (change,) = maka.actions("file_change")
    assert maka.store.blob(change.pre_image.sha256) == f"MODE=test\nKEY={KEY}\n".encode()
    (answer,) = maka.contents(FunctionResponse)
    diff = maka.store.blob(answer.diff.sha256)
    assert diff is not None
    assert f" KEY={SECRET_MARK}\n" in diff.decode()
    assert not [item for item in maka.facts() if KEY.encode() in export_line(item)]
    maka.close()
    exported = world.machine.maka("export", "@last")
    assert (exported.code, KEY in exported.out) == (0, False)
    assert {path.name for path in parts(world.machine.state)} == {"data.mdb"}, "as a small value of the ledger"
    assert world.machine.maka("undo", "@last").code == 0
    assert (world.workspace / ".env").read_text() == f"MODE=test\nKEY={KEY}\n"


def test_a_key_of_another_profile_is_known_before_it_is_used(world: World) -> None:
    """A profile that no run has used yet: its key file, its header, a key in the environment."""
    other, header = "other-key-0123456789", "tenant-secret-42"
    keyfile = world.folder / "other.key"
    keyfile.write_text(f"{other}\n", "utf-8")
    (world.workspace / "notes").write_text(f"{other} {header} {KEY} Bearer ordinary words\n", "utf-8")
    env = with_key(world)
    models = (
        f'[models.other]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\nkey_file = "{keyfile}"\n'
        f'headers = {{ "X-Title" = "ordinary words", "Authorization" = "Bearer {header}" }}\n'
    )
    world.machine.config.write_text(world.machine.config.read_text("utf-8") + models, "utf-8")
    maka = world.open([Turn(calls=(Call(name="Read", args={"path": "notes"}),)), Turn(text="ok")], env=env)
    assert maka.run().status == "completed"
    (answer,) = maka.contents(FunctionResponse)
    assert answer.result == f"{SECRET_MARK} {SECRET_MARK} {SECRET_MARK} Bearer ordinary words\n"


def test_what_runs_in_the_background_prints_no_key_into_the_record(world: World) -> None:
    prepare(world)
    command = "cat .env; python3 letters.py; cat missing-$(sed -n 's/KEY=//p' .env); exit 1"
    call = Call(name="Bash", args={"command": command, "run_in_background": True})
    look = Turn(calls=(Call(name="check_background", args={"id": "b1"}),))
    maka = world.open([Turn(calls=(call,)), Turn(text="it runs")], key_env=NAME, env=with_key(world))
    maka.run()
    checks.eventually(lambda: bool(maka.actions("process_ended")), "it ends")
    (end,) = maka.actions("process_ended")
    kept = maka.host.reader.blob(end.output.sha256)
    assert kept is not None and kept.count(SECRET_MARK.encode()) > 2
    maka.model.says(look, Turn(text="seen"))
    maka.run("look")
    assert SECRET_MARK in maka.contents(FunctionResponse)[-1].result
    maka.close()
    assert not parts(world.machine.state)
