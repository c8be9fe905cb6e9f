"""Kind T through the whole path: a provider's key reaches the provider, and nothing else."""

from pathlib import Path

from maka.contracts.codec import export_line
from maka.contracts.content import Error, FunctionResponse
from maka.edges.scripted_model import Call, Fault, Reply, ScriptRequest, Turn
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
