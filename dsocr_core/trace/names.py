"""Names of tensors in a trace: their order, stages and blocks, and the weights before each."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import MODELS, spec_of
from dsocr_core.models.stages import INSIDE_PREFILL
from dsocr_core.models.taps.table import DECODER, Tap


def taps_of(config: ModelConfig) -> tuple[Tap, ...]:
    """All taps of a model in the order of computing."""
    return tuple(tap for stage in (*spec_of(config).taps, DECODER) for tap in stage.of(config))


_BLOCK = re.compile(r"(\w+\.(?:block|layer))(\d+)\.(.+)")
_AFTER_BLOCKS = 10_000
_STAGES = (*INSIDE_PREFILL, "decoder")


@functools.cache
def _rows() -> dict[str, tuple[tuple[int, int, int], tuple[str, ...]]]:
    """Place of each name (stage, before, in or after the blocks, row), and published prefixes of the weights
    that act before it."""
    found: dict[str, tuple[tuple[int, int, int], tuple[str, ...]]] = {}
    for spec in MODELS.values():
        for stage in (*spec.taps, DECODER):
            for side, taps in ((-1, stage.first), (0, stage.block), (_AFTER_BLOCKS, stage.last)):
                for row, tap in enumerate(taps):
                    place = _STAGES.index(stage.name), side, row
                    found.setdefault(tap.name, (place, tuple(map(spec.published_name, tap.acting))))
    return found


class NameOrder:
    """Sorts names in the order of computing. Unknown names come last, in the order they were met.

    Vision runs once a pass (tiles, then the global view), so its second pass comes after the whole first.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._met = {name: number for number, name in enumerate(dict.fromkeys(names))}

    def __call__(self, key: str) -> tuple[int, ...]:
        name, _, number = key.partition("@")
        row, block, _ = _split(name)
        known = stage_of(name) in _STAGES
        other = (_STAGES.index(stage_of(name)) if known else len(_STAGES)), _AFTER_BLOCKS, len(_rows())
        (stage, side, place), _ = _rows().get(row, (other, ()))
        met = self._met.get(name, len(self._met))
        return not in_vision(name), int(number or 0), stage, side if block is None else block, place, met


def _split(name: str) -> tuple[str, int | None, str]:
    """Name as the table has it, block number, and name inside the block."""
    found = _BLOCK.fullmatch(name)
    return (f"{found[1]}{{}}.{found[3]}", int(found[2]), found[3]) if found else (name, None, name)


def stage_of(name: str) -> str:
    """Stage of vision, or the first part of any other name."""
    first = name.partition(".")[0]
    return "sam" if first == "pixels" else first


def in_vision(name: str) -> bool:
    """Tell whether a name belongs to vision, of which a page has several passes."""
    return stage_of(name) in INSIDE_PREFILL


def part_of(name: str) -> str:
    """Name inside its block, or the name itself."""
    return _split(name)[2]


def weights_of(name: str) -> tuple[str, ...]:
    """Published prefixes of the weights that act between the tap before and this one."""
    row, block, _ = _split(name)
    _, prefixes = _rows().get(row, (None, ()))
    return tuple(prefix.format(block) for prefix in prefixes)
