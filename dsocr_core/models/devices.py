"""Names of devices, and what a GPU lacks."""

from __future__ import annotations

import functools
import platform
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

FULL = (8, 0)
"""First compute capability with bf16 in hardware and support by Triton and flash-attn."""


def device_name(device: torch.device) -> str:
    """Name of a device as results and benches record it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_processor()}, {torch.get_num_threads()} threads"


@functools.cache
def _processor() -> str:
    """Model of the CPU; its architecture where the system does not name it."""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(errors="replace")
        if found := re.search(r"^model name\s*: *(.+)", text, re.MULTILINE):
            return found[1].strip()
    return platform.machine() or "CPU"


@dataclass(frozen=True)
class Gpu:
    """Facts of one GPU. `arches` are the architectures, like `sm_90`, that this torch has kernels for."""

    name: str
    capability: tuple[int, int]
    arches: tuple[str, ...]
    free_bytes: int
    total_bytes: int

    @classmethod
    def of(cls, device: torch.device) -> Gpu:
        """Facts of a GPU from torch. Memory that torch caches counts as free."""
        free, total = torch.cuda.mem_get_info(device)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        arches = tuple(torch.cuda.get_arch_list())
        name, capability = torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)
        return cls(name, capability, arches, free, total)

    @property
    def has_kernels(self) -> bool:
        """True where this torch has code for the GPU, or code that its driver can compile."""
        for kind, major, minor in re.findall(r"\b(sm|compute)_(\d+)(\d)[af]?\b", " ".join(self.arches)):
            same = kind == "compute" or int(major) == self.capability[0]
            if same and (int(major), int(minor)) <= self.capability:
                return True
        return False

    def __str__(self) -> str:
        free, total = (f"{count / 2**30:.0f}" for count in (self.free_bytes, self.total_bytes))
        return f"{self.title}, {free} of {total} GiB free"

    @property
    def title(self) -> str:
        return f"{self.name}, compute capability {self.capability[0]}.{self.capability[1]}"

    @property
    def lacks(self) -> str:
        """What the GPU cannot do, and the way out; empty where nothing is missing."""
        if not self.has_kernels:
            return (
                f"torch {torch.__version__} has no kernels for {self.title} (it has "
                f"{', '.join(self.arches) or 'none'}): install a torch that has them, or give --device cpu"
            )
        if self.capability < FULL:
            return (
                f"{self.title}, has no bf16 in hardware, and the fast engine and flash-attn need 8.0: read "
                "with --engine eager, slowly in bfloat16, or give --dtype float32"
            )
        return ""
