"""Bodies sent to `serve` with fields of any type and half characters; answers of servers without sense."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from random import Random
from typing import Any

from dsocr_core.backends.endpoint.answers import Lines, Reading, document
from dsocr_core.base.untrusted import parse_json
from dsocr_core.serve.app import error_document
from dsocr_core.serve.requests import BadRequest, chat_request
from tests.hostile.damage import damaged
from tests.support.served import body_for

_NAMES = (
    "model", "messages", "max_tokens", "stream", "stream_options", "vllm_xargs", "preset", "template",
    "tools", "temperature", "ngram_whitelist", "top_logprobs", "response_format", "stop", "\ud800",
    "x" * 300, "",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1e400, 10**30, "", "\ud800", "a\0b", "x" * 20_000, [], {}, [[]], {"\udfff": 1}, [None],
    {"ngram_size": "\ud800"}, {"whitelist_token_ids": [2**40]}, {"type": "text"}, ["\ud83d"],
)  # fmt: skip
_ENDS = ("stop", "", "null", None, "abort", {"type": "length"}, 3, [], "\ud800")


def attempt(random: Random, folder: Path) -> str | None:
    """One body taken apart as the server does, or one answer read. Raises DsocrError when it is refused."""
    if random.random() < 0.3:
        return _answer(random)
    body: dict[str, Any] = body_for(random.randbytes(random.choice((0, 1, 300))))
    for _ in range(random.randint(1, 3)):
        _change(random, body)
    content = json.dumps(body).encode()
    try:
        asked = chat_request(
            parse_json(damaged(random, content) if random.random() < 0.3 else content, any_number=True)
        )
    except BadRequest as error:
        json.dumps(error_document(str(error), error.status), ensure_ascii=False).encode()
        raise
    (asked.prompt + asked.model).encode()
    return None if asked.image else "a request without an image was taken"


def _change(random: Random, body: dict[str, Any]) -> None:
    value = copy.deepcopy(random.choice(_VALUES))
    part = random.choice((body, body, *(body["messages"][0]["content"] if _whole(body) else ())))
    part[random.choice(_NAMES if part is body else ("type", "text", "image_url"))] = value


def _whole(body: dict[str, Any]) -> bool:
    try:
        return all(isinstance(part, dict) for part in body["messages"][0]["content"])
    except (TypeError, LookupError):
        return False


def _answer(random: Random) -> str | None:
    reading, lines = Reading(), Lines()
    for _ in range(random.randint(1, 5)):
        choice = {"delta": {random.choice(("content", "thinking")): random.choice(_VALUES)}}
        choice["finish_reason"] = random.choice(_ENDS)
        data = {
            "choices": random.choice(([choice], [choice], None, [], [None], {})),
            "usage": random.choice(_VALUES),
        }
        for line in lines.push(damaged(random, json.dumps(data).encode()) + b"\n"):
            (reading.take if random.random() < 0.8 else reading.take_native)(document(line))
    return None
