"""What Glob and Grep share: one ripgrep process, its output taken record by record, ended when enough has been seen.

Laws:
- Links are never followed, so a loop is seen once. Ignore rules (.gitignore, .ignore) hold during the walk, also out of
  a repository; hidden files are seen, `.git` isn't. The order is that of the paths, so a repeated search says the same.
- ripgrep is given a path, which may be swapped for a link until it is opened: so its process can read nothing but what
  the session may, and the start is looked at before and after. Where there is no sandbox to hold it, it doesn't run,
  but for a session whose profile is bypass. A file is found by a walk of its folder, which follows no link and waits
  for no pipe.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.boundary import Boundary, Expansion, Grant, Profile
from maka.contracts.content import Outcome
from maka.contracts.limits import SEARCH_ERROR_CHARS_MAX, SEARCH_RECORD_CHARS_MAX, SEARCH_TIMEOUT_S
from maka.contracts.masks import NO_MASKS, Masks
from maka.contracts.process_ports import Launch, ProcessEnd, Processes, ProcessSpec
from maka.contracts.sandbox_ports import Sandbox
from maka.contracts.tool_ports import ToolEnv, ToolListener, ToolResult
from maka.tools.boundary import PathError, Place, boundary_of, explain, locate, no_sandbox
from maka.tools.bounds import likely_words, met_words
from maka.tools.boxed import Boxed, looked
from maka.tools.output import SafeText
from maka.tools.policy import Ground, covers, is_under, sandbox_policy
from maka.tools.results import error, with_footer
from maka.tools.settler import Settler
from maka.tools.spawned import SpawnedCall
from maka.tools.survey import as_now, protected_paths, survey
from maka.tools.walk import Walk

COMMON = ("--no-config", "--color=never", "--hidden", "--no-require-git", "--glob=!.git", "--sort=path")

_CUT_BY_RIPGREP = re.compile(r" \[\.\.\. (?:omitted end of long line|\d+ more match(?:es)?)\]\Z")
_GLOB_SIGNS = re.compile(r"[][*?{}\\!\s]")

# Only Linux can hold what it isn't allowed to read, and a pipe without waiting for it.
_LOOK = os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)

Keep = Callable[[str], str | None]
"""Makes a line of the answer of one record, or nothing."""


class Start(Struct, frozen=True):
    """Where a search begins, as it was found: `folder` is that, or the one that holds the file."""

    place: Place
    is_folder: bool
    folder: tuple[int, int]

    @classmethod
    def at(cls, place: Place) -> "Start":
        """Look at a place, following no link. Raises PathError, also for what is neither a folder nor a file."""
        above, it = _looked_at(place)
        if not stat.S_ISDIR(it.st_mode) and not stat.S_ISREG(it.st_mode):
            raise PathError(f"{place.shown} is not a regular file (a pipe, socket or device)")
        is_folder = stat.S_ISDIR(it.st_mode)
        its = it if is_folder else above
        return cls(place, is_folder, (its.st_dev, its.st_ino))

    def must_be_there(self) -> None:
        """Raise PathError if something else stands there by now; a file may have a new content, as an inode, too."""
        try:
            now: Start | None = Start.at(self.place)
        except PathError:
            now = None
        if now != self:
            raise PathError(f"path_changed: {self.place.shown} was swapped while it was searched: try again")


def _looked_at(place: Place) -> tuple[os.stat_result, os.stat_result]:
    """Return what stands at a place, and what above it."""
    fd = os.open("/", _LOOK)
    try:
        above = it = os.fstat(fd)
        for part in place.parts:
            inner = os.open(part, _LOOK, dir_fd=fd)
            os.close(fd)
            fd, above, it = inner, it, os.fstat(inner)
            if stat.S_ISLNK(it.st_mode):
                raise PathError(f"path_changed: {part} in {place.shown} turned into a link: try again")
        return above, it
    except OSError as error:
        raise PathError(explain(error, place)) from None
    finally:
        os.close(fd)


class Ripgrep:
    """Where ripgrep is, and how its processes are started: inside the sandbox."""

    def __init__(
        self,
        processes: Processes,
        path: str | None,
        child_env: Mapping[str, str],
        sandbox: Sandbox,
        ground: Ground,
        masks: Masks = NO_MASKS,
        settler: Settler | None = None,
    ) -> None:
        self.processes = processes
        self.settler = settler or Settler()
        self.path = path
        self.child_env = dict(child_env)
        self.sandbox = sandbox
        self._ground = ground
        self.masks = masks

    @property
    def ground(self) -> Ground:
        """What is hidden, as its links lead now."""
        return as_now(self._ground)

    def place(self, env: ToolEnv, path: object) -> Place:
        """Locate where a search begins; the workspace if no path is given. Raises PathError."""
        return locate(env, str(path) if path else ".", "read", self._ground)

    def missing(self, env: ToolEnv, instead: str) -> ToolResult | None:
        """Say why there is no search, and what to do `instead`; None where there is one."""
        if self.path is None:
            return error(f"ripgrep (rg) is missing; {instead} with a command instead")
        if self.sandbox.missing is not None and boundary_of(env).profile is not Profile.BYPASS:
            return no_sandbox(self.sandbox.missing, "Nothing was searched")
        return None

    def refusal(self, env: ToolEnv, path: object, instead: str) -> ToolResult | None:
        """Say why a search can't begin there; None where it can."""
        if (missing := self.missing(env, instead)) is not None:
            return missing
        try:
            self.place(env, path)
        except PathError as refusal:
            return refusal.result
        return None

    def can_list(self, env: ToolEnv, folder: str) -> bool:
        """Say whether what else a folder holds may be seen."""
        return os.access(folder, os.R_OK) and covers(boundary_of(env), folder, "read", self.ground)

    def confined(self, env: ToolEnv, argv: tuple[str, ...], cwd: str) -> Launch:
        """Return what searches, writes nothing and reads only what the session may, and ignore rules above that.

        Raises OSError where the workspace changes at that moment.
        """
        boundary = boundary_of(env)
        if boundary.profile is Profile.BYPASS:
            return Launch(argv=argv)
        ground = self.ground
        argv = (argv[0], *_without_secrets(boundary, cwd, ground), *argv[1:])
        reading = replace(boundary, profile=Profile.EXPLORE, grants=tuple(_reads(grant) for grant in boundary.grants))
        # Of programs only the one that is started.
        ground = replace(ground, programs=())
        found = survey(seen := Walk(reading), ground, protected_paths(seen, ground))
        policy = sandbox_policy(reading, cwd, found, ground)
        program = os.path.realpath(argv[0])
        others = [
            path for path in (program, *self._rules_above(cwd, ground)) if not self._is_seen(path, policy.readable)
        ]
        readable = tuple(dict.fromkeys((*policy.readable, *others)))
        policy = replace(policy, readable=readable, reads_only=True)
        return self.sandbox.wrap((program, *argv[1:]), policy, self.child_env)

    def _rules_above(self, folder: str, ground: Ground) -> Iterator[str]:
        """Yield the files above a folder, and the person's own, whose rules ripgrep goes by."""
        config = self.child_env.get("XDG_CONFIG_HOME") or os.path.join(self.child_env.get("HOME", "/"), ".config")
        found = [os.path.join(config, "git/ignore")]
        names: tuple[str, ...] = (".ignore", ".rgignore", ".gitignore", ".git/info/exclude")
        while folder != "/":
            if os.path.lexists(os.path.join(folder, ".git")):
                names = names[:2]  # a repository's rules end with it
            folder = os.path.dirname(folder)
            found += [os.path.join(folder, name) for name in names]
        for path in found:
            is_closed = any(is_under(path, one) for one in (*ground.own, *ground.secrets))
            if os.path.isfile(path) and os.path.realpath(path) == path and not is_closed:
                yield path

    @staticmethod
    def _is_seen(path: str, readable: Sequence[str]) -> bool:
        return any(is_under(path, one) for one in readable)


def _without_secrets(boundary: Boundary, cwd: str, ground: Ground) -> list[str]:
    closed = [path for path in (*ground.own, *ground.secrets) if is_under(path, cwd) and path != cwd]
    hidden = [path for path in closed if not covers(boundary, path, "read", ground)]
    return [f"--glob=!{exactly(os.path.relpath(path, cwd))}" for path in hidden]


class Search:
    """One search under way. Everything but `start` and its cancel function runs on the I/O thread."""

    def __init__(
        self, listener: ToolListener, masks: Masks, separator: str, keep: Keep, lines_max: int, begin: Start
    ) -> None:
        self._listener = listener
        self._begin = begin
        self._masks = masks
        self._out, self._err = SafeText(masks.stream()), SafeText(masks.stream())
        self._separator = separator
        self._keep = keep
        self._lines_max = lines_max
        self._lines: list[str] = []
        self._rest = ""
        self._errors = ""
        self._enough = False
        self._cancel_process: Callable[[], None] | None = None

    def start(self, ripgrep: Ripgrep, env: ToolEnv, cwd: str, arguments: tuple[str, ...]) -> Callable[[], None]:
        """Spawn; returns the cancel function."""
        assert ripgrep.path is not None, "the caller has checked it"
        call = SpawnedCall(self._listener, " ".join(("rg", *arguments)), self._take, self._finish)
        self._cancel_process = call.cancel_process
        argv = (ripgrep.path, *COMMON, *arguments)

        def launch() -> Launch:
            return looked(lambda: ripgrep.confined(env, argv, cwd))

        spec = ProcessSpec(launch=Launch(argv=argv), cwd=cwd, env=ripgrep.child_env, timeout_s=SEARCH_TIMEOUT_S)
        return call.start(Boxed(ripgrep.processes, launch, ripgrep.settler.do), spec)

    def _take(self, stream: str, data: bytes) -> None:
        if stream != "stdout":
            self._errors = (self._errors + self._err.take(data))[-SEARCH_ERROR_CHARS_MAX:]
            return
        if self._enough:
            return
        *records, self._rest = (self._rest + self._out.take(data)).split(self._separator)
        if len(self._rest) > SEARCH_RECORD_CHARS_MAX:
            self._rest = self._masks.cut(self._rest[:SEARCH_RECORD_CHARS_MAX])
        for record in records:
            line = self._keep(self._whole(record))
            if line is None:
                continue
            if len(self._lines) >= self._lines_max:
                self._enough = True
                if self._cancel_process is not None:
                    self._cancel_process()
                return
            self._lines.append(line)

    def _whole(self, record: str) -> str:
        """Return a record that doesn't end in half a secret where ripgrep has cut it."""
        cut = _CUT_BY_RIPGREP.search(record)
        return record if cut is None else self._masks.cut(record[: cut.start()]) + cut[0]

    def _finish(self, end: ProcessEnd) -> ToolResult:
        self._errors += self._err.take(b"", final=True)
        outcome, notes = self._verdict(end)
        if outcome is not Outcome.OUTCOME_UNKNOWN:
            try:
                self._begin.must_be_there()
            except PathError as changed:
                return changed.result
        if outcome is Outcome.ERROR and not self._lines:
            return error("\n".join(filter(None, notes)))
        if not self._lines and not notes:
            notes = ["nothing found"]
        body = "".join(line + "\n" for line in self._lines)
        return ToolResult(outcome=outcome, text=with_footer(body, *notes) if notes else body)

    def _verdict(self, end: ProcessEnd) -> tuple[Outcome, list[str]]:
        if end.survivors:
            return Outcome.OUTCOME_UNKNOWN, [f"the search could not be ended: process {end.survivors[0]} still runs"]
        if end.limit is not None:
            return Outcome.ERROR, [met_words(end.limit)]
        if self._enough:
            return Outcome.OK, [f"cut after {self._lines_max} results: narrow the search to see the others"]
        if end.cause == "timeout":
            return Outcome.TIMEOUT, [f"cut: the search took longer than {SEARCH_TIMEOUT_S:g} s. Narrow it"]
        if end.cause == "cancelled":
            return Outcome.ABORTED, ["cut: the search was stopped"]
        # ripgrep's 1 means that nothing was found, and is silent.
        if end.exit_code == 0 or (end.exit_code == 1 and not self._errors):
            return Outcome.OK, []
        said = self._errors.strip()
        if self._lines:
            return Outcome.OK, [f"some files could not be searched: {said[:500]}"]
        return Outcome.ERROR, [f"the search failed (exit code {end.exit_code}): {said}", likely_words(said, end)]


def exactly(path: str) -> str:
    """Return the pattern of ripgrep that means a path, relative to where it runs."""
    return "/" + _GLOB_SIGNS.sub(_escaped, path)


def _escaped(sign: re.Match[str]) -> str:
    # An escaped space at the end of a pattern is one, and any other white space is taken away.
    return f"[{sign[0]}]" if sign[0].isspace() else "\\" + sign[0]


def _reads(grant: Grant) -> Grant:
    entries = tuple(replace(entry, access="read") for entry in grant.expansion.filesystem)
    return replace(grant, expansion=Expansion(filesystem=entries))
