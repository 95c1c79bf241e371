"""Whether rounding alone can have parted two backends, said by their two best logits where the tokens part.

Engines that sum in another order give logits some places apart: a place is the distance between neighbouring
numbers of a type there (a unit in the last place, ULP). If one backend chose x and the other y, the
difference of their logits moved by both margins together, or by more. A tie is a move within `TIE_ULPS`,
two for each of the two logits. So it was measured: fed the same tokens, the eager engine under its two orders
of attention moved a logit of the embedded checkpoint by 0 places (median) and 2.6 (99 of 100) in bfloat16, by
1 and 5 in float32, over 320 tokens.
"""

from __future__ import annotations

import math
from typing import Any

from dsocr_core.parity_records import Divergence, Margins
from dsocr_core.records import OcrResult, TopTwo

TIE_ULPS = 4.0
"""Most places of the coarser type by which the difference of two logits may move at a tie."""

FRACTION_BITS = {"bfloat16": 7, "float32": 23}
"""Stored bits of the significand, coarsest type first."""

_LEAST_EXPONENT = -126
"""Of normal numbers of both types."""


def place(logit: float, dtype: str) -> float:
    """Distance between that type's numbers at the magnitude of this one."""
    exponent = max(math.frexp(logit)[1] - 1, _LEAST_EXPONENT) if logit else _LEAST_EXPONENT
    return math.ldexp(1.0, exponent - FRACTION_BITS[dtype])


def margins(
    ours: TopTwo | None, vendor: TopTwo | None, dtypes: tuple[str | None, str | None]
) -> Margins | None:
    """The two best of both backends at the step in which they diverge; `dtypes` are the backends' types.

    None when neither was recorded, or no type is known.
    """
    found = [top for top in (ours, vendor) if top is not None]
    dtype = next((name for name in FRACTION_BITS if name in dtypes), None)
    if not found or dtype is None:
        return None
    moved = sum(top.margin for top in found)
    places = moved / place(max(abs(logit) for top in found for logit in top.logits), dtype)
    return Margins(ours, vendor, dtype, places, places <= TIE_ULPS)


def margins_at(ours: OcrResult, vendor: OcrResult, index: int) -> Margins | None:
    """`margins` of two results at a step; None when one of them had ended before."""
    if index >= min(len(ours.token_ids), len(vendor.token_ids)):
        return None
    one, other = (result.top_two[index] if index < len(result.top_two) else None for result in (ours, vendor))
    return margins(one, other, (ours.inputs.dtype, vendor.inputs.dtype))


def margin_words(found: Margins, sides: tuple[str, str] = ("A", "B")) -> str:
    """One clause: "a tie: margin 0.125 of ours and 0 of vendor, 1 place of bfloat16"."""
    parts = [
        f"{top.margin:.4g} of {side}" if top else f"not recorded of {side}"
        for side, top in zip(sides, (found.a, found.b), strict=True)
    ]
    at_least = "" if found.a and found.b else "at least "
    count = f"{at_least}{found.places:.3g} place{'s' * (found.places != 1)} of {found.dtype}"
    return f"{'a tie' if found.tie else 'not a tie'}: margin {' and '.join(parts)}, {count}"


def divergence_words(divergence: Divergence, tokens: int, sides: tuple[str, str] = ("A", "B")) -> str:
    """What is known of why the tokens part, in one clause; `tokens` are those of the shorter side."""
    if divergence.margins is not None:
        return margin_words(divergence.margins, sides)
    return (
        "one side had ended there" if divergence.index >= tokens else "the two best logits are not recorded"
    )


def margins_row(found: Margins | None, sides: tuple[str, str] = ("A", "B")) -> dict[str, Any] | None:
    """The margins as JSON-ready values; null where there is nothing to say."""
    if found is None:
        return None
    tops = {
        side: {"ids": list(top.ids), "logits": list(top.logits), "margin": top.margin} if top else None
        for side, top in zip(sides, (found.a, found.b), strict=True)
    }
    return tops | {"dtype": found.dtype, "places": found.places, "tie": found.tie}
