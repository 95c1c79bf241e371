"""From a page and a prompt to what `generate` takes: pixels, ids, mask, grid."""

from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from transformers import PreTrainedTokenizerBase

TILE = 640
PATCH_SIZE = 16
DOWNSAMPLE_RATIO = 4
PAD_COLOUR = (127, 127, 127)
IMAGE_TOKEN = "<image>"

# Every (columns, rows) of 2 to 9 tiles, by number of tiles. Among equal numbers the published order
# is that of a CPython set of int pairs; it decides exact ties, so it is written down here.
GRIDS: tuple[tuple[int, int], ...] = (
    (1, 2), (2, 1),
    (3, 1), (1, 3),
    (2, 2), (4, 1), (1, 4),
    (5, 1), (1, 5),
    (1, 6), (6, 1), (3, 2), (2, 3),
    (7, 1), (1, 7),
    (4, 2), (2, 4), (1, 8), (8, 1),
    (1, 9), (3, 3), (9, 1),
)  # fmt: skip


@dataclass(frozen=True)
class PageInputs:
    input_ids: Tensor  # (length,)
    images_seq_mask: Tensor  # (length,) bool, true at image positions
    images_ori: Tensor  # (1, 3, S, S) bfloat16, the global view
    images_crop: Tensor  # (tiles, 3, 640, 640) bfloat16, or zeros (1, 3, base, base)
    images_spatial_crop: Tensor  # (1, 2) columns, rows
    tile_count: int


def load_page(path: str | Path) -> Image.Image:
    """The page upright, as RGB."""
    with Image.open(path) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


def choose_grid(width: int, height: int) -> tuple[int, int]:
    """(columns, rows) of the tiles of a page in crop mode; (1, 1) means that it is not cut."""
    if width <= TILE and height <= TILE:
        return (1, 1)
    aspect = width / height
    best, best_difference = (1, 1), float("inf")
    for columns, rows in GRIDS:
        difference = abs(aspect - columns / rows)
        large_enough = width * height > 0.5 * TILE * TILE * columns * rows
        if difference < best_difference or (difference == best_difference and large_enough):
            best, best_difference = (columns, rows), difference
    return best


def cut_tiles(page: Image.Image, grid: tuple[int, int]) -> list[Image.Image]:
    """The page stretched over the grid and cut row by row."""
    columns, rows = grid
    stretched = page.resize((columns * TILE, rows * TILE))
    corners = [(column * TILE, row * TILE) for row in range(rows) for column in range(columns)]
    return [stretched.crop((x, y, x + TILE, y + TILE)) for x, y in corners]


def to_tensor(image: Image.Image) -> Tensor:
    """RGB pixels in -1..1: (3, H, W) bfloat16."""
    pixels = torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1)
    return ((pixels.float() / 255 - 0.5) / 0.5).to(torch.bfloat16)


def image_token_count(grid: tuple[int, int], base_size: int, image_size: int, crop_mode: bool) -> int:
    """Positions that the page takes in the prompt, row ends and separator included."""
    tile_side = ceil(image_size // PATCH_SIZE / DOWNSAMPLE_RATIO)
    if not crop_mode:
        return (tile_side + 1) * tile_side + 1
    view_side = ceil(base_size // PATCH_SIZE / DOWNSAMPLE_RATIO)
    count = (view_side + 1) * view_side + 1
    if grid != (1, 1):
        count += (tile_side * grid[0] + 1) * (tile_side * grid[1])
    return count


def prepare_inputs(
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    page: Image.Image,
    base_size: int,
    image_size: int,
    crop_mode: bool,
) -> PageInputs:
    grid, tiles = (1, 1), []
    if crop_mode:
        grid = choose_grid(*page.size)
        tiles = cut_tiles(page, grid) if grid != (1, 1) else []
        view = ImageOps.pad(page, (base_size, base_size), color=PAD_COLOUR)
    else:
        if image_size <= TILE:
            page = page.resize((image_size, image_size))
        view = ImageOps.pad(page, (image_size, image_size), color=PAD_COLOUR)

    # One page: the text before the first marker, the page, the text after the last one.
    parts = prompt.strip().split(IMAGE_TOKEN)
    before = tokenizer.encode(parts[0], add_special_tokens=False)
    after = tokenizer.encode(parts[-1], add_special_tokens=False)
    count = image_token_count(grid, base_size, image_size, crop_mode)
    image_id = tokenizer.convert_tokens_to_ids(IMAGE_TOKEN)
    ids = [tokenizer.bos_token_id, *before, *[image_id] * count, *after]
    mask = torch.zeros(len(ids), dtype=torch.bool)
    mask[1 + len(before) : 1 + len(before) + count] = True

    if tiles:
        images_crop = torch.stack([to_tensor(tile) for tile in tiles])
    else:
        images_crop = torch.zeros((1, 3, base_size, base_size), dtype=torch.bfloat16)
    return PageInputs(
        input_ids=torch.tensor(ids, dtype=torch.long),
        images_seq_mask=mask,
        images_ori=to_tensor(view).unsqueeze(0),
        images_crop=images_crop,
        images_spatial_crop=torch.tensor([grid], dtype=torch.long),
        tile_count=len(tiles),
    )


def valid_image_tokens(
    size: tuple[int, int], tile_count: int, base_size: int, image_size: int, crop_mode: bool
) -> int:
    """Image tokens that show the page and not its padding, as `test_compress` counts them."""
    longer, shorter = max(size), min(size)
    filled = 1 - (longer - shorter) / longer
    whole_view = {1024: 256, 1280: 400}
    valid = int(whole_view.get(base_size, 0) * filled)
    if crop_mode:
        return valid + (100 * tile_count if image_size == TILE else 0)
    return valid + {640: 100, 512: 64}.get(base_size, 0)
