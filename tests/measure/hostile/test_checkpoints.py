"""The hostile checkpoints: each is made by its seed alone."""

from __future__ import annotations

from random import Random

from dsocr_core.measure.hostile.checkpoints import _VALUES, _files


def test_a_case_does_not_depend_on_those_before() -> None:
    values, first = repr(_VALUES), _files(Random(5))
    for seed in range(300):
        _files(Random(seed))
    assert repr(_VALUES) == values and _files(Random(5)) == first
