"""Bash: run a command in the workspace and tell how it went.

Laws:
- A command runs inside the sandbox, held to its session's boundary; where there is no sandbox it doesn't run. Only a
  session whose profile is bypass runs it as it is.
- Standard input is closed, the environment is exactly the one given, the working directory is the workspace. What the
  command leaves running in its group, its session, or at its output pipe is ended with it: nothing of a foreground call
  outlives it. One that runs in the background is handed over to the table of background shells.
"""

import signal
from collections.abc import Callable, Mapping
from functools import partial

from msgspec.structs import replace

from maka.contracts.actions import RecoveryMode
from maka.contracts.boundary import Boundary, Profile
from maka.contracts.content import Outcome
from maka.contracts.limits import BACKGROUND_TIMEOUT_MAX_S, BASH_TIMEOUT_MAX_S, BASH_TIMEOUT_S, COMMAND_BYTES_MAX
from maka.contracts.masks import NO_MASKS, Masks
from maka.contracts.model_ports import ToolSpec
from maka.contracts.process_ports import Launch, ProcessEnd, Processes, ProcessSpec
from maka.contracts.sandbox_ports import Sandbox
from maka.contracts.tool_ports import ToolCall, ToolEnv, ToolListener, ToolResult
from maka.tools.background import BackgroundTable
from maka.tools.background_shell import Order
from maka.tools.boundary import boundary_of, no_sandbox, refusal_text
from maka.tools.bounds import likely_words, met_words
from maka.tools.boxed import Boxed, looked
from maka.tools.guard import Guards
from maka.tools.inside import Inside
from maka.tools.made import Made
from maka.tools.output import CommandOutput
from maka.tools.policy import Ground
from maka.tools.results import error, no_effect, with_footer
from maka.tools.settler import Later, Settler, at_once
from maka.tools.spawned import SpawnedCall
from maka.tools.survey import as_now

SPEC = ToolSpec(
    name="Bash",
    description=(
        "Run a shell command in the workspace and return its output (stdout and stderr together) and exit code. Input "
        "is closed: nothing can be typed. What the command leaves running is ended when it ends; for a server or a "
        "long job set run_in_background: the call then returns at once with an id for check_background and "
        "stop_background; other calls reach such a server only if the network is granted. Long output keeps its "
        "beginning and end. It runs in a sandbox: the workspace is writable, the rest read-only, there is no network, "
        "no unix socket but socket pairs (Python's multiprocessing: start method fork or spawn, no Manager), "
        "and /tmp is empty at each call. Prefer Read, Edit, Glob and Grep for what they do."
    ),
    parameters={
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1, "description": "The command line."},
            "timeout_ms": {
                "type": "integer",
                "minimum": 1,
                "maximum": int(BACKGROUND_TIMEOUT_MAX_S * 1000),
                "description": (
                    f"Time limit in ms; {int(BASH_TIMEOUT_S * 1000)} if not given, at most "
                    f"{int(BASH_TIMEOUT_MAX_S * 1000)}. In the background none if not given, and more is allowed."
                ),
            },
            "run_in_background": {
                "type": "boolean",
                "description": "Let it go on after this call and this run, until it ends or is stopped.",
            },
        },
        "required": ["command"],
        "additionalProperties": False,
    },
)


class BashTool:
    """The tool Bash. `shell` is an absolute path; `child_env` is all that a command sees of the environment."""

    spec: ToolSpec = SPEC
    recovery_mode: RecoveryMode = "outcome_unknown"
    exclusive: bool = False

    def __init__(
        self,
        processes: Processes,
        shell: str,
        child_env: Mapping[str, str],
        sandbox: Sandbox,
        ground: Ground,
        table: BackgroundTable,
        masks: Masks = NO_MASKS,
        made: Made | None = None,
        settler: Settler | None = None,
    ) -> None:
        self._processes = processes
        self._shell = shell
        self._child_env = dict(child_env)
        self._sandbox = sandbox
        self._ground = ground
        self._guards = Guards(made)
        self._settler = settler or Settler()
        self._table = table
        self._masks = masks

    def refusal(self, call: ToolCall, env: ToolEnv) -> ToolResult | None:
        """Return why the command can't be run; None where it can, in a sandbox or by a bypass."""
        timeout_ms = None if call.args.get("run_in_background") else call.args.get("timeout_ms")
        if (wrong := _wrong(str(call.args["command"]), timeout_ms)) is not None:
            return error(f"{wrong}; nothing was run")
        if boundary_of(env).profile is not Profile.BYPASS and self._sandbox.missing is not None:
            return no_sandbox(self._sandbox.missing, "No command was run")
        return None

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        """Look at the workspace, spawn and return; the rest is the I/O thread's, but what is put right at the end."""
        if (refusal := self.refusal(call, env)) is not None:
            listener.ended(refusal)
            return no_effect
        command, timeout_ms = str(call.args["command"]), call.args.get("timeout_ms")
        in_background = bool(call.args.get("run_in_background"))
        boundary = boundary_of(env)
        if in_background:
            boundary = _lasting(boundary)
        argv = (self._shell, "-c", command)
        box: _Box | None = None
        later, processes = at_once, self._processes
        if boundary.profile is not Profile.BYPASS:
            begin = partial(self._inside, boundary, command)
            box = _Box(begin, self._sandbox, argv, env.cwd, self._child_env)
            later = self._settler.do
            processes = Boxed(processes, box.launch, later, box.drop)
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        if not in_background and timeout_s is None:
            timeout_s = BASH_TIMEOUT_S
        spec = ProcessSpec(launch=Launch(argv=argv), cwd=env.cwd, env=self._child_env, timeout_s=timeout_s)
        if not in_background:
            return self._foreground(spec, command, box, listener, later).start(processes, spec)
        order = Order(
            call_id=call.call_id,
            session_id=env.session_id,
            command=command,
            settle=partial(_settle, box, self._masks),
            later=later,
            look=None if box is None else box.look,
            masks=self._masks,
        )
        return self._table.start(order, listener, processes, spec)

    def _inside(self, boundary: Boundary, command: str) -> Inside:
        return Inside(boundary, as_now(self._ground), self._guards, command, self._sandbox)

    def _foreground(
        self, spec: ProcessSpec, command: str, box: "_Box | None", listener: ToolListener, later: Later
    ) -> SpawnedCall:
        output = CommandOutput(listener.output, self._masks)
        timeout_s = BASH_TIMEOUT_S if spec.timeout_s is None else spec.timeout_s

        def finish(end: ProcessEnd) -> ToolResult:
            output.close()
            result = _result(output, end, timeout_s, box is not None)
            # What never began, and couldn't be ended all the same, has left nothing; its look is over.
            return result if box is None or end.cause == "not_started" else box.settled(result, output.errors)

        return SpawnedCall(listener, command, output.take, finish, later)


class _Box:
    """How a command gets into its sandbox, as often as that has to be tried, and what becomes of the last try.

    Each look counts as a command that runs until it is settled or dropped, whatever fails.
    """

    def __init__(
        self,
        begin: Callable[[], Inside],
        sandbox: Sandbox,
        argv: tuple[str, ...],
        cwd: str,
        child_env: Mapping[str, str],
    ) -> None:
        self._begin = begin
        self._sandbox = sandbox
        self._argv = argv
        self._cwd = cwd
        self._child_env = child_env
        self._inside: Inside | None = None

    def launch(self) -> Launch:
        """Look at the workspace, and return how the command is started. Raises NoLaunchError."""
        return looked(self._launch)

    def _launch(self) -> Launch:
        self.drop()
        self._inside = self._begin()
        return self._sandbox.wrap(self._argv, self._inside.policy(self._cwd), self._child_env)

    def look(self) -> bool:
        """Put right what can't wait until the end; say whether the command has to end."""
        inside = self._begun()
        return inside.must_look and inside.look()

    def drop(self) -> None:
        """End the last look: its command never began, or nothing more is to be put right."""
        if self._inside is not None:
            self._inside.drop()

    def settled(self, result: ToolResult, errors: str) -> ToolResult:
        """Put right what the command left, and return what is told of it."""
        try:
            return self._begun().settled(result, errors)
        finally:
            self.drop()

    def verdict(self, text: str, *, failed: bool, exit_code: int | None) -> list[str]:
        """Put right what the command left, and return what to say about it."""
        inside = self._begun()
        try:
            found = inside.verdict(text, failed=failed, exit_code=exit_code)
        finally:
            self.drop()
        return [inside.note(), "" if found is None else refusal_text(*found)]

    def _begun(self) -> Inside:
        assert self._inside is not None, "it was launched"
        return self._inside


def _wrong(command: str, timeout_ms: int | None) -> str | None:
    """Say why a command can't be started, and what to do; `timeout_ms` is that of a foreground command."""
    if "\0" in command:
        return "the command holds a NUL byte, which no process can be given: remove it"
    if (size := len(command.encode("utf-8", "surrogatepass"))) > COMMAND_BYTES_MAX:
        most = f"{COMMAND_BYTES_MAX:,} bytes"
        return f"the command has {size:,} bytes, and a process can be given {most}: Write it to a file and run that"
    if timeout_ms is not None and timeout_ms > BASH_TIMEOUT_MAX_S * 1000:
        return f"timeout_ms is at most {int(BASH_TIMEOUT_MAX_S * 1000)}: for more, set run_in_background"
    return None


def _lasting(boundary: Boundary) -> Boundary:
    """Return a boundary without what was granted for one run: the process outlives it."""
    return replace(boundary, grants=tuple(grant for grant in boundary.grants if grant.scope != "once"))


def _settle(box: _Box | None, masks: Masks, end: ProcessEnd, text: str) -> str | None:
    """Put right what a background command left, and return what to say about its end."""
    failed = end.cause == "exited" and (end.signal is not None or bool(end.exit_code))
    words = [met_words(end.limit) if end.limit is not None else likely_words(text, end) if failed else ""]
    if box is not None:
        words += box.verdict(text, failed=failed, exit_code=end.exit_code)
    return masks("; ".join(filter(None, words))) or None


def _result(output: CommandOutput, end: ProcessEnd, timeout_s: float, boxed: bool) -> ToolResult:
    text, whole = output.for_model()
    outcome, note = _verdict(end, timeout_s, boxed)
    if end.survivors:
        pids = ", ".join(str(pid) for pid in end.survivors)
        note += f"; these processes could not be ended and may still run: {pids}"
        outcome = Outcome.OUTCOME_UNKNOWN
    if outcome is Outcome.ERROR:
        text = with_footer(text, note, likely_words(text, end))
    elif outcome is not Outcome.OK:
        text = with_footer(text, note)
    elif not text:
        text = "[no output, exit code 0]"
    exit_code = end.exit_code if end.signal is None else 128 + end.signal
    return ToolResult(outcome=outcome, text=text, whole=whole, exit_code=exit_code)


def _verdict(end: ProcessEnd, timeout_s: float, boxed: bool) -> tuple[Outcome, str]:
    if end.limit is not None:
        return Outcome.ERROR, met_words(end.limit)
    if end.cause == "timeout":
        return Outcome.TIMEOUT, f"timed out after {timeout_s:g} s and was ended; above is what it printed until then"
    if end.cause == "cancelled":
        return Outcome.ABORTED, "stopped and ended; above is what it printed until then"
    if end.cause != "exited":
        return Outcome.OUTCOME_UNKNOWN, "how the command ended is not known; check its effects before repeating it"
    if end.signal is not None:
        return Outcome.ERROR, f"killed by signal {end.signal} ({_signal_name(end.signal)})"
    code = end.exit_code or 0
    if boxed and 129 < code < 128 + signal.SIGRTMIN:
        # A sandbox's own init ends as a shell does that tells of a killed child; with 129 git says that it wasn't asked
        # right.
        return Outcome.ERROR, f"exit code {code}, as of signal {code - 128} ({_signal_name(code - 128)})"
    return (Outcome.OK, "") if code == 0 else (Outcome.ERROR, f"exit code {code}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
