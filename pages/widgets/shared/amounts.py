"""Amounts with their units: three significant digits, a decimal prefix, "not measured" for null."""

from __future__ import annotations

from pages.widgets.shared.formats import NOT_MEASURED, percent, significant

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def scale_of(largest: float, unit: str) -> tuple[float, str]:
    """What to divide by, and the unit with its prefix, so that `largest` is written with 1 to 3 digits."""
    if unit == "s":
        return (1.0, "s") if largest >= 0.9995 else (1e-3, "ms") if largest >= 0.9995e-3 else (1e-6, "µs")
    for size, prefix in _PREFIXES:
        if abs(largest) >= 0.9995 * size:
            return size, prefix + unit
    return 1.0, unit


def amount(value: float | None, unit: str) -> str:
    """4.28 TFLOP, 1.15 GB, 780 TFLOP/s, 1.25 ms; `unit` "s" goes down to ms and µs instead of up."""
    if value is None or value != value:
        return NOT_MEASURED
    size, name = scale_of(value, unit) if value else (1.0, unit)
    return f"{significant(value / size)} {name}"


def signed(value: float | None, unit: str) -> str:
    """A difference, with its sign; an exact zero has none."""
    text = amount(value, unit)
    return f"+{text}" if value is not None and value > 0 else text.replace("-", "−", 1)


def percent_of(value: float | None) -> str:
    """A share in percent, with its sign when it is a difference; a dash where there is no whole."""
    if value is None or value != value:
        return "–"
    return percent(value).replace("-", "−", 1)
