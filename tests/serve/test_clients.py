"""Clients of others against `serve`: what their users see, twenty at a time."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dsocr_core.settings import Settings
from tests.support.served import TEXT, Answering, Served, body_for, served

Asked = Callable[[Served], tuple[str, int]]
"""One client's way to ask for a page: gives its text and the tokens of the usage."""


def _asked() -> dict[str, Any]:
    return {**body_for(b"x"), "temperature": 0, "max_tokens": 50}


def _openai(server: Served) -> tuple[str, int]:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=server.address, api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(**_asked(), tools=[], n=1, response_format={"type": "text"})
        assert [model.id for model in client.models.list()] == ["mini"]
    return answer.choices[0].message.content, answer.usage.completion_tokens


def _openai_async(server: Served) -> tuple[str, int]:
    openai = pytest.importorskip("openai")

    async def ask() -> Any:
        async with openai.AsyncOpenAI(base_url=server.address, api_key="none", max_retries=0) as client:
            return await client.chat.completions.create(**_asked())

    answer = asyncio.run(ask())
    return answer.choices[0].message.content, answer.usage.completion_tokens


def _openai_stream(server: Served) -> tuple[str, int]:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=server.address, api_key="none", max_retries=0) as client:
        more = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(client.chat.completions.create(**_asked(), **more))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return text, chunks[-1].usage.completion_tokens


def _litellm(server: Served) -> tuple[str, int]:
    litellm = pytest.importorskip("litellm")
    asked = _asked() | {"model": "openai/mini"}
    answer = litellm.completion(**asked, api_base=server.address, api_key="none", num_retries=0)
    return answer.choices[0].message.content, answer.usage.completion_tokens


def _curl(server: Served) -> tuple[str, int]:
    if shutil.which("curl") is None:
        pytest.skip("curl is not here")
    given = ["curl", "-sS", "--noproxy", "*", f"{server.address}/chat/completions", "--data-binary", "@-"]
    made = subprocess.run(
        [*given, "-H", "Content-Type: application/json"],
        input=json.dumps(_asked()).encode(), capture_output=True, check=True,
    )  # fmt: skip
    answer = json.loads(made.stdout)
    return answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"]


def _vllm_bench(server: Served) -> tuple[str, int]:
    """What `vllm bench serve --backend openai-chat` asks and takes, from its `benchmarks/serve.py` and
    `lib/endpoint_request_func.py`; its readiness probe is the first request once more."""
    root = server.address.removesuffix("/v1")
    (model,) = server.client.get(f"{root}/v1/models").json()["data"]
    assert server.client.post(f"{root}/tokenize", json={}).status_code == 404
    assert "vllm:spec_decode" not in server.client.get(f"{root}/metrics").raise_for_status().text
    image, text = body_for(b"x")["messages"][0]["content"]
    image["image_url"]["url"] = image["image_url"]["url"].replace("image/png", "image/jpeg")
    payload = {
        "model": model["root"] and model["id"], "messages": [{"role": "user", "content": [text, image]}],
        "max_completion_tokens": 128, "stream": True, "stream_options": {"include_usage": True},
        "temperature": 0.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "frequency_penalty": 0.0,
        "presence_penalty": 0.0, "repetition_penalty": 1.0, "ignore_eos": False,
    }  # fmt: skip
    written, tokens, came = "", 0, 0
    headers = {"Authorization": "Bearer none", "x-request-id": "benchmark-serving0"}
    with server.client.stream("POST", f"{root}/v1/chat/completions", json=payload, headers=headers) as answer:
        assert answer.status_code == 200
        for message in answer.read().decode().split("\n\n"):
            chunk = message.strip().removeprefix("data: ")
            if chunk and chunk != "[DONE]":
                data = json.loads(chunk)
                if choices := data.get("choices"):
                    came += 1
                    written += choices[0]["delta"].get("content") or ""
                elif asked := data.get("usage"):
                    tokens = asked["completion_tokens"]
                    assert asked["prompt_tokens"] is not None
    assert came > 2  # a first token and later ones, for its times between tokens
    return written, tokens


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(Settings(device="cpu"), Answering()) as running:
        yield running


CLIENTS = [_openai, _openai_async, _openai_stream, _litellm, _curl, _vllm_bench]


@pytest.mark.parametrize("ask", CLIENTS, ids=lambda ask: ask.__name__)
def test_twenty_of_a_client_read_a_page(server: Served, ask: Asked) -> None:
    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(lambda _: ask(server), range(20))) == [(TEXT, 3)] * 20


def test_more_tokens_than_a_page_has_are_refused_by_name(server: Served) -> None:
    """`vllm bench serve --ignore-eos` would measure text of no page."""
    answer = server.post(body_for(b"x", ignore_eos=True))
    assert answer.status_code == 400 and answer.json()["error"]["message"].startswith("ignore_eos is True")


def test_what_is_refused_is_a_clients_own_error(server: Served) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=server.address, api_key="none", max_retries=0) as client:
        for change, kind in (({"temperature": 1}, "BadRequestError"), ({"model": "x"}, "NotFoundError")):
            with pytest.raises(getattr(openai, kind)):
                client.chat.completions.create(**(_asked() | change))
