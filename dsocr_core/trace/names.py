"""Names of a trace: their order, their stages and blocks, the weights that act before each."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import MODELS, inside_prefill, spec_of
from dsocr_core.models.taps.table import DECODER, Tap


def taps_of(config: ModelConfig) -> tuple[Tap, ...]:
    """All taps of a model in the order of computing."""
    return tuple(tap for stage in (*spec_of(config).taps, DECODER) for tap in stage.of(config))


_BLOCK = re.compile(r"(\w+\.(?:block|layer))(\d+)\.(.+)")
_AFTER_BLOCKS = 10_000


@functools.cache
def _rows() -> dict[str, tuple[tuple[int, int, int], tuple[str, ...]]]:
    """Place of each name (its stage, the side of the blocks on which it is, its row), and the beginnings of
    the published names of the weights that act before it."""
    found: dict[str, tuple[tuple[int, int, int], tuple[str, ...]]] = {}
    for spec in MODELS.values():
        for stage in (*spec.taps, DECODER):
            for side, taps in ((-1, stage.first), (0, stage.block), (_AFTER_BLOCKS, stage.last)):
                for row, tap in enumerate(taps):
                    place = _stages().index(stage.name), side, row
                    found.setdefault(tap.name, (place, tuple(map(spec.published_name, tap.acting))))
    return found


def _stages() -> tuple[str, ...]:
    return (*inside_prefill(), "decoder")


class NameOrder:
    """Sorts names as they are computed; a name that is not ours comes after, in the order it was met.

    Vision runs once a pass (tiles, then the global view), so its second pass comes after the whole first.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._met = {name: number for number, name in enumerate(dict.fromkeys(names))}

    def __call__(self, key: str) -> tuple[int, int, tuple[int, ...]]:
        name, _, number = key.partition("@")
        return (not in_vision(name), int(number or 0), (*_place(name), self._met.get(name, len(self._met))))


def _place(name: str) -> tuple[int, ...]:
    number = int(found[2]) if (found := _BLOCK.fullmatch(name)) else None
    if (known := _rows().get(_row_of(name))) is not None:
        (stage, side, row), _ = known
        return stage, side if number is None else number, row
    stage = _stages().index(stage_of(name)) if stage_of(name) in _stages() else len(_stages())
    return stage, _AFTER_BLOCKS if number is None else number, len(_rows())


def _row_of(name: str) -> str:
    """A name as the table has it."""
    return _BLOCK.sub(r"\1{}.\3", name)


def stage_of(name: str) -> str:
    """A stage of vision, or the first part of another name."""
    first = name.partition(".")[0]
    return "sam" if first == "pixels" else first


def in_vision(name: str) -> bool:
    """Tell whether it is part of a pass through vision, of which a page has several."""
    return stage_of(name) in inside_prefill()


def part_of(name: str) -> str:
    """The name inside its block, or the name itself."""
    found = _BLOCK.fullmatch(name)
    return found[3] if found else name


def weights_of(name: str) -> tuple[str, ...]:
    """Prefixes of the published names of the weights that act between what was tapped before and a name."""
    found = _BLOCK.fullmatch(name)
    _, prefixes = _rows().get(_row_of(name), (None, ()))
    return tuple(prefix.format(found[2] if found else "") for prefix in prefixes)
