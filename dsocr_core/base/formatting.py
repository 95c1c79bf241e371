"""Numbers, amounts and times in words: the shell, the reports and the app write them alike.

Three significant digits, a unit always, and "not measured" for null: never a false zero.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import floor, log10, nan

NOT_MEASURED = "not measured"
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_OF_SECONDS = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def significant(value: float) -> str:
    """Write three significant digits without an exponent: 0.00123, 1.23, 12.3, 1,230."""
    rounded = float(f"{value:.3g}")
    if rounded == 0 or rounded != rounded:
        return NOT_MEASURED if rounded else "0"
    magnitude = floor(log10(abs(rounded)))
    return f"{value:,.0f}" if magnitude >= 2 else f"{rounded:.{2 - magnitude}f}"


def duration(milliseconds: float | None) -> str:
    """Write ms below a second, then s, then minutes and hours."""
    if milliseconds is None or milliseconds != milliseconds:
        return NOT_MEASURED
    if milliseconds < 999.5:
        return f"{significant(milliseconds)} ms"
    minutes, rest = divmod(int(milliseconds / 1000), 60)
    if milliseconds < 99_950:
        return amount(milliseconds / 1000, "s")
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def percent(value: float | None, missing: str = NOT_MEASURED) -> str:
    """Write a value that is already in percent; a difference below zero has a minus sign of full width."""
    if value is None or value != value:
        return missing
    return f"{significant(value)} %".replace("-", "−", 1)


def share(value: float | None, missing: str = NOT_MEASURED) -> str:
    """Write a share of one as percent; one that is not whole is never 100 %."""
    if value is not None and 0.9995 <= value < 1:
        return "over 99.9 %"
    return percent(None if value is None else 100 * value, missing)


def scale_of(largest: float, unit: str) -> tuple[float, str]:
    """Divisor and prefixed unit with which `largest` has 1 to 3 digits before its point."""
    sizes = _OF_SECONDS if unit == "s" else _PREFIXES
    size, prefix = next((each for each in sizes if abs(largest) >= 0.9995 * each[0]), sizes[-1])
    return size, prefix + unit


def amount(value: float | None, unit: str = "") -> str:
    """Write 4.28 TFLOP, 1.15 GB, 780 TFLOP/s, 1.25 ms; the unit "s" goes down to ms and µs instead of up."""
    if value is None or value != value:
        return NOT_MEASURED
    size, name = scale_of(value, unit) if value else (1.0, unit)
    return f"{significant(value / size)} {name}".rstrip()


def signed(value: float | None, unit: str = "") -> str:
    """Write a difference with its sign, without a unit as it is; an exact zero has none."""
    text = amount(value, unit) if unit or value is None or value != value else significant(value)
    return f"+{text}" if value is not None and value > 0 else text.replace("-", "−", 1)


def speed_ratio(ms: float | None, other_ms: float | None) -> str:
    """Compare two times in words: "5.67x faster", "1.31x slower"."""
    ratio = other_ms / ms if ms and other_ms else nan
    if ratio != ratio:
        return NOT_MEASURED
    if 0.995 <= ratio < 1.005:
        return "as fast"
    return f"{significant(ratio)}x faster" if ratio > 1 else f"{significant(1 / ratio)}x slower"


def moment(iso: str) -> str:
    """Write an ISO 8601 time as `2026-11-21 10:31 UTC`; the text itself when it is none."""
    try:
        return datetime.fromisoformat(iso).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return iso


def plural(count: int, noun: str, many: str | None = None) -> str:
    """Write 1 box, 2 boxes."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def shortened(text: str, most: int) -> str:
    """Shorten a text in its middle: both ends tell names apart."""
    if len(text) <= most:
        return text
    head = (most - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"
