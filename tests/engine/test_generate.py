"""Token limits and the decode loop on a scripted model."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import dsocr_core.engine.generate as generate
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.engine.generate import UNBOUNDED_DECODE_CEILING, decode, token_limit
from dsocr_core.engine.sampling import NgramRule
from dsocr_core.models.config import DecoderConfig
from dsocr_core.models.family import parse_config
from dsocr_core.reading.records import UNLIMITED
from tests.support.seeded_weights import tiny_config

EOS = 1


@pytest.fixture
def config() -> DecoderConfig:
    return parse_config(tiny_config()).decoder


class Scripted:
    """A model that wants to write one token after another, whatever it is fed."""

    device = torch.device("cpu")

    def __init__(self, script: list[int]) -> None:
        self.script = script
        self.fed: list[int] = []
        self.rule = NgramRule(0)
        self.best = None

    def following(self, _model: object) -> Callable[[int], torch.Tensor]:
        return self.step

    def step(self, token: int) -> torch.Tensor:
        self.fed.append(token)
        return self.logits()

    def logits(self) -> torch.Tensor:
        logits = torch.zeros(16)
        logits[self.script[len(self.fed)]] = 1.0
        return logits

    def run(self, limit: int, cancel: threading.Event | None = None) -> tuple[list[int], str, list[int]]:
        seen: list[int] = []
        first = self.logits()
        tokens, reason = decode(self, self, first, limit, EOS, seen.append, cancel)  # type: ignore[arg-type]
        return tokens, reason, seen


def test_stops_at_the_end_token_and_keeps_it() -> None:
    model = Scripted([5, 6, EOS, 7])
    tokens, reason, seen = model.run(limit=10)
    assert (tokens, reason) == ([5, 6, EOS], "eos")
    assert seen == tokens
    assert model.fed == [5, 6]  # the end token is never fed back


def test_stops_at_the_limit() -> None:
    assert Scripted([5, 6, 7, 8]).run(limit=3)[:2] == ([5, 6, 7], "length")


def test_end_token_at_the_limit_counts_as_the_end() -> None:
    assert Scripted([5, EOS]).run(limit=2)[:2] == ([5, EOS], "eos")


def test_cancel_stops_before_the_next_token() -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        Scripted([5, 6]).run(limit=2, cancel=cancel)


def test_a_number_is_the_limit_itself(config: DecoderConfig) -> None:
    assert token_limit(12, 100, config) == 12


def test_inf_is_what_the_context_still_holds(config: DecoderConfig) -> None:
    assert token_limit(UNLIMITED, 1000, config) == 8192 - 1000


@pytest.mark.parametrize("bad", [0, -3])
def test_a_limit_below_one_is_refused(config: DecoderConfig, bad: int) -> None:
    with pytest.raises(DsocrError, match=str(bad)):
        token_limit(bad, 1, config)


def test_a_prompt_that_fills_the_context_is_refused(config: DecoderConfig) -> None:
    with pytest.raises(DsocrError, match="smaller preset"):
        token_limit(UNLIMITED, 8192, config)


def test_inf_without_a_context_limit_warns_once(
    config: DecoderConfig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "_warned_unbounded", False)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert token_limit(UNLIMITED, 10, replace(config, max_positions=None)) == UNBOUNDED_DECODE_CEILING
    assert [record.levelname for record in caplog.records] == ["WARNING"]
