"""A scripted model in a process of its own, which brings a run into the phase that the prompt's first word names.

Prints its base URL; then, for each request, "asked NAME" and, when its client has left, "left NAME NS", where NAME is
the prompt's second word and NS the machine's monotonic clock, which every process sees alike. Ends with its input.
"""

import sys
import threading
import time

from maka.edges.scripted_model import Call, Fault, Gate, Raw, Repeat, Reply, ScriptedModel, ScriptRequest, Turn, chunk

PACE_S = 0.02
"""Fifty deltas a second."""
DELTA = "twelve chars"
SLEEP = "echo begun; exec sleep 86400"
DEAF = "trap '' TERM; echo begun; while :; do sleep 1; done"


def prompt(request: ScriptRequest) -> list[str]:
    """Return the words of the newest user message."""
    said = [str(message.get("content")) for message in request.messages if message.get("role") == "user"]
    return said[-1].split()


def answer(request: ScriptRequest) -> Reply:
    match prompt(request)[0]:
        case "head":
            return Raw(steps=(), head_gate=Gate())
        case "retry":
            return Fault(status=429, error={"message": "busy"}, headers={"Retry-After": "60"})
        case "tool":
            return Turn(calls=(Call(name="Bash", args={"command": SLEEP}),))
        case "deaf":
            return Turn(calls=(Call(name="Bash", args={"command": DEAF}),))
        case "steps":
            return Turn(calls=(Call(name="Read", args={"path": "note.txt"}),))
        case _:
            return Raw(steps=(chunk({"role": "assistant"}), Repeat(chunk({"content": DELTA}), PACE_S)))


def main() -> None:
    telling = threading.Lock()

    def tell(*words: object) -> None:
        with telling:
            print(*words, flush=True)

    def watch(name: str, gone: threading.Event) -> None:
        gone.wait()
        tell("left", name, time.monotonic_ns())

    def script(request: ScriptRequest) -> Reply:
        name = prompt(request)[1]
        if prompt(request)[0] in ("stream", "head"):
            threading.Thread(target=watch, args=(name, request.http.gone), daemon=True).start()
        tell("asked", name)
        return answer(request)

    server = ScriptedModel.start(script, keep=1)
    tell(server.base_url)
    sys.stdin.read()
    server.close()


if __name__ == "__main__":
    main()
