"""A diff is of the file that it names, whatever its name: `git apply` changes that one and no other."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maka.tools.diffs import unified

FORGED = (
    "zz\n@@ -0,0 +1,1 @@\n+x\n--- a/real.py\n+++ b/real.py\n@@ -1,1 +1,1 @@\n-good\n+evil\n--- /dev/null\n+++ b/tail"
)
NAMES = [
    *("plain.py", "with blank.txt", " around ", "gemüse 野菜.txt", "👩\u200d🚀", "-o", "a\\nb", 'say "hi"', '"', "\\"),
    *("tab\there", "line\nbreak", "cr\rhere", "end\n", "bell\a\x1b[31m", "txt\u202egpj", "sep\u2028x", "\x7f"),
    *(
        "day 2020-01-01 10:00:00 +0000",
        "day\t2020-01-01 10:00:00 +0000",
        "a b/c d",
        "dev/null",
        "x\n--- a/real.py",
        FORGED,
    ),
]
signs = st.one_of(st.sampled_from('ab \t\n\r"\\-+@/0\u202eé'), st.characters(exclude_categories=["Cs"]))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def applied(folder: Path, diff: str | None) -> None:
    assert diff is not None
    subprocess.run(["git", "apply", "-"], cwd=folder, input=diff.encode(), check=True, capture_output=True)


def check(folder: Path, name: str) -> None:
    """Make, change and remove a file by diffs, beside one that stays."""
    folder.mkdir()
    (folder / "real.py").write_text("good\n")
    rest = contents(folder)
    steps = [(None, b"one\n"), (b"one\n", b""), (b"", b"two\n"), (b"two\n", None), (None, b""), (b"", None)]
    for before, after in steps:
        applied(folder, unified(name, before, after).text)
        assert contents(folder) == rest | ({} if after is None else {name: after})


@pytest.mark.parametrize("name", NAMES)
def test_a_diff_of_an_odd_name_changes_that_file_alone(tmp_path: Path, name: str) -> None:
    check(tmp_path / "tree", name)
    head = str(unified(name, b"one\n", b"two\n").text).split("\n")
    assert [line[:4] for line in head] == ["--- ", "+++ ", "@@ -", "-one", "+two", ""]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_empty_file_comes_and_goes_among_others(tmp_path: Path, name: str, at: int) -> None:
    """It has no hunk: neither is it lost, nor is another file's header taken for its own."""
    old = {"one": b"1\n", "sub dir/gone": b"g\n", "real.py": b"good\n"}
    new = {"one": b"2\n", "sub dir/made": b"m\n", "real.py": b"good\n"}
    for path, data in old.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    others = [(path, old.get(path), new.get(path)) for path in ("one", "sub dir/gone", "sub dir/made")]
    for before, after, pairs in (
        (None, b"", others),
        (b"", None, [(path, then, now) for path, now, then in others]),
    ):
        parts = [unified(path, then, now).text or "" for path, then, now in pairs]
        its = [unified(name, before, after).text or "", unified("e/__init__.py", before, after).text or ""]
        applied(tmp_path, "".join([*parts[:at], *its, *parts[at:]]))
        made = {name: b"", "e/__init__.py": b""} if after is not None else {}
        assert contents(tmp_path) == {**(new if made else old), **made}


@pytest.mark.parametrize("name", ["plain.py", "gemüse-野菜.txt", "-o"])
def test_an_ordinary_name_stands_as_it_is(name: str) -> None:
    assert str(unified(name, b"", b"x\n").text).startswith(f"--- a/{name}\n+++ b/{name}\n")


@settings(max_examples=40)
@given(st.text(signs, min_size=1, max_size=12))
def test_any_name_that_a_file_can_have(tmp_path_factory: pytest.TempPathFactory, drawn: str) -> None:
    name = "/".join(part for part in drawn.replace("\0", "").split("/") if part.strip("."))
    if name and name.lower() != "real.py" and ".git" not in name.lower() and len(name.encode()) < 200:
        check(tmp_path_factory.mktemp("names") / "tree", name)
