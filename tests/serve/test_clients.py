"""Clients of others against `serve`: what their users see, one at a time and twenty."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable
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


CLIENTS = [_openai, _openai_async, _openai_stream, _litellm, _curl]


@pytest.mark.parametrize("ask", CLIENTS, ids=lambda ask: ask.__name__)
@pytest.mark.parametrize("at_a_time", [1, 20])
def test_a_client_reads_a_page(ask: Asked, at_a_time: int) -> None:
    with served(Settings(device="cpu"), Answering()) as server, ThreadPoolExecutor(at_a_time) as pool:
        answers = list(pool.map(lambda _: ask(server), range(at_a_time)))
    assert answers == [(TEXT, 3)] * at_a_time


def test_what_is_refused_is_a_clients_own_error() -> None:
    openai = pytest.importorskip("openai")
    with (
        served(Settings(device="cpu"), Answering()) as server,
        openai.OpenAI(base_url=server.address, api_key="none", max_retries=0) as client,
    ):
        for change, kind in (({"temperature": 1}, "BadRequestError"), ({"model": "x"}, "NotFoundError")):
            with pytest.raises(getattr(openai, kind)):
                client.chat.completions.create(**(_asked() | change))
