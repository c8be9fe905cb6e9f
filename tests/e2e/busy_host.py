"""A host in a process of its own, to be killed: one run that is held in mid-stream, and messages that wait behind it.

`python -m tests.e2e.busy_host URL WORKSPACE TEXT...` prints the session's id once every text is acknowledged.
"""

import sys
import threading

from maka.app import open_host
from maka.config import load_config, with_profile
from maka.contracts.model_ports import ModelProfile
from maka.contracts.session_events import TextDelta


def main(url: str, workspace: str, *texts: str) -> None:
    """Fill a session and hang."""
    profile = ModelProfile(name="scripted", base_url=url, model="scripted", first_event_s=0.0)
    host = open_host(with_profile(load_config(), profile))
    session = host.manager.create_session(workspace)
    first, *others = texts
    with host.manager.subscribe(session.session_id) as events:
        host.manager.send_message(session.session_id, first, profile="scripted")
        while not isinstance(events.get(), TextDelta):
            pass
        for text in others:
            host.manager.send_message(session.session_id, text, profile="scripted")
    print(session.session_id, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
