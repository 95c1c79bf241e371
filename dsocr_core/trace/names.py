"""The taps of the model by stage and block: one name for both sides, the module it sits at, its weights.

    pixels  sam.patch  sam.embeddings  sam.block0.qkv ... sam.neck  sam.out
    clip.embeddings  clip.pre_norm  clip.block0.act ... projector.in  projector  embeddings
    decoder.layer0.keys ... decoder.layer1.router.ids ... norm  logits

`embeddings` is what goes into a tower's or the decoder's first block; `mixed` is attention's sum of values
before its output projection, `act` the activations before the second product of a feed-forward.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from dsocr_core.config import ModelConfig
from dsocr_core.dump.hooks import Tap

_PUBLISHED = (
    ("sam", "model.sam_model"),
    ("clip", "model.vision_model"),
    ("projector", "model.projector"),
    ("decoder.lm_head", "lm_head"),
    ("decoder", "model"),
)

STAGES = ("sam", "clip", "projector", "embeddings", "decoder", "logits")


def our_taps(config: ModelConfig) -> tuple[Tap, ...]:
    """All taps in the order of computing; paths are those of our modules."""
    return (*_sam(config), *_clip(config), *_fusion(), *_decoder(config))


def published_taps(config: ModelConfig) -> tuple[Tap, ...]:
    """The same at the published code's modules."""
    return tuple(replace(tap, path=published_path(tap.path)) for tap in our_taps(config))


def published_path(path: str) -> str:
    for ours, theirs in _PUBLISHED:
        if path == ours or path.startswith(f"{ours}."):
            return theirs + path.removeprefix(ours)
    return path


def _sam(config: ModelConfig) -> Iterator[Tap]:
    yield Tap("pixels", "sam", "input", "channels first")
    yield Tap("sam.patch", "sam.patch_embed")
    yield Tap("sam.embeddings", "sam.blocks.0", "input")
    for number in range(config.sam.layers):
        name, path = f"sam.block{number}", f"sam.blocks.{number}"
        yield Tap(f"{name}.norm1", f"{path}.norm1")
        yield Tap(f"{name}.qkv", f"{path}.attn.qkv")
        yield Tap(f"{name}.mixed", f"{path}.attn.proj", "input")
        yield Tap(f"{name}.attn", f"{path}.attn.proj")
        yield Tap(f"{name}.mid", f"{path}.norm2", "input")
        yield Tap(f"{name}.norm2", f"{path}.norm2")
        yield Tap(f"{name}.mlp", f"{path}.mlp.lin2")
        yield Tap(f"{name}.out", path)
    yield Tap("sam.neck", "sam.neck", layout="channels first")
    yield Tap("sam.out", "sam", layout="channels first")


def _clip(config: ModelConfig) -> Iterator[Tap]:
    yield Tap("clip.embeddings", "clip.embeddings")
    yield Tap("clip.pre_norm", "clip.pre_layrnorm")
    for number in range(config.clip.layers):
        name, path = f"clip.block{number}", f"clip.transformer.layers.{number}"
        # The published block calls its attention and feed-forward by `.forward`: no hook of theirs fires.
        yield Tap(f"{name}.norm1", f"{path}.layer_norm1")
        yield Tap(f"{name}.qkv", f"{path}.self_attn.qkv_proj")
        yield Tap(f"{name}.mixed", f"{path}.self_attn.out_proj", "input")
        yield Tap(f"{name}.attn", f"{path}.self_attn.out_proj")
        yield Tap(f"{name}.mid", f"{path}.layer_norm2", "input")
        yield Tap(f"{name}.norm2", f"{path}.layer_norm2")
        yield Tap(f"{name}.fc1", f"{path}.mlp.fc1")
        yield Tap(f"{name}.act", f"{path}.mlp.fc2", "input")
        yield Tap(f"{name}.fc2", f"{path}.mlp.fc2")
        yield Tap(f"{name}.out", path)


def _fusion() -> Iterator[Tap]:
    yield Tap("projector.in", "projector.layers", "input")
    yield Tap("projector", "projector.layers")
    yield Tap("embeddings", "decoder.layers.0", "input", "rows")


def _decoder(config: ModelConfig) -> Iterator[Tap]:
    for number in range(config.decoder.layers):
        name, path = f"decoder.layer{number}", f"decoder.layers.{number}"
        yield _rows(f"{name}.norm1", f"{path}.input_layernorm")
        for part in "qkv":
            yield _rows(f"{name}.{part}", f"{path}.self_attn.{part}_proj")
        yield Tap(f"{name}.keys", f"{path}.self_attn", "keys")
        yield Tap(f"{name}.mixed", f"{path}.self_attn.o_proj", "input", "rows")
        yield _rows(f"{name}.attn", f"{path}.self_attn.o_proj")
        yield Tap(f"{name}.mid", f"{path}.post_attention_layernorm", "input", "rows")
        yield _rows(f"{name}.norm2", f"{path}.post_attention_layernorm")
        if config.decoder.is_dense(number):
            yield from _feed_forward(name, f"{path}.mlp")
        else:
            # One tap of three names: `router.ids`, `router.weights`, `experts`.
            yield Tap(name, f"{path}.mlp", "mixture")
            yield from _feed_forward(f"{name}.shared", f"{path}.mlp.shared_experts")
        yield _rows(f"{name}.mlp", f"{path}.mlp")
        yield _rows(f"{name}.out", path)
    yield Tap("norm", "decoder.norm", layout="last row")
    yield Tap("logits", "decoder.lm_head", layout="last row")


def _rows(name: str, path: str) -> Tap:
    return Tap(name, path, layout="rows")


def _feed_forward(name: str, path: str) -> Iterator[Tap]:
    yield _rows(f"{name}.gate", f"{path}.gate_proj")
    yield _rows(f"{name}.up", f"{path}.up_proj")
    yield Tap(f"{name}.act", f"{path}.down_proj", "input", "rows")
    yield _rows(f"{name}.down", f"{path}.down_proj")


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
        in_vision = stage_of(name) in ("sam", "clip", "projector")
        return (not in_vision, int(number or 0), (*_place(name), self._met.get(name, len(self._met))))


_PARTS = (
    "norm1", "qkv", "q", "k", "v", "queries", "keys", "mixed", "attn", "mid", "norm2", "fc1", "router.ids",
    "router.weights", "experts", "shared.gate", "shared.up", "shared.act", "shared.down", "gate", "up", "act",
    "fc2", "down", "mlp", "out",
)  # fmt: skip
_WHOLE = {
    "pixels": -3, "sam.patch": -2, "sam.embeddings": -1, "sam.neck": 10_000, "sam.out": 10_001,
    "clip.embeddings": -2, "clip.pre_norm": -1, "projector.in": 0, "projector": 1, "embeddings": 0,
    "norm": 0, "logits": 1,
}  # fmt: skip
_BLOCK = re.compile(r"(?:sam\.block|clip\.block|decoder\.layer)(\d+)\.(.+)")


def _place(name: str) -> tuple[int, ...]:
    stage = STAGES.index(stage_of(name)) if stage_of(name) in STAGES else len(STAGES)
    if name in _WHOLE:
        return stage, _WHOLE[name], 0
    found = _BLOCK.fullmatch(name)
    if found is None:
        return stage, 5_000, len(_PARTS)
    part = _PARTS.index(found[2]) if found[2] in _PARTS else len(_PARTS)
    return stage, int(found[1]), part


def stage_of(name: str) -> str:
    """`sam`, `clip`, `projector`, `embeddings`, `decoder` or `logits`; the first part of a foreign name."""
    first = name.partition(".")[0]
    return {"pixels": "sam", "norm": "logits"}.get(first, first)


def block_of(name: str) -> str:
    """The block a name belongs to: `clip.block0`, `decoder.layer3`, or the name itself."""
    found = _BLOCK.fullmatch(name)
    return name[: found.start(2) - 1] if found else name


def part_of(name: str) -> str:
    """The name inside its block, or the name itself."""
    found = _BLOCK.fullmatch(name)
    return found[2] if found else name


_BLOCK_WEIGHTS = {
    "sam": ("model.sam_model.blocks", {
        "norm1": "norm1.", "qkv": "attn.qkv.", "mixed": "attn.rel_pos", "attn": "attn.proj.",
        "norm2": "norm2.", "mlp": "mlp.",
    }),
    "clip": ("model.vision_model.transformer.layers", {
        "norm1": "layer_norm1.", "qkv": "self_attn.qkv_proj.", "attn": "self_attn.out_proj.",
        "norm2": "layer_norm2.", "fc1": "mlp.fc1.", "fc2": "mlp.fc2.",
    }),
    "decoder": ("model.layers", {
        "norm1": "input_layernorm.", "q": "self_attn.q_proj.", "k": "self_attn.k_proj.",
        "v": "self_attn.v_proj.", "attn": "self_attn.o_proj.", "norm2": "post_attention_layernorm.",
        "gate": "mlp.gate_proj.", "up": "mlp.up_proj.", "down": "mlp.down_proj.",
        "router.ids": "mlp.gate.", "router.weights": "mlp.gate.", "experts": "mlp.experts.",
        "shared.gate": "mlp.shared_experts.gate_proj.", "shared.up": "mlp.shared_experts.up_proj.",
        "shared.down": "mlp.shared_experts.down_proj.",
    }),
}  # fmt: skip
_WHOLE_WEIGHTS = {
    "sam.patch": ("model.sam_model.patch_embed.",),
    "sam.embeddings": ("model.sam_model.pos_embed",),
    "sam.neck": ("model.sam_model.neck.",),
    "sam.out": ("model.sam_model.net_",),
    "clip.embeddings": ("model.vision_model.embeddings.",),
    "clip.pre_norm": ("model.vision_model.pre_layrnorm.",),
    "projector": ("model.projector.",),
    "embeddings": ("model.embed_tokens.", "model.image_newline", "model.view_seperator"),
    "norm": ("model.norm.",),
    "logits": ("lm_head.",),
}


def weights_of(name: str) -> tuple[str, ...]:
    """Prefixes of the published names of the weights that act between what was tapped before and a name."""
    if name in _WHOLE_WEIGHTS:
        return _WHOLE_WEIGHTS[name]
    found = _BLOCK.fullmatch(name)
    if found is None:
        return ()
    blocks, parts = _BLOCK_WEIGHTS[stage_of(name)]
    return (f"{blocks}.{found[1]}.{parts[found[2]]}",) if found[2] in parts else ()


def is_block_output(name: str) -> bool:
    """Tell whether it is what one block hands to the next."""
    return part_of(name) == "out" or name in set(_WHOLE) - {"projector.in", "norm", "logits", "pixels"}
