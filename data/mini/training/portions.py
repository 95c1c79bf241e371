"""Portions of a training run: which modes, how many pages a step, how often each."""

from data.mini.training.data import Portion
from data.mini.training.views import BASE, GUNDAM, LARGE, SMALL, TINY, Mode

# Between them these bring up everything that is compiled: both sides of a view, with crops and without.
COMPILED = (SMALL, BASE, next(mode for mode in GUNDAM if mode.name == "gundam-2x2"))


def pages_of_a_grid(mode: Mode) -> int:
    """Count the pages with crops of a step: 48 to 96 tiles, tiles and pages as `views_at_once` has them."""
    return {6: 16, 9: 8}.get(mode.columns * mode.rows, 24)


PAGES: dict[Mode, int] = {
    TINY: 240,
    SMALL: 120,
    BASE: 24,
    LARGE: 8,
    **{mode: pages_of_a_grid(mode) for mode in GUNDAM},
}
# The largest grid has the fewest pages a step and the most to learn.
_GRID_SHARES = {mode: 2 if mode.columns * mode.rows == 9 else 1 for mode in GUNDAM}
# Every process trains the same mode at the same time, so that none waits for another. Small is read by most
# users and had most of the first runs; the larger views have most to learn.
SHARES: dict[Mode, float] = {
    SMALL: 0.2,
    TINY: 0.01,
    BASE: 0.27,
    LARGE: 0.02,
    **{mode: 0.5 * share / sum(_GRID_SHARES.values()) for mode, share in _GRID_SHARES.items()},
}


def portions(only: str = "", size: float = 1.0) -> tuple[Portion, ...]:
    """Each mode's pages a step, times `size`, and its share; `only` keeps the modes whose name starts so.

    Raises ValueError when no mode is left.
    """
    kept = [mode for mode in SHARES if mode.name.startswith(only)]
    if not kept:
        raise ValueError(f"{only}: no mode of that name")
    return tuple(Portion(mode, max(1, round(PAGES[mode] * size)), SHARES[mode]) for mode in kept)
