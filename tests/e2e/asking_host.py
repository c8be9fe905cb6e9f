"""A host in a process of its own, to be killed: one run that asks, and gets some of the answers.

`python -m tests.e2e.asking_host WORKSPACE TEXT [ANSWER...]` answers as many questions, and prints the id of the request
that waits then. The model is the profile `scripted` of the configuration.
"""

import sys
import threading

from maka.app import open_host
from maka.config import load_config
from maka.contracts.session_events import SandboxBoundaryRequest, UserQuestionAsked


def main(workspace: str, text: str, *answers: str) -> None:
    """Ask and hang."""
    host = open_host(load_config())
    session = host.manager.create_session(workspace).session_id
    left = list(answers)
    with host.manager.subscribe(session) as events:
        host.manager.send_message(session, text, profile="scripted")
        while not isinstance(event := events.get(), UserQuestionAsked | SandboxBoundaryRequest) or left:
            if isinstance(event, UserQuestionAsked):
                host.manager.answer(session, event.request_id, answers=(left.pop(0),), client="host")
    print(event.request_id, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
