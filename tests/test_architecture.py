"""The import graph is the architecture; this test is its statement.

Standard library only (`ast`), so that it runs wherever pytest runs. A new room needs a place in LAYERS; a new vendor
that must stay in one room needs a line in VENDOR_OWNERS.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pykka
import pytest

ROOT = Path(__file__).resolve().parents[1]
TOPS = ("maka", "actors", "projections")

# Lowest first. A module may import its own entry and every lower row; entries on one row never import one another.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("maka.contracts",),
    ("maka.tool_environment",),
    ("projections", "maka.config"),
    ("actors", "maka.storage", "maka.edges", "maka.tools"),
    ("maka.subscription", "maka.given", "maka.file_diffs", "maka.artifact_content"),
    ("maka.session_reads",),
    ("maka.session_manager",),
    ("maka.host",),
    ("maka.adapters",),
    ("maka.app",),
    ("maka.cli",),
    ("maka.__main__",),
)
# Stricter than the rows: who alone may import an entry, and what an entry may not see although it lies lower.
READERS = {"maka.config": ("maka.cli", "maka.app", "maka.adapters")}
BLIND_TO = {"maka.host": ("actors", "maka.storage", "maka.edges", "maka.tools")}

# A name that ends in "_" stands for every module whose name starts so.
VENDOR_OWNERS = {
    "lmdb": ("maka.storage",),
    "openai": ("maka.edges.openai_",),
    "httpx2": ("maka.edges.openai_",),
    "pykka": ("actors", "maka.app"),
    "click": ("maka.cli",),
    "rich": ("maka.cli",),
}

PURE = (
    "maka.contracts",
    "projections",
    "actors.run_protocol",
    "actors.session_protocol",
    "actors.mapper",
    "actors.step_loop",
    "actors.tool_gate",
    "actors.too_long",
)
IMPURE_STDLIB = frozenset(
    {"asyncio", "os", "pathlib", "random", "secrets", "socket", "subprocess", "threading", "time", "uuid"}
)
PURE_VENDORS = frozenset({"msgspec"})

FILE_LINES_GOAL, FILE_LINES_MAX = 300, 330
FUNCTION_LINES_GOAL, FUNCTION_LINES_MAX = 40, 50

# Written in two parts, so that this file names none of them.
REGISTRY_HOSTS = tuple(
    f"{name}.{domain}"
    for name, domain in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("deb.debian", "org"),
        ("crates", "io"),
    )
)
MACHINE_PATH = re.compile(r"(?<![\w.})$~/-])/(?:work|root|home)/\w")


@dataclass(frozen=True, kw_only=True)
class Module:
    """One source file of the distribution, parsed once."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text("utf-8"), filename=str(self.path))

    @property
    def package(self) -> str:
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


def _modules() -> list[Module]:
    return [
        Module(name=".".join(relative.with_suffix("").parts).removesuffix(".__init__"), path=ROOT / relative)
        for top in TOPS
        for relative in sorted(path.relative_to(ROOT) for path in (ROOT / top).rglob("*.py"))
        # The sample project is data: it is copied and run, never imported.
        if relative.parts[:2] != ("maka", "sample")
    ]


MODULES = _modules()
each_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)


def _names(node: ast.AST, package: str) -> Iterator[str]:
    """Every dotted name that an import statement may bind a module of."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parts = package.split(".")
        base = parts[: len(parts) - node.level + 1] if node.level else []
        origin = ".".join([*base, *([node.module] if node.module else [])])
        if origin != "maka":  # `from maka import x` is an import of maka.x, not of the public API
            yield origin
        yield from (f"{origin}.{alias.name}" for alias in node.names)


def _imports(module: Module) -> set[str]:
    return {name for node in ast.walk(module.tree) for name in _names(node, module.package)}


def _inside(name: str, owner: str) -> bool:
    return name.startswith(owner) if owner.endswith("_") else name == owner or name.startswith(owner + ".")


def _layer(name: str) -> tuple[int, str] | None:
    return next(
        ((rank, entry) for rank, row in enumerate(LAYERS) for entry in row if _inside(name, entry)),
        None,
    )


def _top(name: str) -> str:
    return name.partition(".")[0]


@each_module
def test_every_module_has_a_layer(module: Module) -> None:
    assert module.name == "maka" or _layer(module.name) is not None, f"{module.name} needs a place in LAYERS"


@each_module
def test_a_module_imports_only_lower_layers(module: Module) -> None:
    own = _layer(module.name)
    if own is None:
        return  # maka/__init__.py; its own test is below
    for target in sorted(_imports(module)):
        found = _layer(target)
        if found is None:
            assert _top(target) not in TOPS, f"{module.name} imports {target}, which has no layer"
            continue
        rank, entry = found
        assert entry == own[1] or rank < own[0], f"{module.name} may not import {target}: {entry} isn't below {own[1]}"
        assert entry not in BLIND_TO.get(own[1], ()), f"{own[1]} never sees {entry}, but {module.name} imports {target}"
        readers = READERS.get(entry)
        assert readers is None or own[1] in (entry, *readers), f"{entry} is read by {readers} alone, not {module.name}"


def _import_time_nodes(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run, or may run, while the module is imported; not those for type checkers alone."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING"):
            yield from _import_time_nodes(statement.orelse)
            continue
        yield statement
        for field in ("body", "orelse", "finalbody"):
            yield from _import_time_nodes(getattr(statement, field, []))
        for handler in getattr(statement, "handlers", []):
            yield from _import_time_nodes(handler.body)


def test_the_public_api_is_lazy() -> None:
    (public,) = (module for module in MODULES if module.name == "maka")
    eager = {name for node in _import_time_nodes(public.tree.body) for name in _names(node, "maka")}
    foreign = {name for name in eager if _top(name) not in sys.stdlib_module_names}
    assert not foreign, f"maka/__init__.py imports {sorted(foreign)} at import; import them on first use"


@each_module
def test_vendors_stay_with_their_owners(module: Module) -> None:
    for target in sorted(_imports(module)):
        owners = VENDOR_OWNERS.get(_top(target))
        assert owners is None or any(_inside(module.name, owner) for owner in owners), (
            f"{module.name} imports {target}, which belongs to {owners}"
        )


@each_module
def test_pure_modules_stay_pure(module: Module) -> None:
    if not any(_inside(module.name, pure) for pure in PURE):
        return
    for target in sorted(_imports(module)):
        top = _top(target)
        allowed = top in TOPS or top in PURE_VENDORS or (top in sys.stdlib_module_names and top not in IMPURE_STDLIB)
        assert allowed, f"{module.name} is pure and may not import {target}: ids and `now` are arguments"


@each_module
def test_only_config_reads_the_environment(module: Module) -> None:
    if module.name == "maka.config":
        return
    forbidden = {"environ", "environb", "getenv", "getenvb"}
    reads = [
        node.lineno for node in ast.walk(module.tree) if isinstance(node, ast.Attribute) and node.attr in forbidden
    ]
    names = {f"os.{name}" for name in forbidden} & _imports(module)
    assert not reads and not names, f"{module.path}: {reads or names}: the environment is read in maka/config.py only"


@each_module
def test_files_and_functions_stay_short(module: Module) -> None:
    lines = len(module.path.read_text("utf-8").splitlines())
    assert lines <= FILE_LINES_MAX, f"{module.path}: {lines} lines; the goal is {FILE_LINES_GOAL}: it is two files"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES_MAX, (
                f"{module.path}:{node.lineno} {node.name}: {length} lines; the goal is {FUNCTION_LINES_GOAL}"
            )


def test_tests_never_sleep() -> None:
    sleeps: list[str] = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep"
            if called or "time.sleep" in _names(node, "tests"):
                sleeps.append(f"{path}:{getattr(node, 'lineno', 0)}")
    assert not sleeps, f"use a barrier or virtual time instead of time.sleep: {sleeps}"


def _project_files() -> list[Path]:
    """The files that are, or would be, in the repository; all of them where git isn't to be had."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        tops = [ROOT / name for name in (*TOPS, "tests", "bench", ".ci")]
        found = [path for top in tops for path in top.rglob("*") if "__pycache__" not in path.parts]
        return [path for path in (*ROOT.glob("*"), *found) if path.is_file()]
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    found: list[str] = []
    for path in _project_files():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path}: {host}" for host in REGISTRY_HOSTS if host in text]
        found += [f"{path}: {match.group()}" for match in MACHINE_PATH.finditer(text)]
    assert not found, found


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (pykka.Actor, "_create_actor_inbox _create_future _start_actor_loop"),
        (pykka.Actor, "_actor_loop _actor_loop_setup _actor_loop_running _actor_loop_teardown"),
        (pykka.ThreadingActor, "_create_actor_inbox _create_future _start_actor_loop"),
        (pykka.ThreadingFuture[object](), "_result _get_hook"),
        (pykka.ActorRegistry, "_actor_refs _actor_refs_lock"),
    ],
    ids=["runtime", "loop", "threads", "future", "registry"],
)
def test_pykka_keeps_the_seams_that_the_deterministic_world_uses(owner: object, names: str) -> None:
    gone = [name for name in names.split() if not hasattr(owner, name)]
    assert not gone, f"this version of pykka lacks {gone}: mend tests/sim first"


def test_pykka_runs_one_message_per_turn_and_lets_the_inbox_interrupt() -> None:
    """The loop asks the inbox outside its own error handling, so an inbox that raises hands control back."""

    class Interrupted(Exception):
        pass

    class Inbox:
        def put(self, envelope: object, /) -> None: ...

        def get(self) -> object:
            raise Interrupted

        def empty(self) -> bool:
            return True

    class Idle(pykka.ThreadingActor):
        @staticmethod
        def _create_actor_inbox() -> Inbox:  # type: ignore[override]
            return Inbox()

        def turn(self) -> None:
            self._actor_loop_running()

    idle = Idle()
    with pytest.raises(Interrupted):
        idle.turn()
    assert not idle.actor_stopped.is_set()
