"""Token limits and the decode loop on a scripted model."""

import pytest
import torch

from dsocr_core.base.errors import DsocrError
from dsocr_core.engine.generate import finish_reason, generate, token_limit
from dsocr_core.engine.ngram_rule import NgramRule
from dsocr_core.models.config import DecoderConfig
from dsocr_core.models.family import parse_config
from dsocr_core.reading.records import UNLIMITED
from tests.support.seeded_weights import tiny_config

EOS = 1


@pytest.fixture
def config() -> DecoderConfig:
    return parse_config(tiny_config()).decoder


@pytest.mark.parametrize(
    ("script", "limit", "expected", "reason"),
    [
        ([5, 6, EOS, 7], 10, [5, 6, EOS], "eos"),
        ([5, 6, 7, 8], 3, [5, 6, 7], "length"),
        ([5, EOS], 2, [5, EOS], "eos"),  # at the limit it is the end still
        ([5], 1, [5], "length"),
    ],
)
def test_generation_ends_at_the_end_token_or_the_limit(
    script: list[int], limit: int, expected: list[int], reason: str
) -> None:
    """The last token is never fed back."""
    wanted, fed = torch.eye(16)[script], list[int]()

    def following(token: int) -> torch.Tensor:
        fed.append(token)
        return wanted[len(fed)]

    tokens = list(generate(following, wanted[0], NgramRule(0), limit, EOS))
    assert (tokens, finish_reason(tokens, EOS)) == (expected, reason)
    assert fed == expected[:-1]


def test_a_limit_is_the_number_or_what_the_context_still_holds(config: DecoderConfig) -> None:
    assert token_limit(12, 100, config) == 12
    assert token_limit(UNLIMITED, 1000, config) == 8192 - 1000
    for asked, prompt, says in ((0, 1, "is 0"), (-3, 1, "is -3"), (UNLIMITED, 8192, "smaller preset")):
        with pytest.raises(DsocrError, match=says):
            token_limit(asked, prompt, config)
