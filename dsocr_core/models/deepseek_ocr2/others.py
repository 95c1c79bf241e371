"""Ways in which other engines read it: docs/why.md has the sources. Cheap and likely ones first."""

from dsocr_core.models.hypotheses import CELLS, NO_NEWLINE, OF_ALL, ROLES, Hypothesis, ngram_hypothesis
from dsocr_core.models.resolution import Preset

PRESETS = {"default-640": Preset("default-640", 1024, 640, crop_mode=True, max_tiles=6, tile_size=640)}
"""SGLang's until its PR 38996."""

HYPOTHESES = (
    ngram_hypothesis(20, 90, CELLS),
    ngram_hypothesis(20, 50, CELLS),
    ngram_hypothesis(30, 90, CELLS),
    ngram_hypothesis(40, 90, CELLS),
    ngram_hypothesis(35),
    ngram_hypothesis(20),
    ngram_hypothesis(0),
    NO_NEWLINE,
    ROLES,
    Hypothesis("causal-encoder", "a causal mask in the encoder", "encoder", {"causal_encoder": True}),
    Hypothesis(
        "tiles-640",
        "tiles of 640 px and interpolated queries",
        "views",
        {"preset": "default-640", "interpolated_queries": True},
    ),
    Hypothesis("no-tiles", "one 1024 px view, no tiles", "views", {"preset": "1024"}),
    Hypothesis("one-768", "one 768 px view, no tiles", "views", {"preset": "768"}),
    Hypothesis("rotary-float32", "rotary frequencies that are not rounded", "rotary", {"rotary": "float32"}),
    *OF_ALL,
)
