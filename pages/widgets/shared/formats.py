"""Numbers and words as every page writes them: units, three significant digits, no false zeros."""

from __future__ import annotations

from datetime import UTC, datetime
from math import floor, log10

NOT_MEASURED = "not measured"
NOT_RECORDED = "not recorded"


def significant(value: float) -> str:
    """Three significant digits, without an exponent: 0.00123, 1.23, 12.3, 1,230."""
    rounded = float(f"{value:.3g}")
    if rounded == 0:
        return "0"
    magnitude = floor(log10(abs(rounded)))
    return f"{value:,.0f}" if magnitude >= 2 else f"{rounded:.{2 - magnitude}f}"


def duration(milliseconds: float | None) -> str:
    """ms below a second, then s, then minutes."""
    if milliseconds is None:
        return NOT_MEASURED
    if milliseconds < 999.5:
        return f"{significant(milliseconds)} ms"
    seconds = milliseconds / 1000
    if seconds < 99.95:
        return f"{significant(seconds)} s"
    return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"


def percent(value: float | None) -> str:
    """`value` already in percent."""
    return NOT_MEASURED if value is None else f"{significant(value)} %"


def speed_ratio(ms: float | None, other_ms: float | None) -> str:
    """How one time stands to another: "5.67x faster", "1.31x slower"."""
    if not ms or not other_ms:
        return NOT_MEASURED
    ratio = other_ms / ms
    if 0.995 <= ratio < 1.005:
        return "as fast"
    return f"{significant(ratio)}x faster" if ratio > 1 else f"{significant(1 / ratio)}x slower"


def moment(iso: str) -> str:
    """An ISO 8601 time as `2026-11-21 10:31 UTC`; the text itself when it is none."""
    try:
        return datetime.fromisoformat(iso).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return iso


def plural(count: int, noun: str, many: str | None = None) -> str:
    """1 box, 2 boxes."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"
