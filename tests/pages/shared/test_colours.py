"""Colours that carry a meaning stay apart for readers with deuteranopia and protanopia."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from dsocr_core.models.family import all_stages, stage_colours
from dsocr_core.models.stages import Stage
from pages.widgets.runs.tables import FASTER, SLOWER
from tests.support.paths import ROOT

SIGHT = {
    "normal": np.eye(3),
    # Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
STYLE = (ROOT / "pages" / "widgets" / "shared" / "style.css").read_text()
TONES = {name: re.search(rf"\.dsocr-{name} {{ background: (#\w+)", STYLE)[1] for name in ("faster", "slower")}  # type: ignore[index]
LEAST = 12.0
"""Difference in CIELAB (CIE 1976): 2.3 is just noticeable side by side."""


def lab(colour: str, sight: str) -> npt.NDArray[np.float64]:
    """CIELAB of #rrggbb as it is seen."""
    rgb = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(SIGHT[sight] @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ seen / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def difference(one: str, other: str, sight: str) -> float:
    return float(np.linalg.norm(lab(one, sight) - lab(other, sight)))


def test_the_measure_is_that_of_the_textbook() -> None:
    assert lab("#ffffff", "normal") == pytest.approx([100, 0, 0], abs=0.02)
    assert lab("#ff0000", "normal") == pytest.approx([53.24, 80.09, 67.20], abs=0.1)
    # Red and green of one lightness fall together for those who cannot tell them.
    assert difference("#a05000", "#6e7000", "deuteranopia") < difference("#a05000", "#6e7000", "normal") / 2


ENDS = {(Stage.PREPROCESS.value, Stage.POSTPROCESS.value)}
"""Fall together with deuteranopia; they are the first and the last bar, and never neighbours."""


@pytest.mark.parametrize("sight", SIGHT)
def test_any_two_stages_differ_but_the_first_and_the_last(sight: str) -> None:
    close = {
        (one.value, other.value): difference(stage_colours()[one], stage_colours()[other], sight)
        for one, other in combinations(all_stages(), 2)
    }
    assert {pair: round(apart, 1) for pair, apart in close.items() if apart < LEAST}.keys() <= ENDS


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("pair", [(FASTER, SLOWER), (TONES["faster"], TONES["slower"])])
def test_faster_and_slower_differ(sight: str, pair: tuple[str, str]) -> None:
    assert difference(*pair, sight) > 3 * LEAST


@pytest.mark.parametrize("sight", SIGHT)
def test_match_states_that_share_a_dash_differ(sight: str) -> None:
    script = (ROOT / "pages" / "widgets" / "components" / "viewer" / "drawing.js").read_text()
    states = dict(re.findall(r'(\w+): \{ name: "[^"]+", colour: "(#\w+)"', script))
    for one, other in (
        ("moved", "relabelled"),
        ("only_a", "only_b"),
        ("matched", "moved"),
        ("matched", "text"),
    ):
        assert difference(states[one], states[other], sight) > LEAST, (one, other)
