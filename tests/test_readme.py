"""README says what is so: its example runs, its tests exist, its tables and its map of rooms are complete."""

import ast
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import get_args

import pytest
from msgspec import inspect
from msgspec.structs import fields

import maka
from maka.config import LOG_LEVELS, TOOL_LIMIT_VARIABLES, presets
from maka.contracts.errors import ExitCode
from maka.contracts.model_ports import ModelProfile
from maka.contracts.session_events import RunEnded, SessionEvent
from maka.contracts.tool_limits import ToolLimits
from maka.edges.scripted_model import Call, ScriptedModel, Turn, by_step

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
ROOMS = ("maka", "actors", "projections")
WAIT_S = 60.0
COMMON_KEYS = {"sessionId", "runId", "turnId", "ts", "position"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def section(title: str) -> str:
    """Return the text below a heading, through the next heading of any level."""
    return README.partition(f"# {title}\n")[2].partition("\n#")[0]


def first_cells(text: str) -> set[str]:
    """Return every name in backquotes of the first column of a section's tables."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    (example,) = blocks("python")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "plums.txt").write_text("two\n", "utf-8")
    look = Turn(text="I look.", calls=(Call(name="Glob", args={"pattern": "*"}),))
    write = Turn(calls=(Call(name="Write", args={"path": "list.txt", "content": "plums.txt\n"}),))
    model = ScriptedModel.start(by_step([look, write, Turn(text="One file: plums.txt.")]))
    profile = f'[models.local]\nbase_url = "{model.base_url}"\nmodel = "{model.model}"\n'
    (tmp_path / "config.toml").write_text(profile, "utf-8")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "MAKA_HOME": str(tmp_path / "state"),
        "MAKA_CONFIG": str(tmp_path / "config.toml"),
    }
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", example],
            cwd=workspace,
            env=env,
            capture_output=True,
            timeout=WAIT_S,
            check=False,
        )
    finally:
        model.close()
    assert (done.returncode, done.stderr) == (0, b""), done
    said = done.stdout.decode().splitlines()
    assert said[:4] == ["I look.", "[Glob]", "", "[Write]"]
    made = f"created list.txt: {sha256(b'plums.txt' + bytes([10])).hexdigest()}"
    diff = ["--- /dev/null", "+++ b/list.txt", "@@ -0,0 +1,1 @@", "+plums.txt", ""]
    assert said[4:-5] == ["One file: plums.txt.", made, *diff]
    assert said[-5] == f"an undo would put back {workspace / 'list.txt'}"
    assert said[-4].startswith("file list.txt b'plums.txt"), "in the order of the facts"
    assert said[-3].startswith("diff list.txt b'--- /dev/null")
    assert re.fullmatch(r"\d+ facts are durable", said[-1])
    results = [message["content"] for message in model.requests[-1].messages if message.get("role") == "tool"]
    assert results[0] == "plums.txt\n"


def test_every_name_of_the_example_is_public() -> None:
    (example,) = blocks("python")
    assert set(re.findall(r"maka\.(\w+)", example)) <= set(maka.__all__)


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", README))
    assert named
    for path, function in sorted(named):
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert function in functions, f"{path}::{function}"


def test_every_row_of_the_guarantees_names_a_test() -> None:
    rows = [line for line in section("Guarantees, and the test that shows each").splitlines() if line.startswith("|")]
    bare = [row for row in rows[2:] if "::" not in row and not row.startswith("| **")]
    assert not bare


def test_the_map_of_rooms_is_complete() -> None:
    listed: list[str] = []
    folder = ""
    (text,) = (block for block in blocks("text") if block.startswith("maka/\n"))
    for line in filter(None, text.splitlines()):
        name = line.split()[0]
        if line.startswith(" "):
            listed.append(folder + name)
            assert len(line.split()) > 1, f"{folder}{name} needs a word about its room"
        else:
            folder = name
    found = [
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.suffix in (".py", ".md") and not path.is_relative_to(ROOT / "maka" / "sample")
    ]
    parts = [name for name in found if not name.endswith("__init__.py") or name == "maka/__init__.py"]
    assert sorted(listed) == sorted(parts), "add to, or remove from, the map of rooms in README.md"


def test_every_benchmark_is_explained() -> None:
    files = {f"bench/{path.name}" for path in (ROOT / "bench").glob("[!_]*.py")}
    assert files <= first_cells(section("Numbers"))


def test_every_setting_is_explained() -> None:
    keys = first_cells(section("Settings"))
    assert {field.name for field in fields(ModelProfile) if field.name != "name"} <= keys
    assert all(f"\n{field.name} = " in blocks("toml")[0] for field in fields(ToolLimits))
    assert set(TOOL_LIMIT_VARIABLES.values()) <= keys
    assert {"default = ", "log_level = "} <= set(re.findall(r"^\w+ = ", blocks("toml")[0], re.MULTILINE))
    assert all(level in README for level in LOG_LEVELS)
    assert all(f"`{preset.name}`" in README for preset in presets())
    code = (ROOT / "maka" / "config.py").read_text("utf-8")
    read = set(re.findall(r'\benv\.get\("(\w+)"\)|\("(MAKA_\w+)"\)', code))
    assert {name for pair in read for name in pair if name} <= keys


def test_every_exit_code_is_explained() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", section("Settings"), re.MULTILINE)
    assert rows == [(str(code.value), code.name.lower()) for code in ExitCode]


@pytest.mark.parametrize("kind", get_args(SessionEvent))
def test_every_event_is_explained_with_its_keys(kind: type) -> None:
    shape = inspect.type_info(kind)
    assert isinstance(shape, inspect.StructType)
    table = section("`maka run --json`").splitlines()
    (row,) = (line for line in table if line.startswith("|") and f"`{shape.tag}`" in line.split("|")[1])
    told = set(re.findall(r"`(\w+)`", row.split("|")[2]))
    assert {field.encode_name for field in shape.fields} - COMMON_KEYS <= told


def test_the_last_line_of_a_run_is_shown_with_every_key() -> None:
    (line,) = blocks("json")
    flat = re.sub(r'"usage":\{[^}]*\}', '"usage":0', line)
    assert re.findall(r'[{,]"(\w+)":', flat) == ["type", *(field.encode_name for field in fields(RunEnded))]
