"""What each process of a training run is fed: which modes, how many pages a step, how often each."""

from data.mini.training.data import Portion
from data.mini.training.views import BASE, GUNDAM, LARGE, SMALL, TINY, Mode

# A step's work is held level between the modes, so that no process waits for another. The unit is one SAM
# patch; a token of the decoder costs about five.
COST_OF_A_STEP = 440_000
COST_OF_A_TOKEN = 5
USUAL_FILL = 0.6  # of the longest target, padding included
PATCH_PX = 16

# One row to a process, and the shares within it. Small is read by most users; the crops have most to learn.
TABLES: tuple[dict[Mode, float], ...] = (
    {SMALL: 7, TINY: 1},
    dict.fromkeys(GUNDAM, 1.0),
    {BASE: 3, LARGE: 1, **dict.fromkeys(GUNDAM, 0.4)},
    {SMALL: 7, TINY: 1},
)


def pages_of_a_step(mode: Mode, cost: float = COST_OF_A_STEP) -> int:
    """How many pages of a mode make one step's work."""
    patches = mode.side**2 // PATCH_PX**2
    if mode.cropped:
        width, height = mode.finest
        patches += width * height // PATCH_PX**2
    tokens = mode.image_tokens + USUAL_FILL * mode.longest_target
    return max(1, int(cost / (patches + COST_OF_A_TOKEN * tokens)))


def portions(rank: int, count: int, only: str = "", cost: float = COST_OF_A_STEP) -> tuple[Portion, ...]:
    """The portions of process `rank` of `count`; `only` keeps the modes whose name starts so.

    Fewer than four processes take several rows each in turn; more than four begin again at the first.
    """
    rows = TABLES[rank::count] if count < len(TABLES) else (TABLES[rank % len(TABLES)],)
    if only:
        rows = tuple({m: s for m, s in row.items() if m.name.startswith(only)} for row in TABLES)
        rows = tuple(row for row in rows if row)[:1]
        if not rows:
            raise ValueError(f"{only}: no mode of that name")
    shares: dict[Mode, float] = {}
    for row in rows:
        for mode, share in row.items():
            shares[mode] = shares.get(mode, 0.0) + share / sum(row.values())
    return tuple(Portion(mode, pages_of_a_step(mode, cost), share) for mode, share in shares.items())
