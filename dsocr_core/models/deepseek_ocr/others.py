"""Ways in which other engines read it: docs/why.md has the sources. Cheap and likely ones first."""

from dsocr_core.models.hypotheses import CELLS, NO_NEWLINE, OF_ALL, ROLES, Hypothesis, ngram_hypothesis
from dsocr_core.models.resolution import MAX_TILES

HYPOTHESES = (
    ngram_hypothesis(30, 90, CELLS),
    ngram_hypothesis(20, 50, CELLS),
    ngram_hypothesis(35),
    ngram_hypothesis(20),
    ngram_hypothesis(0),
    ngram_hypothesis(40, 90, CELLS),
    NO_NEWLINE,
    ROLES,
    Hypothesis("tiles-6", "at most 6 tiles", "views", {"max_tiles": 6}),
    Hypothesis(
        "tiles-640",
        "tiles of 640 px beside a 1024 px view",
        "views",
        {"preset": "gundam", "tile_size": 640, "max_tiles": MAX_TILES},
    ),
    Hypothesis("no-tiles", "one 1024 px view, no tiles", "views", {"preset": "base"}),
    Hypothesis("tiles-32", "up to 32 tiles", "views", {"max_tiles": 32}),
    *OF_ALL,
)
