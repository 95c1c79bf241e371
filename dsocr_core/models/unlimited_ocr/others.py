"""Ways in which other engines read it: docs/why.md has the sources. Cheap and likely ones first."""

from dsocr_core.models.hypotheses import OF_ALL, ROLES, Group, Hypothesis, ngram_hypothesis
from dsocr_core.models.resolution import Preset

PRESETS = {
    f"gundam-{most}": Preset(f"gundam-{most}", 1024, 640, crop_mode=True, max_tiles=most) for most in (9, 6)
}
"""With DeepSeek-OCR's most tiles, and those of its vLLM code."""


def _each(group: Group, *rows: tuple[str, str, dict[str, object]]) -> tuple[Hypothesis, ...]:
    return tuple(Hypothesis(name, words, group, change) for name, words, change in rows)


HYPOTHESES = (
    *_each(
        "window",
        ("full-attention", "full attention in place of the ring", {"span": "all"}),
        ("window-1", "a window of one token less", {"window": -1}),
        ("window+1", "a window of one token more", {"window": 1}),
        ("window-half", "half the window", {"window": "half"}),
        ("window-double", "twice the window", {"window": "double"}),
        ("window-over-prompt", "a window that the prompt slides out of", {"span": "sliding"}),
    ),
    ngram_hypothesis(0),
    ngram_hypothesis(35),
    ngram_hypothesis(35, 1024),
    ngram_hypothesis(35, 128),
    Hypothesis(
        "ngram-new-tokens", "an n-gram window over new tokens alone", "ngram", {"rule_over_prompt": False}
    ),
    ngram_hypothesis(35, 90),
    ngram_hypothesis(30, 90),
    ngram_hypothesis(20),
    *_each(
        "prompt",
        ("newline", "a newline after <image>", {"template": "newline"}),
        ("grounding", "<|grounding|> in the prompt", {"template": "grounding"}),
        ("newline-grounding", "a newline and <|grounding|> in the prompt", {"template": "newline_grounding"}),
    ),
    ROLES,
    *_each("pages", ("page-order", "the pages in the opposite order", {"reversed": True})),
    *_each(
        "views",
        ("tiles-9", "at most 9 tiles", {"preset": "gundam-9"}),
        ("tiles-6", "at most 6 tiles", {"preset": "gundam-6"}),
        ("no-tiles", "one 1024 px view, no tiles", {"preset": "base"}),
        ("tiles-32", "tiles of 640 px, up to 32", {"preset": "gundam"}),
    ),
    *_each("rotary", ("rotary-bf16", "rotary frequencies in bfloat16", {"rotary": "bfloat16"})),
    *_each("window", ("time-order", "keys in the order of time", {"span": "time"})),
    *OF_ALL,
)
