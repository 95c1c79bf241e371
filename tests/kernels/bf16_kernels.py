"""Products in bfloat16 at float32's speed, on a CPU that has no instructions for bfloat16.

There torch multiplies element by element: a 3x3 convolution of SAM's neck takes 20 s, in float32 0.1 s.
What takes the place of these kernels does as oneDNN does where there are instructions: float32 inside, one
rounding at the end. Both sides of a comparison get it, in this process and in the vendor's worker, so what
is compared stays the network; on a CPU with the instructions nothing is replaced.
"""

from __future__ import annotations

import warnings
from functools import cache, partial
from typing import Any

PRODUCTS = ("_slow_conv2d_forward", "_slow_conv2d_backward.output_mask", "addmm", "mm", "bmm")


@cache
def install() -> object:
    """For the rest of this process. The kernels go with what is returned; the cache holds it."""
    import torch

    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return None
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it says that a kernel is replaced
        for name in PRODUCTS:
            plain = torch.library.get_kernel(f"aten::{name}", "CPU")
            library.impl(name, partial(_in_float32, plain), "CPU", with_keyset=True, allow_override=True)
    return library


def _in_float32(plain: Any, keys: object, *arguments: Any, **scales: Any) -> Any:
    import torch

    if arguments[0].dtype != torch.bfloat16:
        return plain.call_boxed(keys, *arguments, **scales)
    wide = [a.float() if isinstance(a, torch.Tensor) else a for a in arguments]
    found = plain.call_boxed(keys, *wide, **scales)
    if isinstance(found, tuple):  # gradients, None where none was asked for
        return tuple(a if a is None else a.bfloat16() for a in found)
    return found.bfloat16()
