# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The inner loop of every matrix-vector kernel: rows of weights in registers, times the vector.

A row of `WIDTH` is cut into chunks (`launch.chunk_width`), and the tiles (ROWS, CHUNK) of all chunks are
held at once: all loads are in flight before the first is used, which keeps the memory busy.
Sums are float32; `rounded` then rounds where the eager engine does.

A tile of bfloat16 is loaded as pairs in int32 and unpacked only where it is used. Loaded as bfloat16, the
compiler unpacks it where it is loaded: twice the registers while it is in flight, and programs that stall on
their weights before they wait for the previous kernel or let the next one start.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def extended(items, item):
    """Tuple with one more item: Triton has no lists."""
    return items + (item,)  # noqa: RUF005


@triton.jit
def load_tile(
    rows, live, first,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr, CACHE: tl.constexpr, EVICTION: tl.constexpr,
):  # fmt: skip
    """Columns `first` to `first + CHUNK` of rows, in pairs where that is possible.

    `rows` pointers and `live` bool, of one shape; the columns are a further dimension of CHUNK or CHUNK/2.
    """
    if rows.dtype.element_ty == tl.bfloat16 and WIDTH % 2 == 0:
        cols = first // 2 + tl.arange(0, CHUNK // 2)
        at = tl.expand_dims(rows.to(tl.pointer_type(tl.int32)), -1) + cols
        mask = tl.expand_dims(live, -1) & (cols < WIDTH // 2)
        return tl.load(at, mask=mask, other=0, cache_modifier=CACHE, eviction_policy=EVICTION)
    else:
        cols = first + tl.arange(0, CHUNK)
        at = tl.expand_dims(rows, -1) + cols
        mask = tl.expand_dims(live, -1) & (cols < WIDTH)
        return tl.load(at, mask=mask, other=0.0, cache_modifier=CACHE, eviction_policy=EVICTION)


@triton.jit
def unpacked(tile):
    """A tile of `load_tile` as float32, (..., CHUNK)."""
    if tile.dtype == tl.int32:
        # A bfloat16 is the upper half of a float32.
        low = (tile << 16).to(tl.float32, bitcast=True)
        high = (tile & -65536).to(tl.float32, bitcast=True)
        pairs = tl.join(low, high)
        return tl.reshape(pairs, tile.shape[:-1] + [tile.shape[-1] * 2])  # noqa: RUF005
    else:
        return tile.to(tl.float32)


@triton.jit
def load_rows(row_ptrs, live, WIDTH: tl.constexpr, CHUNK: tl.constexpr):
    """Rows of weights as a tuple of tiles. `row_ptrs` (ROWS,), `live` (ROWS,) bool."""
    tiles = ()
    for c in tl.static_range((WIDTH + CHUNK - 1) // CHUNK):
        # A weight is read once a token, so it need not stay in a cache.
        tiles = extended(tiles, load_tile(row_ptrs, live, c * CHUNK, WIDTH, CHUNK, "", "evict_first"))
    return tiles


@triton.jit
def load_vector(ptr, WIDTH: tl.constexpr, CHUNK: tl.constexpr):
    """A vector as a tuple of float32 chunks (CHUNK,), past any stale L1 line."""
    chunks = ()
    for c in tl.static_range((WIDTH + CHUNK - 1) // CHUNK):
        cols = c * CHUNK + tl.arange(0, CHUNK)
        chunk = tl.load(ptr + cols, mask=cols < WIDTH, other=0.0, cache_modifier=".cg")
        chunks = extended(chunks, chunk.to(tl.float32))
    return chunks


@triton.jit
def dot_rows(tiles, chunks, COUNT: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr):
    """Each row times the vector: (ROWS,) float32, not yet rounded."""
    products = tl.zeros([ROWS, CHUNK], tl.float32)
    for c in tl.static_range(COUNT):
        products += unpacked(tiles[c]) * chunks[c][None, :]
    return tl.sum(products, axis=1)


@triton.jit
def rounded(x, DTYPE: tl.constexpr):
    """float32 values rounded to the activations' precision."""
    return x.to(DTYPE).to(tl.float32)


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


def product_reference(weight: Tensor, x: Tensor) -> Tensor:
    """(M, K) and (K,) -> (M,): summed in float32, then rounded once."""
    return (weight.to(torch.float32) @ x.to(torch.float32)).to(x.dtype)


def gated_reference(gate: Tensor, up: Tensor, x: Tensor) -> Tensor:
    """SiLU of one product times the other: (I, C) twice and (C,) -> (I,)."""
    return F.silu(product_reference(gate, x)) * product_reference(up, x)
