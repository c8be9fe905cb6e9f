"""`import maka`: whole, lazy, and the same objects as in the modules that define them."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import maka

ROOT = Path(__file__).resolve().parents[1]


def _promised() -> dict[str, str]:
    """What type checkers are told: public name -> module."""
    tree = ast.parse((ROOT / "maka" / "__init__.py").read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return {
        alias.name: node.module or "" for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def test_importing_maka_loads_the_standard_library_alone() -> None:
    code = "import sys; before = set(sys.modules); import maka; print(*(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=True
    )
    loaded = set(done.stdout.decode().split())
    assert "maka" in loaded
    assert {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names} == {"maka"}


def test_what_is_promised_to_type_checkers_is_what_is_public() -> None:
    assert sorted(_promised()) == maka.__all__
    assert set(maka.__all__) <= set(dir(maka))


@pytest.mark.parametrize(("name", "home"), sorted(_promised().items()))
def test_a_public_name_is_that_of_its_module(name: str, home: str) -> None:
    assert getattr(maka, name) is getattr(importlib.import_module(home), name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'maka' has no attribute 'open_hots'"):
        getattr(maka, "open_hots")  # noqa: B009
