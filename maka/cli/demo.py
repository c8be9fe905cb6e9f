"""`maka demo`: the whole path on a sample project, with a scripted model; what `make run` shows."""

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path

import click

from maka.cli.options import Number
from maka.contracts.errors import Refusal, RefusalCode, RefusedError

_SAMPLE = "bookings"
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".pytest_cache", "*.pyc")
_OPENING = """\
The offline demo. The model's words are SCRIPTED: a server on this machine speaks them.
Everything else is real: the client and its socket, the tools, the tests and the edit, the actors and the ledger.
A fresh copy of the sample project is in {folder}
"""
_NO_SANDBOX = """\
There is NO SANDBOX on this machine: {missing}.
So that the demo can run its tests, its session has the profile BYPASS: these commands run with all of your rights.
"""
_CLOSING = """
Those were a scripted model's words; everything else happened. Look at the record:
  {maka} sessions              every session
  {maka} show @last            the conversation, the tools, the ending
  {maka} log @last             the facts themselves; --at N shows what was known at any of them
  {maka} export @last          the same as JSON lines
  {maka} verify                check the whole ledger
Your own task, with your own model:
  make run TASK="..." DIR=path    or    {maka} run "..."
"""


@click.command(hidden=True)
@click.option("--pace", "pace_s", type=Number(min=0), default=0.02, help="Seconds between pieces of text.")
@click.option("--json", "as_json", is_flag=True, help="One event per line instead of the timeline.")
def demo(pace_s: float, as_json: bool) -> int:
    """Run the sample task offline; the model is scripted."""
    from maka.cli.output import note
    from maka.cli.run import RunOptions, perform
    from maka.config import load_config, with_own_python_first, with_profile
    from maka.contracts.model_ports import ModelProfile
    from maka.edges.demo_script import TASK, demo_script
    from maka.edges.sandbox import find_sandbox
    from maka.edges.scripted_model import ScriptedModel

    if importlib.util.find_spec("pytest") is None:
        message = f"The sample's tests need pytest: {sys.executable} -m pip install pytest"
        raise RefusedError(Refusal(code=RefusalCode.NOT_READY, message=message))
    config = load_config()
    folder = copy_sample(Path(tempfile.mkdtemp(prefix="maka-demo-")))
    say = note if as_json else write_text
    say(_OPENING.format(folder=folder))
    missing = find_sandbox().missing
    if missing is not None:
        say(_NO_SANDBOX.format(missing=missing))
    model = ScriptedModel.start(demo_script(pace_s))
    try:
        profile = ModelProfile(name="scripted", base_url=model.base_url, model=model.model, first_event_s=0.0)
        options = RunOptions(as_json=as_json, timeline=True, boundary=None if missing is None else "bypass")
        known = with_own_python_first(with_profile(config, profile))
        code = perform(known, profile.name, options, str(folder.resolve()), TASK)
    finally:
        model.close()
    say(_CLOSING.format(maka=own_command()))
    return code


def write_text(text: str) -> None:
    """Write a line to stdout."""
    from maka.cli.output import write

    write(text + "\n")


def copy_sample(parent: Path) -> Path:
    """Copy the sample project into a folder and return the copy."""
    folder = parent / _SAMPLE
    shutil.copytree(Path(__file__).resolve().parents[1] / "sample", folder, ignore=_LEFT_OUT)
    return folder


def own_command() -> str:
    """Return the command line that starts this installation's maka from here."""
    script = Path(sys.executable).parent / "maka"
    found = shutil.which("maka")
    if found is not None and Path(found).absolute() == script:
        return "maka"
    if not script.exists():
        return f"{sys.executable} -P -m maka"
    here = Path.cwd()
    return str(script.relative_to(here)) if script.is_relative_to(here) else str(script)
