"""A host in a process of its own, under load until it is killed: many sessions, each with run after run.

`python -m tests.crash.child URL WORKSPACE ROUND SESSIONS` says on stdout what was acknowledged, a line each, written
at once: `opening`, `open`, `accepted COMMAND SESSION POSITION`, `ended RUN POSITION`.
"""

import os
import sys
import threading
from itertools import count

from maka.app import Host, open_host
from maka.config import load_config, with_profile
from maka.contracts.model_ports import ModelProfile
from maka.contracts.session_events import Abort, Complete
from projections import session_index


def say(*words: object) -> None:
    """Write one line in one piece, whichever thread says it."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def work(host: Host, session_id: str, name: str) -> None:
    """Send message after message, each when the run before it has ended."""
    manager = host.manager
    with manager.subscribe(session_id, after_position=host.reader.head().position) as events:
        for number in count(1):
            command_id = f"{name}-{number}"
            accepted = manager.send_message(session_id, f"work {command_id}", profile="scripted", command_id=command_id)
            say("accepted", command_id, session_id, accepted.position)
            while not isinstance(event := events.get(), Complete | Abort) or event.position is None:
                pass
            say("ended", event.run_id, event.position)


def main(url: str, workspace: str, round_number: str, sessions: str) -> None:
    """Open the host, go on with the sessions that are there, make those that are missing, and load them all."""
    profile = ModelProfile(name="scripted", base_url=url, model="scripted", first_event_s=0.0)
    say("opening")
    host = open_host(with_profile(load_config(), profile))
    say("open")
    known = [session_index.decode(data).session_id for data in host.reader.header_bytes()]
    while len(known) < int(sessions):
        known.append(host.manager.create_session(workspace).session_id)
    for number, session_id in enumerate(known[: int(sessions)]):
        name = f"r{round_number}-s{number}"
        threading.Thread(target=work, args=(host, session_id, name), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
