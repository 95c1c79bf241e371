"""Conventions of a prediction. With different ones two correct counters differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints

from dsocr_core.base.errors import DsocrError

Attention = Literal["sdpa", "eager", "flash_attention_2"]
Causal = Literal["full", "halved"]
LmHead = Literal["last", "all"]
Dtype = Literal["bfloat16", "float32"]
Counter = Literal["meta", "cuda", "cpu"]

DTYPE_BYTES: dict[str, int] = {"bfloat16": 2, "float32": 4}


@dataclass(frozen=True)
class Policy:
    ignore_torch_unsupported_flops: bool = True
    """Fused attention that torch's counter has no formula for counts nothing: FlashAttention-2's core
    everywhere, and torch's own on the CPU. Off: the cost of the algorithm."""
    causal: Causal = "full"
    """The decoder's prefill attention over the whole square, as torch counts it, or only the causal half."""
    lm_head: LmHead = "last"
    """Prefill positions whose logits are computed; the published code computes all."""
    head_in_8_bits: bool = False
    """One byte an element for the head's weights: bounds of all logits from 8 bits tell the greedy token."""
    attention: Attention = "sdpa"
    """Attention of the decoder. The towers always use torch's fused one."""
    dtype: Dtype = "bfloat16"
    vision_window_padding: bool = True
    """True counts the zeros that fill SAM's last windows, on which the code computes."""
    counter: Counter = "meta"
    """The device that torch's counter runs on. Fused attention becomes bmm on meta, is one
    operator on CUDA, and on the CPU one that the counter does not know. FLOPs are equal but for that."""

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise DsocrError(f"{name} is {value!r}; choose one of {', '.join(choices)}")

    @property
    def element_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]


_CHOICES = {name: get_args(hint) for name, hint in get_type_hints(Policy).items() if get_args(hint)}
