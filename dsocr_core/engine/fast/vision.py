"""Both towers and the projector over all views of an image at once: the fast engine's vision.

Letters: B views of one size, S a view's side in pixels, G patches along it, M patches of all views together,
h heads, k key-value heads, D head dim, C width, I inner width, F = G/4 features along a view's side after
SAM, T = F F, V views of all sizes.

The patches of all views form one matrix, (M, C); only attention and convolutions run once for each view size.
All runs in the weights' dtype, without autocast; sums, norms and softmax are float32 inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsocr_core.engine.fast.graphs import CapturedPasses, Recorder, SideStream, recorder_for
from dsocr_core.engine.fast.ops import Groups, Ops, map_rows, maps, rows_by_size
from dsocr_core.kernels.prefill.window_attention import position_tables, position_terms
from dsocr_core.models.blocks.clip import Clip, ClipBlock
from dsocr_core.models.blocks.layers import LayerNorm2d, resize_position_grid
from dsocr_core.models.blocks.qwen2_encoder import Qwen2Encoder, Qwen2Layer
from dsocr_core.models.blocks.sam import Sam, SamBlock, relative_positions
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.resolution import DOWNSAMPLE_RATIO, PATCH_SIZE


@dataclass(frozen=True)
class _Layer:
    """Packed copies of a layer's weights: `qkv` ((h + 2 k) D, C) with bias, `gate_up` (2 I, C)."""

    norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    output: Tensor
    second_norm: Tensor
    gate_up: Tensor
    down: Tensor

    @classmethod
    def of(cls, layer: Qwen2Layer) -> _Layer:
        at, mlp = layer.self_attn, layer.mlp
        projections = (at.q_proj, at.k_proj, at.v_proj)
        return cls(
            layer.input_layernorm.weight,
            torch.cat([each.weight for each in projections]),
            torch.cat([each.bias for each in projections]),
            at.o_proj.weight,
            layer.post_attention_layernorm.weight,
            torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
            mlp.down_proj.weight,
        )


@dataclass(frozen=True)
class _Places:
    """Rotary tables of all rows (2 M, D), starts of views (V + 1,), the longest view, query rows (M,)."""

    cos: Tensor
    sin: Tensor
    starts: Tensor
    longest: int
    answers: Tensor


class EncoderTower:
    """Qwen2 encoder: SAM features (M, C) of views of (B, F) -> answers of the queries, (M, C)."""

    joins_sam = False

    def __init__(self, encoder: Qwen2Encoder, ops: Ops) -> None:
        self._encoder, self._config, self._ops = encoder, encoder.config, ops
        self._layers = [_Layer.of(cast(Qwen2Layer, layer)) for layer in encoder.layers]
        self._places: dict[tuple[tuple[int, int], ...], _Places] = {}

    def __call__(self, features: Tensor, groups: Groups) -> Tensor:
        config, ops, eps = self._config, self._ops, self._config.rms_norm_eps
        # Of each view its features, then its queries.
        x = torch.cat(
            [self._tokens(features[rows], *group) for rows, group in rows_by_size(groups)]
        )  # (2 M, C)
        at = self._places_of(groups)
        _, y = ops.add_norm(x, self._layers[0].norm, eps)
        following = [layer.norm for layer in self._layers[1:]] + [self._encoder.norm.weight]
        keys, values = (y.new_empty(config.kv_heads, len(x), config.head_dim) for _ in "kv")
        for layer, norm in zip(self._layers, following, strict=True):
            qkv = F.linear(y, layer.qkv, layer.qkv_bias).view(len(x), -1, config.head_dim)
            q = ops.rotate_and_cache(qkv, at.cos, at.sin, keys, values, 0)  # (2 M, h, D)
            mixed = ops.prefix_attention(q, keys, values, at.starts, at.longest).flatten(1)
            if norm is following[-1]:
                mixed, x = mixed[at.answers], x[at.answers]  # (M, C): only these rows are needed
            x, y = ops.add_norm(x, layer.second_norm, eps, F.linear(mixed, layer.output))
            x, y = ops.add_norm(x, norm, eps, F.linear(ops.gated(F.linear(y, layer.gate_up)), layer.down))
        return y

    def _tokens(self, features: Tensor, count: int, side: int) -> Tensor:
        """Append each view's queries to its features: (B T, C) -> (B 2 T, C)"""
        queries = self._encoder.queries_for(side**2).expand(count, -1, -1)
        return torch.cat([features.view(count, side**2, -1), queries], dim=1).flatten(0, 1)

    def _places_of(self, groups: Groups) -> _Places:
        key = tuple(groups)
        if key not in self._places:
            lengths = torch.tensor([2 * side**2 for count, side in groups for _ in range(count)])  # (V,)
            starts = F.pad(lengths.cumsum(0), (1, 0))
            own = torch.cat([torch.arange(length) for length in lengths.tolist()])  # (2 M,)
            answers = (own >= lengths.repeat_interleave(lengths) // 2).nonzero()[:, 0]
            longest, weight = int(lengths.max()), self._encoder.norm.weight
            own = own.to(weight.device)
            cos, sin = (part[own].to(weight.dtype) for part in self._encoder.rotary_tables(longest))
            self._places[key] = _Places(
                cos, sin, starts.to(weight.device, torch.int32), longest, answers.to(weight.device)
            )
        return self._places[key]


MOST_SHAPES = 12
"""Most captured shapes. Gundam has nine: no tiles, and two to nine of them."""

_FEATURE_PIXELS = PATCH_SIZE * DOWNSAMPLE_RATIO


class SamTower:
    """Pixels (B, 3, S, S) of each view size -> (M / 16, C_sam) features, views in order."""

    def __init__(self, sam: Sam, ops: Ops) -> None:
        self._sam, self._ops = sam, ops
        self._side = SideStream(sam.pos_embed.device)
        self._blocks = [cast(SamBlock, block) for block in sam.blocks]
        # Channels last, as the features are; 13 MB of copies.
        self._convolutions = [
            module.weight.contiguous(memory_format=torch.channels_last)
            for module in (cast(nn.Conv2d, sam.neck[2]), sam.net_2, sam.net_3)
        ]
        self._tables: dict[tuple[int, int], Tensor] = {}
        self._positions: dict[int, Tensor] = {}

    def __call__(self, pixels: Sequence[Tensor]) -> Tensor:
        size = self._sam.patch_embed.proj.kernel_size[0]
        groups = [(view.shape[0], view.shape[2] // size) for view in pixels]
        x = torch.cat([self._patches(view, size) for view in pixels])  # (M, C)
        first = self._blocks[0].norm1
        _, y = self._ops.add_norm(x, first.weight, first.eps, bias=first.bias)
        for number, block in enumerate(self._blocks):
            mixed = self._attention(number, y, groups)
            x, y = self._ops.add_norm(x, block.norm2.weight, block.norm2.eps, mixed, bias=block.norm2.bias)
            mlp = block.mlp
            y = self._ops.gelu_linear(y, mlp.lin1.weight, mlp.lin1.bias)
            y = F.linear(y, mlp.lin2.weight, mlp.lin2.bias)
            if number + 1 < len(self._blocks):
                norm = self._blocks[number + 1].norm1
                x, y = self._ops.add_norm(x, norm.weight, norm.eps, y, bias=norm.bias)
        return self._neck(x + y, groups)

    def _patches(self, view: Tensor, size: int) -> Tensor:
        """Patch embeddings with their positions: (B, 3, S, S) -> (B G G, C)"""
        side, embedding = view.shape[2] // size, self._sam.patch_embed.proj
        patches = view.view(-1, 3, side, size, side, size).permute(0, 2, 4, 1, 3, 5)  # (B, G, G, 3, s, s)
        x = F.linear(patches.reshape(len(view), side**2, -1), embedding.weight.flatten(1), embedding.bias)
        if side not in self._positions:
            self._positions[side] = resize_position_grid(self._sam.pos_embed[0], side).reshape(side**2, -1)
        return (x + self._positions[side]).flatten(0, 1)

    def _attention(self, number: int, y: Tensor, groups: Groups) -> Tensor:
        """(M, C) normed -> (M, C)"""
        block = self._blocks[number]
        attention, bias = block.attn, block.attn.qkv.bias
        qkv = F.linear(y, attention.qkv.weight, bias).view(y.shape[0], 3, attention.heads, -1)  # (M, 3, h, D)
        out = torch.empty_like(y)

        def views(rows: slice, side: int, window: int, table: Tensor) -> None:
            terms = position_terms(qkv[rows], table)
            self._ops.window_attention(qkv[rows], bias, terms, out[rows], side, window)

        windows = [(rows, side, block.window or side) for rows, (_, side) in rows_by_size(groups)]
        # A table is made here, before there are two streams: both may read it.
        sizes = [partial(views, *at, self._table(number, at[2])) for at in windows]
        if len(sizes) == 2:  # neither fills the device alone
            self._side.overlap(*sizes)
        else:
            for size in sizes:
                size()
        return F.linear(out, attention.proj.weight, attention.proj.bias)

    def _table(self, number: int, side: int) -> Tensor:
        if (number, side) not in self._tables:
            attention = self._blocks[number].attn
            tables = (attention.rel_pos_h, attention.rel_pos_w)
            self._tables[number, side] = position_tables(*(_offsets(table, side) for table in tables))
        return self._tables[number, side]

    def _neck(self, x: Tensor, groups: Groups) -> Tensor:
        """(M, C) -> (M / 16, C_sam)"""
        neck = self._sam.neck
        norms = [cast(LayerNorm2d, neck[1]), cast(LayerNorm2d, neck[3])]
        x = F.linear(x, cast(nn.Conv2d, neck[0]).weight.flatten(1))  # (M, neck)
        _, x = self._ops.add_norm(x, norms[0].weight, norms[0].eps, bias=norms[0].bias)
        between, second, third = self._convolutions
        x = torch.cat([map_rows(F.conv2d(view, between, padding=1)) for view in maps(x, groups)])
        _, x = self._ops.add_norm(x, norms[1].weight, norms[1].eps, bias=norms[1].bias)
        features = []
        for view in maps(x, groups):
            halved = F.conv2d(view, second, stride=2, padding=1)  # (B, C, G/2, G/2)
            features.append(map_rows(F.conv2d(halved, third, stride=2, padding=1)))
        return torch.cat(features)


class ClipTower:
    """SAM features (M, C) of views of (B, F) -> (M, C), class tokens left out."""

    joins_sam = True
    """True where the projector reads SAM's features and this tower's."""

    def __init__(self, clip: Clip, ops: Ops) -> None:
        self._clip, self._ops = clip, ops
        self._blocks = [cast(ClipBlock, block) for block in clip.transformer["layers"].children()]
        self._positions: dict[int, Tensor] = {}
        self._views: dict[tuple[tuple[int, int], ...], tuple[Tensor, int]] = {}

    def __call__(self, features: Tensor, groups: Groups) -> Tensor:
        add_norm, before = self._ops.add_norm, self._clip.pre_layrnorm
        x = torch.cat([self._tokens(features[rows], *group) for rows, group in rows_by_size(groups)])
        # Under autocast the eager engine's norm gives float32, and so all of its sums are.
        _, x = add_norm(x.to(torch.float32), before.weight.float(), before.eps, bias=before.bias.float())
        views = self._views_of(groups, x.device)
        first = self._blocks[0].layer_norm1
        _, y = add_norm(x, first.weight, first.eps, bias=first.bias)
        for number, block in enumerate(self._blocks):
            norm, mlp = block.layer_norm2, block.mlp
            x, y = add_norm(x, norm.weight, norm.eps, self._attention(block, y, views), bias=norm.bias)
            y = self._ops.quick_gelu(F.linear(y, mlp.fc1.weight, mlp.fc1.bias))
            y = F.linear(y, mlp.fc2.weight, mlp.fc2.bias)
            if number + 1 < len(self._blocks):
                norm = self._blocks[number + 1].layer_norm1
                x, y = add_norm(x, norm.weight, norm.eps, y, bias=norm.bias)
        x = (x + y).to(y.dtype)
        patches = [
            x[rows].view(count, -1, x.shape[1])[:, 1:].flatten(0, 1)
            for rows, (count, _) in rows_by_size(groups, class_token=True)
        ]
        return torch.cat(patches)

    def _tokens(self, features: Tensor, count: int, side: int) -> Tensor:
        """(B F F, C) -> (B (1 + F F), C), class token first, positions added."""
        embeddings = self._clip.embeddings
        if side not in self._positions:
            self._positions[side] = embeddings.positions(side)  # (1, 1 + F F, C)
        class_token = embeddings.class_embedding.expand(count, 1, -1)
        patches = features.view(count, side**2, -1)
        return (torch.cat([class_token, patches], dim=1) + self._positions[side]).flatten(0, 1)

    def _views_of(self, groups: Groups, device: torch.device) -> tuple[Tensor, int]:
        """Starts of the views, (V + 1,), and the length of the longest."""
        key = tuple(groups)
        if key not in self._views:
            lengths = [1 + side**2 for count, side in groups for _ in range(count)]
            starts = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
            self._views[key] = starts, max(lengths)
        return self._views[key]

    def _attention(self, block: ClipBlock, y: Tensor, views: tuple[Tensor, int]) -> Tensor:
        attention, width = block.self_attn, y.shape[1]
        qkv = F.linear(y, attention.qkv_proj.weight, attention.qkv_proj.bias)  # (M', 3 C)
        q, k, v = qkv.view(len(y), 3, attention.heads, -1).unbind(1)  # (M', h, D) each
        mixed = self._ops.prefix_attention(q, k.transpose(0, 1), v.transpose(0, 1), *views, halves=False)
        return F.linear(mixed.view(-1, width), attention.out_proj.weight, attention.out_proj.bias)


TOWERS: dict[type[nn.Module], Callable[..., ClipTower | EncoderTower]] = {
    Clip: ClipTower,
    Qwen2Encoder: EncoderTower,
}
"""Fast forms of the towers that follow SAM, by stage."""


class VisionTowers:
    """All stages of vision over all views of an image: SAM, the second tower, the projector."""

    def __init__(self, model: OcrModel, ops: Ops | None = None) -> None:
        self.device, self.dtype = model.device, model.dtype
        ops = ops or Ops(model.device.type == "cuda")
        self._sam = SamTower(model.sam, ops)
        second_tower = getattr(model, [*model.family.vision][1])
        self._second_tower, self._projector = (
            TOWERS[type(second_tower)](second_tower, ops),
            model.projector.layers,
        )

    def sam(self, pixels: Sequence[Tensor]) -> Tensor:
        """Normalised pixels (B, 3, S, S) of each view size -> features of all views, (M, C_sam)"""
        with torch.autocast(self.device.type, enabled=False):
            return self._sam(pixels)

    def second_tower(self, features: Tensor, groups: Groups) -> Tensor:
        """Second tower: (M, C_sam) -> (M, C). `groups` are (views, features along a side) of each size."""
        with torch.autocast(self.device.type, enabled=False):
            return self._second_tower(features, groups)

    def projected(self, patches: Tensor, features: Tensor) -> Tensor:
        """Input of the projector: (M, C), or (M, C + C_sam)."""
        return torch.cat([patches, features], dim=-1) if self._second_tower.joins_sam else patches

    def project(self, patches: Tensor, features: Tensor, groups: Groups) -> tuple[Tensor, ...]:
        """The towers' features -> vision tokens of each view size, (B, F F, C)"""
        with torch.autocast(self.device.type, enabled=False):
            both = self.projected(patches, features)
            out = F.linear(both, self._projector.weight, self._projector.bias)  # (M, C)
            return tuple(out[rows].view(count, side**2, -1) for rows, (count, side) in rows_by_size(groups))


class VisionPass:
    """Stages of one shape. Run them in order after `load`. Tokens are valid until the next pass."""

    def __init__(
        self, towers: VisionTowers, shapes: Sequence[tuple[int, ...]], recorder: Recorder | None
    ) -> None:
        self._towers = towers
        self._groups: Groups = [(shape[0], shape[2] // _FEATURE_PIXELS) for shape in shapes]
        self._pixels = [torch.zeros(shape, dtype=towers.dtype, device=towers.device) for shape in shapes]
        self.features = self.patches = torch.empty(0)
        """Features (M, C) of all views after the towers, valid as long as the tokens."""
        self.tokens: tuple[Tensor, ...] = ()
        """Vision tokens of each view size, (B, F F, C)."""
        stages: tuple[Callable[[], None], ...] = (self._sam, self._second_tower, self._project)
        self.stages = stages if recorder is None else tuple(recorder.recorded(stage) for stage in stages)

    def load(self, views: Sequence[Tensor]) -> None:
        """Set the normalised pixels (B, 3, S, S) of each view size."""
        for pixels, view in zip(self._pixels, views, strict=True):
            pixels.copy_(view)

    def _sam(self) -> None:
        self.features = self._towers.sam(self._pixels)

    def _second_tower(self) -> None:
        self.patches = self._towers.second_tower(self.features, self._groups)

    def _project(self) -> None:
        self.tokens = self._towers.project(self.patches, self.features, self._groups)


class FastVision:
    """Vision of pages of any shape. A shape that comes again is captured; all share one memory pool."""

    def __init__(self, towers: VisionTowers, graphs: bool = True) -> None:
        self._towers = towers
        self._recorder = recorder_for(towers.device) if graphs else None
        self.passes = CapturedPasses[tuple[tuple[int, ...], ...], VisionPass](MOST_SHAPES)

    def start(self, views: Sequence[Tensor]) -> VisionPass:
        """Stages for these pixels, (B, 3, S, S) of each view size: tiles before the global view."""
        shapes = tuple(tuple(view.shape) for view in views)
        found = self.passes.get(shapes, lambda: VisionPass(self._towers, shapes, self._recorder))
        found = found or VisionPass(self._towers, shapes, None)
        found.load(views)
        return found


def _offsets(table: Tensor, side: int) -> Tensor:
    """Resize a table of relative positions: (2 T - 1, D) -> (2 S - 1, D), by rising offset."""
    pairs = relative_positions(table, side)  # (S, S, D): query, key
    return torch.cat([pairs[0].flip(0), pairs[1:, 0]])
