"""Model that is trained: the core's own model, with experts for whole batches and reading heads beside it.

Letters: B pages, T tokens after the image, P pixels of a side, S = P / 16 patches, Q = S / 4 vision tokens
of a side, C hidden size, K character classes, E experts, I expert width.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from data.mini.training.answer_loss import AnswerLoss, NearMisses, markup_loss
from data.mini.training.markup import LAST_BIN
from data.mini.training.views import CROWDED, EDGES, PATCH_PX, TILE_PX
from dsocr_core.models.blocks.attention import Rotary
from dsocr_core.models.blocks.moe import MixtureOfExperts
from dsocr_core.models.blocks.vision_tokens import fuse_views
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.deepseek_ocr.vision import DeepseekOcr
from dsocr_core.models.family import load_config
from dsocr_core.models.ocr_model import OcrModel

# Character cells of the dense supervision: two side by side in each 16 px patch.
CELLS_PER_PATCH = 2
PATCHES_PER_TOKEN = 16
CHARACTER_CLASSES = 96  # 0 is background, then printable ASCII
PLACE_CLASSES = LAST_BIN + 2  # 0 is background, then the numbers of boxes
BACKGROUND_WEIGHT = 0.1
# A token of this many characters counts twice as much as an empty one: where they are dense they get lost.
DENSE = 8
# Not cuDNN's, the default on Hopper: it plans anew for every length, 13 ms of the host's time a call.
ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    # The length is not asked for: compilation leaves it open.
    with sdpa_kernel(ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class NoCache:
    """Stands for the cache where whole sequences are read: what is written is what there is."""

    length = 0

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        return keys, values

    def advance(self, count: int) -> None:
        pass


class TrainedMixture(MixtureOfExperts):
    """The same mixture, every token through every expert, with weights of zero for those not chosen.

    At this size one large matrix product beats routing, and the host need not know who was chosen. `balance`
    is that of the last call: 1 when the experts share the load evenly.
    """

    balance: Tensor

    def forward(self, x: Tensor) -> Tensor:
        scores = self.gate(x).float().softmax(-1)  # (B, T, E)
        top, index = scores.topk(self.experts_per_token, -1)
        weights = torch.zeros_like(scores).scatter(-1, index, top * self.scaling)
        load = (weights > 0).float().mean((0, 1))
        self.balance = (scores.mean((0, 1)) * load).sum() * scores.shape[-1] / self.experts_per_token
        e = self.experts
        gated = F.silu(F.linear(x, e.gate_proj.flatten(0, 1))) * F.linear(x, e.up_proj.flatten(0, 1))
        gated = gated.unflatten(-1, e.gate_proj.shape[:2])  # (B, T, E, I)
        gated = gated * weights.to(gated.dtype)[..., None]
        routed = F.linear(gated.flatten(2), e.down_proj.permute(1, 0, 2).flatten(1))
        return routed + self.shared_experts(x)


def layers_with_experts(model: OcrModel) -> Iterator[Any]:
    return itertools.islice(model.decoder.layers, model.config.decoder.first_dense_layers, None)


def use_whole_batches(model: OcrModel) -> None:
    """Replace the mixtures by such ones, over the weights that they have."""
    for layer in layers_with_experts(model):
        with torch.device("meta"):
            mixture = TrainedMixture(model.config.decoder)
        mixture.load_state_dict(layer.mlp.state_dict(keep_vars=True), assign=True)
        layer.mlp = mixture


class Cells(NamedTuple):
    """Cells that the readers are to find in pages; 0 is nothing.

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
    """Choose how many views of a side the towers see at a time.

    They are compiled for these numbers, so that a step of any mode is made of what is compiled already.
    """
    return 24 if side_px <= TILE_PX else 8


def cut_tiles(local: Tensor, height: int = TILE_PX, width: int = TILE_PX) -> Tensor:
    """(B, ..., R * height, K * width), a stretched page, to its tiles (B, R, K, ..., height, width)."""
    rows = local.unfold(-2, height, height)  # (B, ..., R, K * width, height)
    tiles = rows.unfold(-2, width, width)  # (B, ..., R, K, height, width)
    return tiles.movedim((-4, -3), (1, 2))


def initialise(model: OcrModel) -> None:
    """Fresh values for what the core leaves empty, as it loads its weights; linear layers have torch's."""
    spread = {"embed_tokens.weight": 0.05, "image_newline": 0.05, "view_seperator": 0.05}
    spread |= dict.fromkeys(("pos_embed", "class_embedding", "position_embedding.weight"), 0.02)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            last = ".".join(name.split(".")[-2:])
            if (std := spread.get(last, spread.get(name.split(".")[-1]))) is not None:
                weight.normal_(std=std)
            elif "rel_pos" in name or (weight.dim() == 1 and name.endswith("bias")):
                weight.zero_()
            elif weight.dim() == 1:
                weight.fill_(1.0)
            elif ".experts." in name:
                weight.uniform_(-1, 1).mul_(weight.shape[-1] ** -0.5)
            elif name.endswith("mlp.gate.weight"):
                weight.normal_(std=weight.shape[-1] ** -0.5)


class TrainingModel(nn.Module):
    """The checkpoint's model with three extra heads that are thrown away at export.

    `patch_reader` names the characters in each patch of SAM's last block, `token_reader` those under each
    projected token: without them the decoder settles on the language prior and never looks. `place_reader`
    tells from a token the numbers of the boxes' edges that run through it: without it a token hardly knows
    where it lies, and the decoder has to count them.
    """

    class_weights: Tensor

    def __init__(self, config: ModelConfig, answer_loss: AnswerLoss) -> None:
        super().__init__()
        self.config = config
        self.model = DeepseekOcr(config)
        use_whole_batches(self.model)
        initialise(self.model)
        self.model.clip.embeddings.patch_embedding.requires_grad_(False)  # never run
        self.answer_loss = answer_loss
        hidden, slots = config.decoder.hidden_size, CELLS_PER_PATCH * CHARACTER_CLASSES
        self.patch_reader = nn.Linear(config.sam.width, slots)
        self.token_reader = nn.Linear(hidden, PATCHES_PER_TOKEN * slots)
        self.place_reader = nn.Linear(hidden, EDGES * PLACE_CLASSES)
        self.place_loss = NearMisses(PLACE_CLASSES, range(1, PLACE_CLASSES))
        weights = torch.ones(CHARACTER_CLASSES)
        weights[0] = BACKGROUND_WEIGHT
        self.register_buffer("class_weights", weights, persistent=False)
        # While fresh readers settle on trained towers, their gradient stays out of the towers.
        self.readers_settling = False
        self._patches: list[Tensor] = []
        self.model.sam.blocks[-1].register_forward_hook(lambda *call: self._patches.append(call[2]))

    def prepare_rotary(self, positions: int, dtype: torch.dtype = torch.bfloat16) -> None:
        """Tables for that many positions on the model's device; `dtype` is that of queries and keys."""
        rounded, exact, self.rotary = (
            Rotary(self.config.decoder, positions, frequencies, dtype, self.model.device)
            for frequencies in (torch.bfloat16, torch.float32, torch.bfloat16)
        )
        self._rotaries = {True: rounded, False: exact}

    def set_rotary(self, rounded: bool) -> None:
        """Rotary frequencies rounded to bf16, as published loading leaves them, or exact; in place."""
        self.rotary.cos.copy_(self._rotaries[rounded].cos)
        self.rotary.sin.copy_(self._rotaries[rounded].sin)

    def view(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels (B, 3, P, P) in -1..1 to projected tokens (B, Q * Q, C) and patches (B, S, S, width)."""
        # One order in memory wherever they come from: another one would be compiled apart.
        tokens = self.model.encode(pixels.contiguous(memory_format=torch.channels_last))
        return tokens, self._patches.pop()

    def fuse(self, tokens: Tensor, tiles: Tensor | None, grid: tuple[int, int]) -> Tensor:
        """The vision sequences (B, V, C) of global views (B, Q * Q, C) and their tiles (B, R * K, q * q, C).

        `grid` is (columns K, rows R).
        """
        model = self.model
        given = (tiles, grid, tokens[:, None], model.image_newline, model.view_seperator)
        return torch.vmap(fuse_views, (None if tiles is None else 0, None, 0, None, None))(*given)

    def embed(self, vision: Tensor, before: Tensor, after: Tensor) -> Tensor:
        """Token embeddings around the vision sequence: (B, len(before) + V + after, C)."""
        lookup = self.model.embed
        return torch.cat([lookup(before), vision, lookup(after)], 1)

    def decode(self, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Logits (B, count, V) of the last positions of embeddings (B, T, C), and the balance loss."""
        logits = self.model.decoder.last_logits(x, NoCache(), self.rotary, causal_attention, count)
        balances = [layer.mlp.balance for layer in layers_with_experts(self.model)]
        return logits, torch.stack(balances).mean()

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
        by_edge = self.place_reader(tokens).float().view(*numbers.shape, PLACE_CLASSES)
        there = numbers > 0
        weights = torch.where(there, 1.0, BACKGROUND_WEIGHT)
        return (self.place_loss(by_edge, numbers, there) * weights).sum() / weights.sum()

    def read(
        self, pixels: Tensor, characters: Tensor | None = None, places: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Projected tokens (B, Q * Q, C) of views and the reading loss against what is given."""
        seen, losses = [], []
        count = views_at_once(pixels.shape[-1])
        for start in range(0, len(pixels), count):
            part = slice(start, start + count)
            tokens, patches = self.view(pixels[part])
            there = (None if cells is None else cells[part] for cells in (characters, places))
            seen.append(tokens)
            losses.append(self.reading_loss(patches, tokens, *there))
        return torch.cat(seen), torch.stack(losses).mean()

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
        crops, grid = None, (1, 1)
        if local is None:
            tokens, reading = self.read(pixels, cells.characters, cells.places)
        else:
            tokens, placing = self.read(pixels, places=cells.places)
            tiles = cut_tiles(local)  # (B, rows, columns, 3, 640, 640)
            side = TILE_PX // PATCH_PX
            characters = cut_tiles(cells.characters, side, CELLS_PER_PATCH * side)
            crops, reading = self.read(tiles.flatten(0, 2), characters.flatten(0, 2))
            reading = reading + placing
            crops, grid = crops.unflatten(0, (len(pixels), -1)), (tiles.shape[2], tiles.shape[1])
        x = self.embed(self.fuse(tokens, crops, grid), before, read)
        logits, balance = self.decode(x, target.shape[1])
        return Losses(self.answer_loss(logits, target), reading, balance)

    def compile_blocks(self) -> None:
        """Compiles one block of each kind; equal blocks share the result, so starting stays quick.

        The decoder's batch and length are left open, as they differ from step to step. The towers are
        compiled for one number of views: with that open, the sums over all patches in the gradients of
        biases and norms are not split any more, and a step takes twice as long.
        """
        for block in (*self.model.sam.blocks, *self.model.clip.transformer.layers):
            block.forward = torch.compile(block.forward)
        for layer in self.model.decoder.layers:
            layer.forward = _open(torch.compile(layer.forward), (0, 1))
        self.reading_loss = torch.compile(self.reading_loss)  # type: ignore[method-assign]
        self.answer_loss.forward = _open(torch.compile(self.answer_loss.forward), (0, 1), (0, 1))


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
    config = load_config(config_path)
    return TrainingModel(config, markup_loss(config.decoder.vocab_size))
