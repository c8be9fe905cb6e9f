"""The JSON lines of one whole scripted run, frozen: whoever changes a key changes this file and says why."""

import json
import re
from pathlib import Path
from typing import Any, cast

import msgspec

from maka.edges.scripted_model import Call, ScriptedModel, Turn, by_step
from tests.cli.real import Machine

GOLDEN = Path(__file__).parent / "golden" / "run.jsonl"
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
SHA256 = re.compile(r"\b[0-9a-f]{64}\b")
TIMED = ("ts", "durationMs", "input", "output", "total")
"""Values that differ from run to run: times, and tokens that count a machine's paths."""


def test_the_json_lines_of_a_run(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    script = by_step(
        [
            Turn(
                thinking="A file is wanted.",
                text="I write it.",
                calls=(Call(name="Write", args={"path": "note.txt", "content": "plum\n"}),),
            ),
            Turn(calls=(Call(name="Bash", args={"command": "cat note.txt; exit 3"}),)),
            Turn(text="Done: the note says plum."),
        ]
    )
    model = ScriptedModel.start(script)
    try:
        done = machine.run(model, "--json", "write a note")
    finally:
        model.close()
    assert done.code == 0, done
    lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in normal(done.lines, machine))
    (tmp_path / "found.jsonl").write_text(lines, "utf-8")
    assert lines == GOLDEN.read_text("utf-8"), f"compare {tmp_path / 'found.jsonl'} with {GOLDEN}"


def normal(lines: list[dict[str, Any]], machine: Machine) -> list[dict[str, Any]]:
    """Return the lines without what differs from run to run: ids, times, paths, and how deltas were cut."""
    ids: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        return ids.setdefault(match.group(), f"<id {len(ids) + 1}>")

    def clean(key: str, value: Any) -> Any:
        match value:
            case dict():
                inner = cast("dict[str, Any]", value)
                return {inside: clean(inside, item) for inside, item in inner.items()}
            case list():
                return [clean(key, item) for item in msgspec.convert(value, list[Any])]
            case str():
                named = SHA256.sub("<sha256>", ID.sub(name, value))
                return named.replace(str(machine.workspace.resolve()), "<workspace>")
            case _:
                return 0 if key in TIMED and value is not None else value

    return [clean("", line) for line in _merged(lines)]


def _merged(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join neighbouring deltas of one stream: where they are cut is a matter of time."""
    merged: list[dict[str, Any]] = []
    for line in lines:
        last = merged[-1] if merged else {}
        same = all(last.get(key) == line.get(key) for key in ("type", "messageId", "callId", "stream"))
        if same and line["type"].endswith("_delta"):
            merged[-1] = {**last, "text": last["text"] + line["text"]}
        else:
            merged.append(line)
    return merged
