"""Draws random pages. The same seed gives the same bytes.

`difficulty` runs from 0 (one short line in large type) to 1 (full pages); it is the trainer's curriculum.
"""

import random

from data.mini.training.page import FONTS, Canvas, Ink, Page, draw_picture, line_width, wrap
from data.mini.training.words import sentences

# Font sizes and densities are meant for this many pixels of the page's longer side.
MODEL_SIDE_PX = 640
MOST_CHARACTERS = 340  # characters and markup of the fullest page
TOKENS_PER_BLOCK = 18  # what a block's markup takes from that


def page_size(rng: random.Random, side_limit_px: int, aspect: float | None = None) -> tuple[int, int]:
    """Width and height: mostly portrait paper, some square and wide; now and then a large scan."""
    form = rng.random()
    if aspect is not None:
        aspect *= rng.uniform(0.86, 1.16)
    elif form < 0.35:
        aspect = rng.uniform(0.68, 0.8)
    elif form < 0.6:
        aspect = rng.uniform(0.85, 1.2)
    else:
        aspect = 2 ** rng.uniform(-0.95, 0.95)
    longer = rng.randint(520, 900) if rng.random() < 0.92 else rng.randint(900, side_limit_px)
    return (longer, round(longer / aspect)) if aspect > 1 else (round(longer * aspect), longer)


def _dark(rng: random.Random) -> Ink:
    if rng.random() < 0.5:
        grey = rng.randint(0, 80)
        return grey, grey, grey
    return rng.randint(0, 90), rng.randint(0, 90), rng.randint(0, 110)


def _paper(rng: random.Random) -> Ink:
    if rng.random() < 0.5:
        return 255, 255, 255
    return rng.randint(228, 255), rng.randint(228, 255), rng.randint(225, 255)


def random_page(
    seed: int | str, difficulty: float = 1.0, side_limit_px: int = 1800, aspect: float | None = None
) -> Page:
    """A page of titles, paragraphs and pictures in one or two columns; `aspect` is about width / height.

    Never without a block. Text blocks keep to whole lines; reading order is top to bottom, column by column.
    """
    rng = random.Random(seed)
    # Harder stages keep some of what came before.
    difficulty *= rng.random() ** 0.5 if rng.random() < 0.6 else 1.0
    width, height = page_size(rng, side_limit_px, aspect)
    scale = max(width, height) / MODEL_SIDE_PX
    smallest = 28 - 12 * difficulty
    body_px = round(rng.uniform(smallest, smallest + 10) * scale)
    colourful = rng.random() < 0.4
    canvas = Canvas(width, height, _paper(rng), "RGB" if colourful else "L")

    body_font, title_font = rng.choice(FONTS), rng.choice(FONTS)
    body_ink = _dark(rng)
    title_ink = _dark(rng) if rng.random() < 0.4 else body_ink
    leading = rng.uniform(1.22, 1.45)
    guessable = rng.choice((1.0, 0.6, 0.6, 0.6, 0.3))
    centred_titles = rng.random() < 0.35
    margin = round(rng.uniform(0.04, 0.12) * width)
    top = round(rng.uniform(0.03, 0.1 if difficulty > 0.3 and rng.random() < 0.6 else 0.55) * height)
    bottom = height - round(0.03 * height)
    gap_px = max(8, round(body_px * rng.uniform(0.6, 2.2)))
    columns = 2 if difficulty > 0.5 and width > 1.1 * height and rng.random() < 0.4 else 1
    column = (width - (columns + 1) * margin) // columns
    lefts = [margin + index * (column + margin) for index in range(columns)]

    budget = round(12 + (MOST_CHARACTERS - 12) * difficulty)
    left, y, placed = lefts.pop(0), top, 0
    for _ in range(1 + round(9 * difficulty)):
        kind = rng.random()
        words: tuple[str, str, int, Ink] | None = None
        if kind < (0.15 if placed else 0.65):
            size_px = round(body_px + rng.uniform(3, 16) * scale)
            text = sentences(rng, rng.randint(4, max(5, min(36, budget))), guessable).rstrip(".,;:")
            lines = wrap(text, title_font, size_px, column)[: rng.choice((1, 1, 2))]
            words = "title", title_font, size_px, title_ink
        elif kind < 0.83 or not placed:
            text = sentences(rng, rng.randint(6, max(7, min(170, budget))), guessable)
            lines = wrap(text, body_font, body_px, column)[: rng.randint(1, 7)]
            words = "text", body_font, body_px, body_ink
        if words is not None:
            label, name, size_px, ink = words
            pitch_px = round(size_px * leading)
            fits = all(line_width(name, size_px, line) <= column for line in lines)
            if fits and y + pitch_px * len(lines) <= bottom:
                centre = column if label == "title" and centred_titles else None
                y = canvas.text(label, lines, left, y, name, size_px, pitch_px, ink, centre) + gap_px
                budget -= sum(map(len, lines)) + TOKENS_PER_BLOCK
                placed += 1
        else:
            w = round(column * rng.uniform(0.3, 1.0))
            h = min(round(w * rng.uniform(0.3, 1.0)), round(height * 0.35))
            if h > 24 and y + h <= bottom:
                shift = rng.choice((0, (column - w) // 2))
                y = canvas.picture(draw_picture(rng, w, h), left + shift, y) + gap_px
                budget -= TOKENS_PER_BLOCK
                placed += 1
        if y > 0.6 * bottom and lefts:
            left, y = lefts.pop(0), top
        if budget <= 0:
            break
    if not placed:
        size_px = max(10, round(16 * scale))
        canvas.text("text", ["Note"], left, height // 3, body_font, size_px, size_px, body_ink)
    return canvas.page()
