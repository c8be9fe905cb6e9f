"""Each benchmark runs to its end, on a small scale where it has one: a broken one is found before it is needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL: dict[str, tuple[str, ...]] = {
    "append": ("--batches", "2", "--events", "4000"),
    "append_actors": ("--runs", "1", "3", "128", "--rounds", "1", "--seconds", "0.05"),
    "recovery": ("--closed", "20", "--open", "3", "--rounds", "1"),
    "replay": (),
    "sandbox": ("--rounds", "2"),
    "spawn": ("--rounds", "5"),
    "stop": ("--stops", "2", "--runs", "1", "3", "--live", "4"),
    "stream": ("--deltas", "40", "--streams", "3", "--seconds", "0.2"),
}


def test_each_benchmark_is_here() -> None:
    names = {path.stem for path in (ROOT / "bench").glob("*.py") if not path.stem.startswith("_")}
    assert names == set(SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_runs_to_its_end(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", str(ROOT / "bench" / f"{name}.py"), *SMALL[name]],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "machine: " in done.stdout
    assert not list(tmp_path.glob("maka-bench-*"))
