"""Answers of servers without sense."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from dsocr_core.backends.exchange import Reading, document
from tests.hostile.damage import damaged

_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1e400, 10**30, "", "\ud800", "a\0b", "x" * 20_000, [], {}, [[]], {"\udfff": 1}, [None],
    {"ngram_size": "\ud800"}, {"whitelist_token_ids": [2**40]}, {"type": "text"}, ["\ud83d"],
)  # fmt: skip
_ENDS = ("stop", "", "null", None, "abort", {"type": "length"}, 3, [], "\ud800")


def attempt(random: Random, folder: Path) -> str | None:
    """Read one answer. Raises DsocrError when it is refused."""
    reading = Reading()
    for _ in range(random.randint(1, 5)):
        choice = {"delta": {random.choice(("content", "thinking")): random.choice(_VALUES)}}
        choice["finish_reason"] = random.choice(_ENDS)
        data = {
            "choices": random.choice(([choice], [choice], None, [], [None], {})),
            "usage": random.choice(_VALUES),
        }
        if random.random() < 0.2:  # Ollama's own form
            data = {"message": choice["delta"], "done_reason": choice["finish_reason"], **data}
        reading.add(document(damaged(random, json.dumps(data).encode())))
    return None
