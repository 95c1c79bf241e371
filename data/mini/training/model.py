"""Training form of the whole model: names as published, stacked experts, auxiliary reading heads.

Letters: B pages, T tokens after the image, P pixels of a side, S = P / 16 patches, Q = S / 4 vision tokens
of a side, C hidden size, K character classes.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data.mini.training.answer_loss import AnswerLoss, NearMisses, markup_loss
from data.mini.training.decoder import (
    DecoderLayer,
    DecoderSize,
    LayerCache,
    RmsNorm,
    rotary_frequencies,
    rotary_table,
)
from data.mini.training.markup import LAST_BIN
from data.mini.training.views import CROWDED, EDGES, PATCH_PX, TILE_PX
from data.mini.training.vision import Clip, ClipSize, Sam, SamSize

# Character cells of the dense supervision: two side by side in each 16 px patch.
CELLS_PER_PATCH = 2
PATCHES_PER_TOKEN = 16
CHARACTER_CLASSES = 96  # 0 is background, then printable ASCII
PLACE_CLASSES = LAST_BIN + 2  # 0 is background, then the numbers of boxes
BACKGROUND_WEIGHT = 0.1
# A token of this many characters counts twice as much as an empty one: where they are dense they get lost.
DENSE = 8


@dataclass(frozen=True)
class ModelSize:
    sam: SamSize
    clip: ClipSize
    decoder: DecoderSize
    projector_inputs: int


def model_size(config: dict[str, Any]) -> ModelSize:
    """Sizes out of the checkpoint's `config.json`."""
    towers = config["vision_config"]["width"]
    sam, clip, language = towers["sam_vit_b"], towers["clip-l-14-224"], config["language_config"]
    return ModelSize(
        SamSize(
            sam["width"],
            sam["layers"],
            sam["heads"],
            tuple(sam["global_attn_indexes"]),
            tuple(sam["downsample_channels"]),
            config["vision_config"]["image_size"] // 16,
        ),
        ClipSize(clip["width"], clip["layers"], clip["heads"], clip["image_size"] // clip["patch_size"]),
        DecoderSize(
            language["hidden_size"],
            language["num_hidden_layers"],
            language["num_attention_heads"],
            language["intermediate_size"],
            language["moe_intermediate_size"],
            language["n_routed_experts"],
            language["num_experts_per_tok"],
            language["n_shared_experts"],
            language["first_k_dense_replace"],
            language["vocab_size"],
        ),
        config["projector_config"]["input_dim"],
    )


class Projector(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Body(nn.Module):
    """Everything the published weight names keep under `model.`."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        hidden = size.decoder.hidden
        self.sam_model = Sam(size.sam)
        self.vision_model = Clip(size.clip)
        self.projector = Projector(size.projector_inputs, hidden)
        self.image_newline = nn.Parameter(torch.randn(hidden) * 0.05)
        self.view_seperator = nn.Parameter(torch.randn(hidden) * 0.05)
        self.embed_tokens = nn.Embedding(size.decoder.vocabulary, hidden)
        nn.init.normal_(self.embed_tokens.weight, std=0.05)
        dense = [index < size.decoder.first_dense for index in range(size.decoder.layers)]
        self.layers = nn.ModuleList(DecoderLayer(size.decoder, each) for each in dense)
        self.norm = RmsNorm(hidden)


class Cells(NamedTuple):
    """What the readers are to find in pages; 0 is nothing.

    `characters` (B, H / 16, W / 8) of the finest view: beside tiles, the padded view shows them too small to
    be told apart. `places` (B, 4, Q, Q) of the global view: a tile does not show where on the page it lies.
    """

    characters: Tensor
    places: Tensor


@dataclass(frozen=True)
class Losses:
    text: Tensor
    reading: Tensor
    balance: Tensor


def views_at_once(side_px: int) -> int:
    """How many views of a side the towers see at a time.

    They are compiled for these numbers, so that a step of any mode is made of what is compiled already.
    """
    return 24 if side_px <= TILE_PX else 8


def cut_tiles(local: Tensor, height: int = TILE_PX, width: int = TILE_PX) -> Tensor:
    """(B, ..., R * height, K * width), a stretched page, to its tiles (B, R, K, ..., height, width)."""
    rows = local.unfold(-2, height, height)  # (B, ..., R, K * width, height)
    tiles = rows.unfold(-2, width, width)  # (B, ..., R, K, height, width)
    return tiles.movedim((-4, -3), (1, 2))


def _with_newlines(grid: Tensor, newline: Tensor) -> Tensor:
    """(B, rows, columns, C) to (B, rows * (columns + 1), C): each row ends with the newline vector."""
    batch, rows, _, hidden = grid.shape
    column = newline.to(grid.dtype).expand(batch, rows, 1, hidden)
    return torch.cat([grid, column], 2).flatten(1, 2)


class TrainingModel(nn.Module):
    """The checkpoint's model with three extra heads that are thrown away at export.

    `patch_reader` names the characters in each patch of SAM's last block, `token_reader` those under each
    projected token: without them the decoder settles on the language prior and never looks. `place_reader`
    tells from a token the numbers of the boxes' edges that run through it: without it a token hardly knows
    where it lies, and the decoder has to count them.
    """

    frequencies: Tensor
    exact_frequencies: Tensor
    rounded_frequencies: Tensor

    def __init__(self, size: ModelSize, answer_loss: AnswerLoss) -> None:
        super().__init__()
        self.size = size
        self.model = Body(size)
        self.answer_loss = answer_loss
        self.lm_head = nn.Linear(size.decoder.hidden, size.decoder.vocabulary, bias=False)
        slots = CELLS_PER_PATCH * CHARACTER_CLASSES
        self.patch_reader = nn.Linear(size.sam.width, slots)
        self.token_reader = nn.Linear(size.decoder.hidden, PATCHES_PER_TOKEN * slots)
        self.place_reader = nn.Linear(size.decoder.hidden, EDGES * PLACE_CLASSES)
        self.place_loss = NearMisses(PLACE_CLASSES, range(1, PLACE_CLASSES))
        weights = torch.ones(CHARACTER_CLASSES)
        weights[0] = BACKGROUND_WEIGHT
        self.register_buffer("class_weights", weights, persistent=False)
        # While fresh readers settle on trained towers, their gradient stays out of the towers.
        self.readers_settling = False
        width = size.decoder.hidden // size.decoder.heads
        self.register_buffer("exact_frequencies", rotary_frequencies(width, False), persistent=False)
        self.register_buffer("rounded_frequencies", rotary_frequencies(width, True), persistent=False)
        self.register_buffer("frequencies", rotary_frequencies(width, True), persistent=False)

    def set_rotary(self, rounded: bool) -> None:
        """Rotary frequencies rounded to bf16, as published loading leaves them, or exact.

        They change in place: a recorded step reads them there.
        """
        self.frequencies.copy_(self.rounded_frequencies if rounded else self.exact_frequencies)

    def view(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels (B, 3, P, P) in -1..1 to projected tokens (B, Q, Q, C) and patches (B, S, S, width)."""
        # One order in memory wherever they come from: another one would be compiled apart.
        pixels = pixels.contiguous(memory_format=torch.channels_last)
        features, patches = self.model.sam_model(pixels)
        side = features.shape[-1]
        words = self.model.vision_model(features)[:, 1:]
        tokens = self.model.projector(torch.cat([words, features.flatten(2).transpose(1, 2)], -1))
        return tokens.unflatten(1, (side, side)), patches

    def fuse(self, tokens: Tensor, tiles: Tensor | None = None) -> Tensor:
        """The vision sequence: local rows, global rows, separator.

        `tokens` is the global view (B, Q, Q, C), `tiles` the crops (B, rows, columns, q, q, C).
        """
        body = self.model
        parts = []
        if tiles is not None:
            # Tiles laid out as they were cut: (B, rows q, columns q, C).
            stitched = tiles.permute(0, 1, 3, 2, 4, 5).flatten(1, 2).flatten(2, 3)
            parts.append(_with_newlines(stitched, body.image_newline))
        parts.append(_with_newlines(tokens, body.image_newline))
        parts.append(body.view_seperator.to(tokens.dtype).expand(tokens.shape[0], 1, -1))
        return torch.cat(parts, 1)

    def decode(
        self, x: Tensor, start: int = 0, caches: list[LayerCache] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Embeddings (B, T, C) from position `start` to hidden states (B, T, C) and the balance loss."""
        cosines, sines = rotary_table(self.frequencies, start, x.shape[1])
        balances = []
        for index, layer in enumerate(self.model.layers):
            x, balance = layer(x, cosines, sines, caches[index] if caches else None)
            balances.append(balance)
        mixtures = max(1, len(balances) - self.size.decoder.first_dense)
        return self.model.norm(x), torch.stack(balances).sum() / mixtures

    def embed(self, vision: Tensor, before: Tensor, after: Tensor) -> Tensor:
        """Token embeddings around the vision sequence: (B, len(before) + V + after, C)."""
        lookup = self.model.embed_tokens
        return torch.cat([lookup(before).to(vision.dtype), vision, lookup(after).to(vision.dtype)], 1)

    def reading_loss(
        self, patches: Tensor, tokens: Tensor, characters: Tensor | None, places: Tensor | None
    ) -> Tensor:
        """Cross entropy of the readers against characters (B, S, 2 S) and places (B, 4, Q, Q) of views."""
        if self.readers_settling:
            patches, tokens = patches.detach(), tokens.detach()
        loss = tokens.new_zeros((), dtype=torch.float32)
        if characters is not None:
            loss = loss + self._character_loss(patches, tokens, characters)
        if places is not None:
            loss = loss + self._place_loss(tokens, places)
        return loss

    def _character_loss(self, patches: Tensor, tokens: Tensor, characters: Tensor) -> Tensor:
        batch, side, columns = characters.shape
        target = characters.long()  # CROWDED where there is no telling
        by_patch = self.patch_reader(patches).float().reshape(-1, CHARACTER_CLASSES)
        loss = F.cross_entropy(by_patch, target.flatten(), weight=self.class_weights, ignore_index=CROWDED)
        quarter = side // 4
        cells = target.view(batch, quarter, 4, quarter, columns // quarter).permute(0, 1, 3, 2, 4)
        by_token = self.token_reader(tokens).float().reshape(-1, CHARACTER_CLASSES)
        each = F.cross_entropy(by_token, cells.flatten(), ignore_index=CROWDED, reduction="none")
        known, printed = cells != CROWDED, cells > 0
        density = 1 + (known & printed).sum((-2, -1), keepdim=True) / DENSE  # (B, Q, Q, 1, 1)
        weights = torch.where(printed, 1.0, BACKGROUND_WEIGHT) * known * density
        return loss + (each * weights.flatten()).sum() / weights.sum()

    def _place_loss(self, tokens: Tensor, places: Tensor) -> Tensor:
        numbers = places.long().permute(0, 2, 3, 1)  # (B, Q, Q, 4)
        by_edge = self.place_reader(tokens).float().unflatten(-1, (EDGES, PLACE_CLASSES))
        there = numbers > 0
        weights = torch.where(there, 1.0, BACKGROUND_WEIGHT)
        return (self.place_loss(by_edge, numbers, there) * weights).sum() / weights.sum()

    def read(
        self, pixels: Tensor, characters: Tensor | None = None, places: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Projected tokens (B, Q, Q, C) of views and the reading loss against what is given."""
        seen, losses = [], []
        count = views_at_once(pixels.shape[-1])
        for start in range(0, len(pixels), count):
            part = slice(start, start + count)
            tokens, patches = self.view(pixels[part])
            there = (None if cells is None else cells[part] for cells in (characters, places))
            seen.append(tokens)
            losses.append(self.reading_loss(patches, tokens, *there))
        return torch.cat(seen), torch.stack(losses).mean()

    def text_loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        """The loss of the target tokens (B, T), padding left out."""
        loss: Tensor = self.answer_loss(self.lm_head(hidden).float(), target)
        return loss

    def forward(
        self,
        pixels: Tensor,
        cells: Cells,
        before: Tensor,
        read: Tensor,
        target: Tensor,
        local: Tensor | None = None,
    ) -> Losses:
        """Losses of a batch: global view, cells, ids before the image, after it (B, T), their next.

        `local`: the stretched page (B, 3, 640 rows, 640 columns) that is cut into tiles.
        """
        crops = None
        if local is None:
            tokens, reading = self.read(pixels, cells.characters, cells.places)
        else:
            tokens, placing = self.read(pixels, places=cells.places)
            tiles = cut_tiles(local)  # (B, rows, columns, 3, 640, 640)
            side = TILE_PX // PATCH_PX
            characters = cut_tiles(cells.characters, side, CELLS_PER_PATCH * side)
            crops, reading = self.read(tiles.flatten(0, 2), characters.flatten(0, 2))
            reading = reading + placing
            crops = crops.unflatten(0, tiles.shape[:3])
        x = self.embed(self.fuse(tokens, crops), before, read)
        hidden, balance = self.decode(x)
        text = self.text_loss(hidden[:, -target.shape[1] :], target)
        return Losses(text, reading, balance)

    def compile_blocks(self, compiler: Callable[..., Any] = torch.compile) -> None:
        """Compiles one block of each kind; equal blocks share the result, so starting stays quick.

        The decoder's batch and length are left open, as they differ from step to step. The towers are
        compiled for one number of views: with that open, the sums over all patches in the gradients of
        biases and norms are not split any more, and a step takes twice as long.
        """
        body = self.model
        for block in (*body.sam_model.blocks, *body.vision_model.transformer.layers):
            block.forward = compiler(block.forward)
        for layer in body.layers:
            layer.forward = _open(compiler(layer.forward), (0, 1), (0,), (0,))
        self.reading_loss = compiler(self.reading_loss)  # type: ignore[method-assign]
        self.text_loss = _open(compiler(self.text_loss), (0, 1), (0, 1))  # type: ignore[method-assign]


def _open(function: Callable[..., Any], *dimensions: tuple[int, ...]) -> Callable[..., Any]:
    """`function` with these dimensions of its first tensors marked as varying from call to call."""

    def call(*arguments: Any) -> Any:
        for tensor, open_ones in zip(arguments, dimensions, strict=False):
            for dimension in open_ones:
                torch._dynamo.maybe_mark_dynamic(tensor, dimension)
        return function(*arguments)

    return call


def build_model(config_path: Path) -> TrainingModel:
    """A freshly initialised model of the size that `config.json` names."""
    size = model_size(json.loads(config_path.read_text(encoding="utf-8")))
    return TrainingModel(size, markup_loss(size.decoder.vocabulary))
