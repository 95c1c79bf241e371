# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Launches of kernels: block sizes, dependent launch, the checks before, and how launchers are loaded.

With programmatic dependent launch (Hopper and later) a kernel's programs start while the kernel before
still runs. Each first loads weights, then waits for that kernel to end, then lets the next one start:

    weights = load_rows(...)        # nobody writes them
    await_previous(PDL)             # all of the kernel before is done and visible
    ...                             # read activations, write results

Because the next kernel is let in only after the wait, what ran two kernels ago is complete when a
program starts. So a program may read that before its wait as well, through `.cg` (the L1 cache may hold
an older line). It may write only after the wait: then all kernels before have ended, so it overwrites
nothing that one of them still reads.

A kernel may also be `early`: it lets the next one in as soon as its own weights are in flight, before its
wait. Two kernels then load weights at once, but less is complete when a program starts. With
c(n) the last kernel that is complete when programs of kernel n start,

    c(n) = n - 2, or c(n - 1) where kernel n - 1 is early

and a program may read before its wait only what kernels up to c(n) wrote. `unready` checks that for a
whole order of kernels. Nothing can block: kernel n starts only when every program of n - 1 has started.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, ParamSpec

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime import build

Arguments = ParamSpec("Arguments")

FLOATS = (torch.float32, torch.bfloat16)
LATE, EARLY = 1, 2
"""When a dependent launch lets the next kernel start: after its wait, or before."""

AT_LATE, AT_EARLY = tl.constexpr(LATE), tl.constexpr(EARLY)  # kernels can read only such constants


@dataclass(frozen=True)
class Launch:
    """Block size of a kernel: weight rows (or pairs) of a program, and warps, both powers of two.

    `dependent` and `early` as above. `programs` limits the programs of kernels that go on from block to block
    (`gate_up`, `bound_rows`, `best_of_bounded`); 0 is a program a block. Others ignore it.
    """

    rows: int = 8
    warps: int = 4
    dependent: bool = False
    early: bool = False
    programs: int = 0

    def __post_init__(self) -> None:
        _expect_powers(1, rows=self.rows, warps=self.warps)
        if self.programs < 0:
            raise ValueError(f"{self.programs} programs")

    def options(self) -> dict[str, Any]:
        """Keywords of the launch that every kernel takes."""
        order = (EARLY if self.early else LATE) if self.dependent else 0
        options: dict[str, Any] = {"PDL": order, "num_warps": self.warps}
        # The interpreter does not take this one.
        return options | {"launch_pdl": True} if self.dependent else options


@dataclass(frozen=True)
class Tile:
    """A program's tile of a matrix product: `rows` by `columns` outputs, `depth` of the sum a step.

    Of attention in windows these are queries and keys. Powers of two.
    """

    rows: int = 64
    columns: int = 64
    depth: int = 64
    warps: int = 4
    stages: int = 4

    def __post_init__(self) -> None:
        _expect_powers(16, rows=self.rows, columns=self.columns, depth=self.depth)

    def options(self) -> dict[str, Any]:
        """Keywords of the launch that every kernel takes."""
        return {
            "ROWS": self.rows, "COLUMNS": self.columns, "DEPTH": self.depth,
            "num_warps": self.warps, "num_stages": self.stages,
        }  # fmt: skip


def _expect_powers(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least or value & (value - 1):
            raise ValueError(f"{name} {value} is not a power of two from {least} on")


@dataclass(frozen=True)
class Kernels:
    """Chooses between kernels and, where `plain`, their references in torch.

    The reference of a kernel stands in its file, has its name with `_reference` added, and takes its
    arguments. Steps are tested with references, as an interpreter would run every program of a kernel.
    """

    plain: bool = False

    def __call__(self, kernel: Callable[Arguments, None]) -> Callable[Arguments, None]:
        if not self.plain:
            return kernel
        found: Callable[Arguments, None] = getattr(
            sys.modules[kernel.__module__], f"{kernel.__name__}_reference"
        )
        return found


TRITON, PLAIN = Kernels(), Kernels(plain=True)


@lru_cache
def may_overlap(device: torch.device) -> bool:
    """Tell whether a kernel may start on the device while the one before still runs: from Hopper on."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


@lru_cache
def takes_wide_tiles(device: torch.device) -> bool:
    """Tell whether a program may use 200 KiB of shared memory: on data centre GPUs from Hopper on."""
    if device.type != "cuda":
        return False
    found = torch.cuda.get_device_properties(device)
    return bool(found.shared_memory_per_block_optin >= 200 << 10)  # type: ignore[attr-defined]


def overlapping(device: torch.device) -> dict[str, Any]:
    """Keywords for a kernel that does nothing before its wait: it may start early after any kernel."""
    return {"PDL": LATE, "launch_pdl": True} if may_overlap(device) else {"PDL": 0}


@triton.jit
def await_previous(PDL: tl.constexpr):
    """Wait for the kernel before, then let the next one start; the other way round if early."""
    if PDL == AT_EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    if PDL:
        tl.extra.cuda.gdc_wait()
    if PDL == AT_LATE:
        tl.extra.cuda.gdc_launch_dependents()


def unready(
    order: Sequence[tuple[str, Launch]], needs: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """Pairs (kernel, writer): what the kernel reads before its wait may not be complete when it starts.

    `order` are a step's kernels by name, and step follows step. `needs` are the writers by kernel; the
    last one before a kernel counts. Without dependent launch kernels never overlap.
    """
    twice = [*order, *order]
    complete = -1  # the last kernel that is complete when the programs of `number` start
    for number, (name, _) in enumerate(twice):
        before = twice[number - 1][1] if number else Launch()
        if not before.dependent or not twice[number][1].dependent:
            complete = number - 1
        elif not before.early:
            complete = number - 2
        for writer in needs.get(name, ()):
            written = (at for at in range(number - 1, -1, -1) if twice[at][0] == writer)
            if next(written, -1) > complete:
                yield name, writer


def row_blocks(rows: int, launch: Launch) -> int:
    """Blocks of `launch.rows` that cover that many rows."""
    return -(-rows // launch.rows)


def row_programs(rows: int, launch: Launch) -> int:
    """Programs for those blocks: at most `launch.programs`."""
    blocks = row_blocks(rows, launch)
    return min(launch.programs or blocks, blocks)


def chunk_width(width: int) -> int:
    """Columns of a row that are loaded at once: a power of two, with which the row needs little padding."""
    widths = (256, 128, 64, 32, 16)
    padding = {chunk: -width % chunk for chunk in widths}
    return next((c for c in widths if padding[c] * 8 <= width), min(widths, key=lambda c: padding[c]))


def expect(
    name: str,
    tensor: Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> None:
    """Raise ValueError unless the tensor is contiguous and has that shape, dtype and device."""
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} is {list(tensor.shape)}, expected {list(shape)}")
    if dtype is not None and tensor.dtype != dtype:
        raise ValueError(f"{name} is {tensor.dtype}, expected {dtype}")
    if device is not None and tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device}, expected {device}")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} is not contiguous")


def expect_all(dtype: torch.dtype, device: torch.device, **tensors: tuple[Tensor, tuple[int, ...]]) -> None:
    """`expect` for tensors of one dtype by name, with their shapes. Allows float32 and bfloat16 only."""
    if dtype.is_floating_point and dtype not in FLOATS:
        raise ValueError(f"dtype {dtype} is not supported: float32 or bfloat16")
    for name, (tensor, shape) in tensors.items():
        expect(name, tensor, shape, dtype, device)


_load, _loading = build._load_module_from_path, threading.Lock()


def _load_apart(name: str, path: str) -> Any:
    """Load C modules in turns, and keep what each has. Up to Triton 3.6 all launchers have one name.

    Python puts a launcher that is loaded again into the newest module, which another thread may use.
    """
    with _loading:
        return SimpleNamespace(**vars(_load(name, path)))


build._load_module_from_path = _load_apart
