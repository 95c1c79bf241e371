"""Ties: divergences that rounding alone can explain, judged by both sides' two best logits at that step.

Engines that sum in another order give logits that are some ULPs apart: a unit in the last place is the
distance between neighbouring numbers of a type there. If one side chose x and the other y, the difference of
their logits changed by both margins together, or by more. A tie is a change within `TIE_ULPS`, two for each
of the two logits. So it was measured: fed the same tokens, the eager engine under its two orders of attention
changed a logit of the embedded checkpoint by 0 ULP (median) and 2.6 (99th percentile) in bfloat16, by 1 and 5
in float32, over 320 tokens.

A tie explains one divergence, not a habit. A backend that rounds differently in one operation diverges at a
tie on every page: so did the eager engine on 12 of 12 pages while its quick GELU rounded to bfloat16 at each
step, where the published code computes it in float32.
"""

from __future__ import annotations

import math

from dsocr_core.reading.parity_records import Margins
from dsocr_core.reading.records import OcrResult, TopTwo

TIE_ULPS = 4.0
"""Most ULPs of the coarser type by which the difference of two logits may change at a tie."""

FRACTION_BITS = {"bfloat16": 7, "float16": 10, "float32": 23}
"""Stored bits of the significand, coarsest type first."""

_LEAST_EXPONENT = {"bfloat16": -126, "float16": -14, "float32": -126}
"""Least exponent of normal numbers."""


def ulp(logit: float, dtype: str) -> float:
    """Unit in the last place: the distance between that type's numbers at the magnitude of this one."""
    least = _LEAST_EXPONENT[dtype]
    exponent = max(math.frexp(logit)[1] - 1, least) if logit else least
    return math.ldexp(1.0, exponent - FRACTION_BITS[dtype])


def margins(a: TopTwo | None, b: TopTwo | None, dtypes: tuple[str | None, str | None]) -> Margins | None:
    """The two best of both sides at the step in which they diverge; `dtypes` are the sides' number types.

    None when neither was recorded, or no type is known.
    """
    found = [top for top in (a, b) if top is not None]
    dtype = next((name for name in FRACTION_BITS if name in dtypes), None)
    if not found or dtype is None:
        return None
    change = sum(top.margin for top in found)
    ulps = change / ulp(max(abs(logit) for top in found for logit in top.logits), dtype)
    return Margins(a, b, dtype, ulps, ulps <= TIE_ULPS)


def margins_at(a: OcrResult, b: OcrResult, index: int) -> Margins | None:
    """`margins` of two results at a step; None when one of them had ended before, or tells no tokens."""
    if index >= min(a.new_tokens or 0, b.new_tokens or 0):
        return None
    top_a, top_b = (result.top_two[index] if index < len(result.top_two) else None for result in (a, b))
    dtype_a, dtype_b = (result.inputs.dtype if result.inputs else None for result in (a, b))
    return margins(top_a, top_b, (dtype_a, dtype_b))
