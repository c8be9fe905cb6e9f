"""A host in a process of its own, to be killed: a session without limits whose model starts a background shell.

`python -m tests.e2e.background_host URL WORKSPACE` prints the session's id once the run has ended.
"""

import sys
import threading

from maka.app import open_host
from maka.config import load_config, with_profile
from maka.contracts.model_ports import ModelProfile
from maka.contracts.session_events import Complete


def main(url: str, workspace: str) -> None:
    """Run once, and hang."""
    profile = ModelProfile(name="scripted", base_url=url, model="scripted", first_event_s=0.0)
    host = open_host(with_profile(load_config(), profile))
    session = host.manager.create_session(workspace, boundary="bypass")
    with host.manager.subscribe(session.session_id) as events:
        host.manager.send_message(session.session_id, "start it", profile="scripted")
        while not isinstance(events.get(), Complete):
            pass
    print(session.session_id, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
