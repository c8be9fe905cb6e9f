"""How fast an answer's deltas come through the whole path, how late they are, and how little of them is durable.

The path: a scripted model in another process, a real socket, the openai client, the I/O loop, BackendActor, RunActor,
ProjectionActor, a Subscription that a thread reads. Each delta carries the time at which the server sent it.

At full speed the server outruns every reader, so a delta's age there is the length of the queue in the socket; that
is why lateness is measured at the pace of a fast model. Deltas are merged for 30 ms, so most of it is that wait.
"""

import argparse
import gc
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from bench._delta_server import STAMP_CHARS
from bench._plain_readers import MODEL, client_rate, socket_rate
from bench._report import machine, quantile
from maka.app import Host, open_host
from maka.config import Config
from maka.contracts.limits import DELTA_MERGE_S, PARTIAL_EVERY_S
from maka.contracts.model_ports import ModelProfile
from maka.contracts.session_events import Abort, Complete, TextDelta
from maka.storage.ledger import LmdbLedger
from maka.subscription import Subscription

PROFILE = "bench"
SILENCE_S = 120.0


class Shown(Struct, frozen=True):
    """What one reader saw: when each of its events came (monotonic ns), and the deltas' text in it."""

    pieces: list[tuple[int, str]]

    def ages_ms(self) -> list[float]:
        """Return how long each delta took from the server's flush to the reader."""
        return [(seen - sent) / 1e6 for seen, text in self.pieces for sent in stamps(text)]


class Outcome(Struct, frozen=True, kw_only=True):
    """One measurement. `commits` are LMDB transactions, `events` ledger positions, `screens` what readers got."""

    deltas: int
    seconds: float
    ages_ms: list[float]
    screens: int
    events: int
    commits: int


def stamps(text: str) -> list[int]:
    return [int(text[start : start + STAMP_CHARS]) for start in range(0, len(text), STAMP_CHARS)]


@contextmanager
def delta_server() -> Generator[str]:
    """Run the server in its own process; yields its base URL."""
    program = Path(__file__).with_name("_delta_server.py")
    with subprocess.Popen(
        [sys.executable, "-P", str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def read(subscription: Subscription, shown: Shown) -> None:
    """Read a run to its end; for a thread of its own."""
    while True:
        event = subscription.get(SILENCE_S)
        now_ns = time.monotonic_ns()
        if isinstance(event, TextDelta):
            shown.pieces.append((now_ns, event.text))
        assert event is not None, "the run went silent"
        assert not isinstance(event, Abort), event
        if isinstance(event, Complete):
            assert event.status == "completed", event
            return


def durable(host: Host) -> tuple[int, int]:
    """Return how many events and how many transactions the ledger has had."""
    assert isinstance(host.reader, LmdbLedger)
    return host.reader.head().position, host.reader.reader.environment.info()["last_txnid"]


def measure(host: Host, folder: Path, streams: int, deltas: int, pace_s: float) -> Outcome:
    """Let several sessions stream at once, each read by a thread."""
    sessions = [host.manager.create_session(str(folder)).session_id for _ in range(streams)]
    shown = [Shown([]) for _ in sessions]
    subscriptions = [host.manager.subscribe(session) for session in sessions]
    readers = [threading.Thread(target=read, args=pair) for pair in zip(subscriptions, shown, strict=True)]
    for reader in readers:
        reader.start()
    gc.collect()
    events, commits = durable(host)
    for session in sessions:
        host.manager.send_message(session, f"{deltas} {pace_s}", profile=PROFILE)
    for reader in readers:
        reader.join()
    events, commits = (now - before for now, before in zip(durable(host), (events, commits), strict=True))
    for subscription in subscriptions:
        subscription.close()
    return outcome(shown, streams * deltas, events, commits)


def outcome(shown: list[Shown], deltas: int, events: int, commits: int) -> Outcome:
    ages = [age for each in shown for age in each.ages_ms()]
    assert len(ages) == deltas, f"{len(ages)} of {deltas} deltas were shown"
    first = min(stamps(each.pieces[0][1])[0] for each in shown)
    last = max(each.pieces[-1][0] for each in shown)
    return Outcome(
        deltas=deltas,
        seconds=(last - first) / 1e9,
        ages_ms=ages,
        screens=sum(len(each.pieces) for each in shown),
        events=events,
        commits=commits,
    )


def report(label: str, found: Outcome) -> None:
    p50, p99, worst = (quantile(found.ages_ms, share) for share in (0.5, 0.99, 1.0))
    print(f"{label}: {found.deltas:,} deltas, {found.deltas / found.seconds:,.0f} deltas/s in {found.seconds:.1f} s")
    print(
        f"    flush to screen p50 {p50:.1f} ms, p99 {p99:.1f} ms, worst {worst:.1f} ms; {found.screens:,} screen events"
    )
    print(
        f"    durable: {found.events} events, {found.commits} commits ({found.deltas / found.commits:,.0f} deltas each)"
    )


def at_full_speed(host: Host, folder: Path, base_url: str, deltas: int, streams: int) -> None:
    socket_alone, client = socket_rate(base_url, deltas), client_rate(base_url, deltas)
    print(f"the server alone, read by a bare socket: {socket_alone:,.0f} deltas/s")
    print(f"the openai client's own parsed stream: {client:,.0f} deltas/s")
    for count, each in ((1, deltas), (streams, max(1, deltas // 10))):
        found = measure(host, folder, count, each, 0.0)
        report(f"{count} stream{'s' * (count > 1)} at full speed", found)
        rate = found.deltas / found.seconds
        print(f"    whole path / bare socket {rate / socket_alone:.2f}x, / parsed stream {rate / client:.2f}x")


def at_a_pace(host: Host, folder: Path, streams: int, seconds: float) -> None:
    print(f"at a model's pace (merged for up to {DELTA_MERGE_S * 1e3:.0f} ms; stored every {PARTIAL_EVERY_S:g} s)")
    for count, pace_s in ((1, 0.05), (1, 0.01), (streams, 0.05), (streams, 0.02)):
        found = measure(host, folder, count, round(seconds / pace_s), pace_s)
        report(f"{count} stream{'s' * (count > 1)}, a delta each {pace_s * 1e3:.0f} ms", found)


def config_of(folder: Path, base_url: str) -> Config:
    profile = ModelProfile(name=PROFILE, base_url=base_url, model=MODEL)
    return Config(
        state_root=folder / "state",
        config_file=folder / "config.toml",
        config_dir=folder,
        profiles={PROFILE: profile},
        child_env={},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deltas", type=int, default=10_000, help="deltas of one answer (a tenth where many stream)")
    parser.add_argument("--streams", type=int, default=100, help="streams at once")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each paced measurement")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to measure (default: the temporary folder)")
    options = parser.parse_args()
    print(machine(options.dir))
    with tempfile.TemporaryDirectory(prefix="maka-bench-", dir=options.dir) as name, delta_server() as base_url:
        folder = Path(name)
        with open_host(config_of(folder, base_url)) as host:
            measure(host, folder, 1, 10, 0.0)  # imports the client's library
            at_full_speed(host, folder, base_url, options.deltas, options.streams)
            at_a_pace(host, folder, options.streams, options.seconds)


if __name__ == "__main__":
    main()
