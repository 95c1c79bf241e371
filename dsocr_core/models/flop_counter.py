"""FLOPs that torch's `FlopCounterMode` counts in a call, by module and operator.

`scaled_dot_product_attention` is two `bmm` over the whole square on meta, the same number under a kernel's
name on CUDA, and nothing on the CPU. The package flash-attn is never counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

Flops = Counter[str]
"""FLOPs by operator, under torch's aten names: `mm`, `addmm`, `bmm`, `convolution`."""

EVERYTHING = "Global"
"""Name of the sum over all modules."""
_CUDA_ATTENTION = {
    f"_scaled_dot_product_{kernel}_attention": "scaled_dot_product_attention"
    for kernel in ("flash", "efficient", "cudnn")
}
"""Names of CUDA's attention kernels, and the one name used for all here."""


@contextmanager
def counting(fused: bool = False) -> Iterator[FlopCounterMode]:
    """Count the FLOPs of the block. Attention takes its plain form, unless `fused` keeps torch's.

    The plain form is set for the whole process: except on the meta device, run no other model meanwhile.
    """
    form = nullcontext() if fused else sdpa_kernel(SDPBackend.MATH)
    # Not inference mode, in which the counter would split every composite operator in Python.
    with torch.no_grad(), form, FlopCounterMode(display=False) as counter:
        yield counter


def count_flops(
    call: Callable[..., Any], *arguments: Any, fused: bool = False, **named: Any
) -> tuple[Any, dict[str, Flops]]:
    """Run a call. Returns its result, and FLOPs by module path, which begins with the outermost class."""
    with counting(fused) as counter:
        result = call(*arguments, **named)
    modules: dict[str, Flops] = {EVERYTHING: Counter()}
    for module, counts in counter.get_flop_counts().items():
        flops = modules.setdefault(module, Counter())
        for operator, count in counts.items():
            name = str(operator).removeprefix("aten.")
            flops[_CUDA_ATTENTION.get(name, name)] += count
    return result, modules
