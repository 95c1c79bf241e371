"""What the panel of a running job says."""

from __future__ import annotations

from pages.widgets.compare.progress import decode_words, side_line
from pages.widgets.shared.run_job import SideView


def side(tokens: int, decode_s: float, state: str = "running") -> SideView:
    return SideView("a", state, 9.0, (), "text", 40, tokens=tokens, decode_s=decode_s)  # type: ignore[arg-type]


def test_decode_says_tokens_rate_share_and_the_longest_time_left() -> None:
    assert decode_words(side(200, 2.0), 1000) == (
        "200 tokens, 100 tokens/s, 20.0 % of the limit, at most 8.00 s left"
    )
    assert decode_words(side(200, 2.0), None) == "200 tokens, 100 tokens/s"
    assert decode_words(side(1000, 10.0, "done"), 1000) == "1,000 tokens, 100 tokens/s, 100 % of the limit"
    assert decode_words(side(0, 0.0), 1000) == "40 characters"
    assert "<span class='dsocr-note'>40 characters</span>" in side_line(side(0, 0.0), "far", 1000)
