"""A scripted model in a process of its own, as a provider is; each delta's text is the time at which it was sent.

The prompt says what to stream: "COUNT PACE_S". Prints its base URL, and ends at the end of its standard input.
"""

import sys
import time
from collections.abc import Iterator

from maka.edges.scripted_model import DONE, Pause, Raw, Reply, ScriptedModel, ScriptRequest, Step, chunk, frame

STAMP_CHARS = 20
"""One delta's text: the machine's monotonic clock in ns, which every process sees alike, and a space."""


def stamp() -> str:
    return f"{time.monotonic_ns():0{STAMP_CHARS - 1}d} "


def steps(count: int, pace_s: float) -> Iterator[Step]:
    yield chunk({"role": "assistant", "content": ""})
    for _ in range(count):
        yield chunk({"content": stamp()})
        if pace_s:
            yield Pause(pace_s)
    yield chunk({}, "stop")
    usage = {"prompt_tokens": 10, "completion_tokens": count, "total_tokens": count + 10}
    yield frame({"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "choices": [], "usage": usage})
    yield DONE


def script(request: ScriptRequest) -> Reply:
    count, pace_s = str(request.messages[-1]["content"]).split()
    return Raw(steps=steps(int(count), float(pace_s)))


def main() -> None:
    server = ScriptedModel.start(script)
    print(server.base_url, flush=True)
    sys.stdin.read()
    server.close()


if __name__ == "__main__":
    main()
