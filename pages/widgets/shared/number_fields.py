"""What a browser makes of 5,000 digits in a number field is Infinity: the field then has its first value.

Streamlit makes a whole number of what it gets, which fails for Infinity and for what is no number.
"""

from __future__ import annotations

from functools import wraps
from math import isfinite
from typing import Any

from streamlit.elements.widgets.number_input import NumberInputSerde


def take_finite_numbers() -> None:
    """Have every number field of this server leave out what is not finite."""
    given = NumberInputSerde.deserialize
    if getattr(given, "finite", False):
        return

    @wraps(given)
    def finite(self: NumberInputSerde, ui_value: Any) -> Any:
        number = ui_value if ui_value is None or isfinite(ui_value) else None
        return given(self, number)

    finite.finite = True  # type: ignore[attr-defined]
    NumberInputSerde.deserialize = finite  # type: ignore[method-assign]
