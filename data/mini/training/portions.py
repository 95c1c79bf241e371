"""What each process of a training run is fed: which modes, how many pages a step, how often each."""

from data.mini.training.data import Portion
from data.mini.training.views import BASE, GUNDAM, LARGE, SMALL, TINY, Mode

# A step's work is held level between the modes, so that no process waits for another. GFLOP a page, forward
# and back: SAM's global attention is what the larger views spend most on.
COST_OF_A_STEP = 14_000.0
COST_OF_A_TOKEN = 0.093  # of the decoder, which runs every token through every expert
COST_OF_A_PATCH = 0.016  # in SAM's linear layers
COST_OF_A_PAIR = 1.7e-7  # of patches in SAM's two global layers, a channel of its heads
USUAL_FILL = 0.6  # of the longest target, padding included
PATCH_PX = 16
HEAD_WIDTH = 32
# Every grid's pages make the same number of tiles, so the towers are compiled for one number only.
TILES_OF_A_STEP = 72
# In the modes with crops the towers learn from the padded view in a share of the steps only: it costs as
# much as all tiles together, and is what Base trains on anyway.
LEARN_FROM_WHOLE = 0.4

# One row to a process, and the shares within it. Small is read by most users; the crops have most to learn.
TABLES: tuple[dict[Mode, float], ...] = (
    {SMALL: 7, TINY: 0.3},
    dict.fromkeys(GUNDAM, 1.0),
    {BASE: 5, LARGE: 0.3, **dict.fromkeys(GUNDAM, 0.2)},
    {SMALL: 4, BASE: 3},
)
# Compilation takes half a minute for each number of views: one grid stands for all, with Base's 24 pages.
COMPILED = (SMALL, BASE, next(mode for mode in GUNDAM if mode.name == "gundam-1x3"))


def _cost_of_a_view(side: int) -> float:
    grid = side // PATCH_PX
    patches = grid * grid
    # The relative positions ride along as extra channels of the heads: one a row and one a column.
    return patches * (COST_OF_A_PATCH + COST_OF_A_PAIR * patches * (HEAD_WIDTH + 2 * grid))


def pages_of_a_step(mode: Mode, cost: float = COST_OF_A_STEP) -> int:
    """How many pages of a mode make one step's work."""
    if mode.cropped:
        return max(1, int(TILES_OF_A_STEP * cost / COST_OF_A_STEP) // (mode.columns * mode.rows))
    page = _cost_of_a_view(mode.side)
    page += COST_OF_A_TOKEN * (mode.image_tokens + USUAL_FILL * mode.longest_target)
    return max(1, int(cost / page) // 8 * 8 or int(cost / page))


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
