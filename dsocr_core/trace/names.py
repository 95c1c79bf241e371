"""The taps of a model by stage and block: one name for both sides, the module it sits at, its weights.

    pixels  sam.patch  sam.embeddings  sam.block0.qkv ... sam.neck  sam.out
    clip.embeddings  clip.pre_norm  clip.block0.act ... projector.in  projector  embeddings
    decoder.layer0.keys ... decoder.layer1.router.ids ... norm  logits

`embeddings` is what goes into a tower's or the decoder's first block; `mixed` is attention's sum of values
before its output projection, `act` the activations before the second product of a feed-forward. Which stages
of vision there are, and their taps, a model's row says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from dsocr_core.models.blocks.taps import decoder_taps
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import FAMILIES, inside_prefill, row_of
from dsocr_core.models.tap_weights import DECODER
from dsocr_core.models.taps.hooks import Tap


def our_taps(config: ModelConfig) -> tuple[Tap, ...]:
    """All taps in the order of computing; paths are those of our modules."""
    return (*row_of(config).taps(config), *decoder_taps(config.decoder))


def published_taps(config: ModelConfig) -> tuple[Tap, ...]:
    """The same at the published code's modules."""
    prefixes = row_of(config).weights.prefixes
    return tuple(replace(tap, path=_published(tap.path, prefixes)) for tap in our_taps(config))


def _published(path: str, prefixes: Iterable[tuple[str, str]]) -> str:
    ours, theirs = next(pair for pair in prefixes if f"{path}.".startswith(pair[0]))
    return (theirs + f"{path}.".removeprefix(ours)).removesuffix(".")


# --- names ----------------------------------------------------------------------------------------


class NameOrder:
    """Sorts names as they are computed; a name that is not ours comes after, in the order it was met.

    Vision runs once a pass (tiles, then the global view), so its second pass comes after the whole first.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._met: dict[str, int] = {}
        for name in names:
            self._met.setdefault(name, len(self._met))

    def __call__(self, key: str) -> tuple[int, int, tuple[int, ...]]:
        name, _, number = key.partition("@")
        return (not in_vision(name), int(number or 0), (*_place(name), self._met.get(name, len(self._met))))


_PARTS = (
    "norm1", "qkv", "q", "k", "v", "queries", "keys", "mixed", "attn", "mid", "norm2", "fc1", "router.ids",
    "router.weights", "experts", "shared.gate", "shared.up", "shared.act", "shared.down", "gate", "up", "act",
    "fc2", "down", "mlp", "out",
)  # fmt: skip
_FIRST, _LAST = ("pixels", "patch", "in", "embeddings", "pre_norm"), ("norm", "neck", "out", "")
"""Names of no block, before and after a stage's blocks."""
_BLOCK = re.compile(r"(\w+)\.(?:block|layer)(\d+)\.(.+)")


def _place(name: str) -> tuple[int, ...]:
    order = (*inside_prefill(), "embeddings", "decoder", "logits")
    stage = order.index(stage_of(name)) if stage_of(name) in order else len(order)
    found = _BLOCK.fullmatch(name)
    if found is not None:
        part = _PARTS.index(found[3]) if found[3] in _PARTS else len(_PARTS)
        return stage, int(found[2]), part
    whole = name if name in ("pixels", "norm") else name.partition(".")[2]
    if whole in _FIRST:
        return stage, _FIRST.index(whole) - len(_FIRST), 0
    return stage, 10_000, _LAST.index(whole) if whole in _LAST else len(_LAST)


def stage_of(name: str) -> str:
    """A stage of vision, `embeddings`, `decoder` or `logits`; the first part of a foreign name."""
    first = name.partition(".")[0]
    return {"pixels": "sam", "norm": "logits"}.get(first, first)


def in_vision(name: str) -> bool:
    """Tell whether it is part of a pass through vision, of which a page has several."""
    return stage_of(name) in inside_prefill()


def block_of(name: str) -> str:
    """The block a name belongs to: `clip.block0`, `decoder.layer3`, or the name itself."""
    found = _BLOCK.fullmatch(name)
    return name[: found.start(3) - 1] if found else name


def part_of(name: str) -> str:
    """The name inside its block, or the name itself."""
    found = _BLOCK.fullmatch(name)
    return found[3] if found else name


def weights_of(name: str) -> tuple[str, ...]:
    """Prefixes of the published names of the weights that act between what was tapped before and a name."""
    found, stage = _BLOCK.fullmatch(name), stage_of(name)
    part = found[3] if found else "" if name == stage else name.removeprefix(f"{stage}.")
    tables = [row.tap_weights.get(stage) for row in FAMILIES.values()] + [DECODER.get(stage)]
    for table in tables:
        if table and part in table:
            return tuple(prefix.format(found[2] if found else "") for prefix in table[part])
    return ()
