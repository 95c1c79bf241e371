"""When the host waits while one page decodes: for a group's tokens alone, and never inside a group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import dsocr_core.engine.fast.decode as decode_module
from dsocr_core.engine.fast.decode import FastDecoder, Timestamp
from dsocr_core.engine.generate import NO_TOKEN, Sequence
from dsocr_core.reading.ngram_rule import NgramRule

PROMPT = (3, 9, 4, 7)


class ScriptedGraph:
    """A graph whose replays write 10, 11, ... and which says what was asked of it, in order.

    Of its step nothing can be read but a slice of the tokens: whatever else would wait for a device fails.
    """

    def __init__(self, log: list[str]) -> None:
        self._log, self._held = log, torch.zeros(64, dtype=torch.int64)
        self._next = len(PROMPT) + 1
        self.step = SimpleNamespace(
            cache=object(), device=torch.device("cpu"), tokens=self, begin_with=self._begin
        )

    def _begin(self, prompt: tuple[int, ...], first: torch.Tensor, limit: int, policy: Any) -> None:
        self._held[len(prompt)] = first

    def replay(self, count: int) -> None:
        for _ in range(count):
            self._log.append("step")
            self._held[self._next] = 5 + self._next
            self._next += 1

    def __getitem__(self, at: slice) -> torch.Tensor:
        return self._held[at]


def test_a_group_is_read_while_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    decoder = FastDecoder.__new__(FastDecoder)
    decoder._graph = cast("Any", graph := ScriptedGraph(log))
    decoder._eos, decoder._group = NO_TOKEN, 3
    copy = decode_module._to_host

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        log.append("copy")
        return copy(tensor)

    monkeypatch.setattr(decode_module, "_to_host", copied)
    monkeypatch.setattr(Timestamp, "wait", lambda _: log.append("wait"))
    sequence = cast("Sequence", SimpleNamespace(cache=graph.step.cache, rule=NgramRule(0)))
    logits = torch.eye(16)[9]
    assert list(decoder.tokens(sequence, PROMPT, logits, 9)) == [9, *range(10, 18)]
    group = ["step"] * 3 + ["copy"]
    # The first token, then eight steps: two groups of three and one of two, each read one group later.
    assert log == [
        "copy", *group, "wait", *group, "wait", "step", "step", "copy", "wait", "wait",
    ]  # fmt: skip
