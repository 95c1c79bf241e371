"""Draws random pages. The same seed gives the same bytes.

`difficulty` runs from 0 (one short line in large type) to 1 (full pages); it is the trainer's curriculum.
Sizes of type are meant in pixels of the mode's finest view ("view px") and scaled to the page.
"""

import io
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from data.mini.training.fonts import FAMILIES, Family, face
from data.mini.training.page import Align, Canvas, Grid, Ink, Page, Type, column_widths, draw_picture
from data.mini.training.views import GRIDS, TILE_PX, Mode
from data.mini.training.words import caption, heading, number, plain_word, sentences, token_count

TOKENS_PER_BLOCK = 16  # label, box and line ends
SMALLEST_VIEW_PX = 13
LARGEST_VIEW_PX = 60
NOISE_PX = 512
SMALL_TYPE = 1.6  # the higher, the more pages have type near the smallest
FINE_PRINT = 5.0  # the same for a page of fine print: six in ten within a tenth of the smallest
DIMMED = 40  # grey levels by which uneven light darkens a corner at most
LIGHT_PAPER = 130  # from this grey level on
Bytes = NDArray[np.uint8]


def _cropped_size(rng: random.Random, mode: Mode) -> tuple[int, int]:
    """A size for which the published dynamic grid picks this mode's tiles.

    That picks the nearest aspect; of equal ones (2 x 2, 3 x 3) the larger above half its tiles' area.
    """
    ratios = sorted({1 / 4, 4.0, *(columns / rows for columns, rows in GRIDS)})
    here = ratios.index(mode.columns / mode.rows)
    low, middle, high = ratios[here - 1 : here + 2]
    aspect = rng.uniform((low + middle) / 2 * 1.02, (middle + high) / 2 * 0.98)
    smallest, largest = {(2, 2): (0.7, 1.05), (3, 3): (0.72, 1.3)}.get((mode.columns, mode.rows), (0.7, 1.3))
    area = TILE_PX**2 * mode.columns * mode.rows * rng.uniform(smallest, largest) ** 2
    return round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))


def page_size(rng: random.Random, mode: Mode) -> tuple[int, int]:
    """Width and height in px: mostly portrait paper, some square and wide; now and then a large scan."""
    if mode.cropped:
        return _cropped_size(rng, mode)
    form = rng.random()
    if form < 0.35:
        aspect = rng.uniform(0.68, 0.8)
    elif form < 0.6:
        aspect = rng.uniform(0.85, 1.2)
    else:
        aspect = 2 ** rng.uniform(-0.95, 0.95)
    if mode.side > TILE_PX:
        longer = rng.randint(700, round(1.4 * mode.side))
    else:
        longer = rng.randint(520, 900) if rng.random() < 0.92 else rng.randint(900, 1800)
    return (longer, round(longer / aspect)) if aspect > 1 else (round(longer * aspect), longer)


def view_scale(mode: Mode, width: int, height: int) -> float:
    """Page px for one view px, in the direction in which the view shrinks the page more."""
    wide, high = mode.finest
    if mode.side > TILE_PX and not mode.cropped:
        return max(width, height) / mode.side
    return max(width / wide, height / high)


def type_px(size_px: float) -> int:
    """A whole size; large ones in steps, so that drawn glyphs are met again."""
    step = 1 if size_px < 24 else 2 if size_px < 48 else 4
    return max(9, step * round(size_px / step))


@dataclass(frozen=True)
class Look:
    """Look that the blocks of a page share; sizes in px of the page."""

    scale: float
    paper: Ink
    body: Type
    title_face: str
    least_title: float  # of the body's size; more where the weight does not tell them apart
    title_ink: Ink
    bold: str
    small: Type
    small_differs: bool  # so much that a caption is told from text without its number
    guessable: float
    centred_titles: bool
    justified: bool
    indent_px: int

    def title(self, size_px: int) -> Type:
        return Type(face(self.title_face, size_px), round(size_px * 1.25), self.title_ink)


def _ink(rng: random.Random, dark: bool) -> Ink:
    """A colour that stands out: dark on light paper, light on dark."""
    grey = rng.random() < 0.6
    red = rng.randint(0, 80)
    colour = (red, red, red) if grey else (red, rng.randint(0, 90), rng.randint(0, 120))
    return colour if dark else (255 - colour[0], 255 - colour[1], 255 - colour[2])


def _paper(rng: random.Random, light: bool) -> Ink:
    form = rng.random()
    if not light:
        red = rng.randint(5, 45)
        return (red, red, red) if form < 0.5 else (red, rng.randint(5, 50), rng.randint(10, 70))
    if form < 0.6:
        return 255, 255, 255
    if form < 0.9:
        return rng.randint(228, 255), rng.randint(228, 255), rng.randint(222, 255)
    return rng.randint(200, 255), rng.randint(205, 250), rng.randint(190, 250)


def _look(rng: random.Random, scale: float, difficulty: float, fine_print: bool) -> Look:
    family: Family = rng.choices(FAMILIES, [each.weight for each in FAMILIES])[0]
    smallest, largest = 28 - 14 * difficulty, 54 - 14 * difficulty
    view_px = smallest * (largest / smallest) ** (rng.random() ** (FINE_PRINT if fine_print else SMALL_TYPE))
    size_px = type_px(view_px * scale)
    cut = rng.random()
    body_face = family.regular if cut < 0.88 else family.italic if cut < 0.94 else family.bold
    other: Family = family if rng.random() < 0.7 else rng.choice(FAMILIES)
    dark = rng.random() > 0.04
    ink = _ink(rng, dark)
    title_face = other.bold if rng.random() < 0.75 else other.regular
    pitch = rng.uniform(1.16, 1.5)
    small_px = type_px(max(SMALLEST_VIEW_PX, view_px * rng.uniform(0.75, 0.92)) * scale)
    small_face = family.italic if rng.random() < 0.35 else family.regular
    shares = (1.0, 0.85, 0.6, 0.3)
    likely = (
        0.35 * difficulty,
        0.3 * difficulty,
        0.25 + 0.25 * (1 - difficulty),
        0.1 + 0.4 * (1 - difficulty),
    )
    return Look(
        scale=scale,
        paper=_paper(rng, dark),
        body=Type(face(body_face, size_px), round(size_px * pitch), ink),
        title_face=title_face,
        least_title=1.12 if title_face == other.bold and body_face != family.bold else 1.45,
        title_ink=_ink(rng, dark) if rng.random() < 0.4 else ink,
        bold=family.bold,
        small=Type(face(small_face, small_px), round(small_px * 1.2), ink),
        small_differs=small_px < 0.85 * size_px,
        guessable=rng.choices(shares, likely)[0],
        centred_titles=rng.random() < 0.35,
        justified=rng.random() < 0.25,
        indent_px=round(size_px * rng.uniform(1, 2)) if rng.random() < 0.3 else 0,
    )


@dataclass(frozen=True)
class Piece:
    """Blocks that stay together: their height, their tokens, and how to draw them at (left, top)."""

    height: int
    tokens: int
    draw: Callable[[Canvas, int, int], None]


@dataclass(frozen=True)
class Room:
    """Room of a piece: px, and tokens of text beside its own markup."""

    width: int
    height: int
    tokens: int


def _wrapped(text: str, style: Type, width: int, height: int, tokens: int, indent: int = 0) -> list[str]:
    """Whole lines of as much of `text` as fits; words wider than the column are left out."""
    words = [word for word in text.split() if style.face.width(word) <= width - indent]
    lines = style.face.wrap(" ".join(words), width, indent)
    lines = lines[: max(0, height // style.pitch_px)]
    while lines and token_count(" ".join(lines)) > tokens:
        if len(lines) > 1:
            lines.pop()
        else:
            lines = [lines[0].rpartition(" ")[0]] if " " in lines[0] else []
    return lines


def _lines(
    label: str, lines: list[str], style: Type, width: int, align: Align, indent: int = 0
) -> Piece | None:
    if not lines:
        return None

    def draw(canvas: Canvas, left: int, top: int) -> None:
        canvas.text(label, lines, left, top, style, width, align, indent)

    tokens = TOKENS_PER_BLOCK + token_count(" ".join(lines)) + (label == "title")
    return Piece(style.pitch_px * len(lines), tokens, draw)


def _title(rng: random.Random, look: Look, room: Room) -> Piece | None:
    body_px = look.body.face.size_px / look.scale
    view_px = min(LARGEST_VIEW_PX, body_px * rng.uniform(look.least_title, 2.2) + 2)
    style = look.title(type_px(view_px * look.scale))
    text = heading(rng, rng.randint(4, max(5, min(40, room.tokens))), look.guessable)
    lines = _wrapped(text, style, room.width, room.height, room.tokens)[: rng.choice((1, 1, 2))]
    return _lines("title", lines, style, room.width, "centre" if look.centred_titles else "left")


def _paragraph(rng: random.Random, look: Look, room: Room) -> Piece | None:
    most = 6 + round(max(1, min(450, room.tokens) - 6) * rng.random() ** 0.7)
    indent = look.indent_px
    text = sentences(rng, most, look.guessable)
    lines = _wrapped(text, look.body, room.width, room.height, room.tokens, indent)[: rng.randint(1, 14)]
    align: Align = "justified" if look.justified else "left"
    return _lines("text", lines, look.body, room.width, align, indent)


def _list(rng: random.Random, look: Look, room: Room) -> Piece | None:
    style = look.body
    form = rng.choice(("-", "*", "dot", "dot", "number", "number"))
    start = 1 if rng.random() < 0.8 else rng.randint(2, 20)
    hang = style.face.width("00. ") if form == "number" else style.face.width("-  ")
    items: list[tuple[str, list[str]]] = []
    tokens = height = 0
    for index in range(rng.randint(2, 6)):
        mark = f"{start + index}." if form == "number" else "*" if form == "*" else "-"
        text = sentences(rng, rng.randint(5, 50), look.guessable)
        left = room.tokens - tokens - token_count(mark) - 2
        lines = _wrapped(text, style, room.width - hang, room.height - height, left)[:3]
        if not lines:
            break
        items.append((mark, lines))
        tokens += token_count(f"{mark} {' '.join(lines)}") + 1
        height += len(lines) * style.pitch_px
    if len(items) < 2:
        return None

    def draw(canvas: Canvas, left: int, top: int) -> None:
        canvas.items(items, left, top, style, hang, form == "dot")

    return Piece(height, TOKENS_PER_BLOCK + tokens, draw)


def _captioned(
    rng: random.Random, kind: str, look: Look, room: Room, inner: Piece, shift: int, width: int
) -> Piece:
    """The piece with a caption beneath it, or above a table; without where there is no room for one."""
    gap = round(look.small.face.size_px * rng.uniform(0.35, 0.7))
    text = caption(rng, kind, rng.randint(5, 60), look.guessable, look.small_differs)
    most = room.tokens - inner.tokens
    if width < room.width / 2:
        shift, width = (shift, room.width - shift) if rng.random() < 0.5 else (0, room.width)
    lines = _wrapped(text, look.small, width, room.height - inner.height - gap, most)[: rng.choice((1, 1, 2))]
    words = _lines(f"{kind}_caption", lines, look.small, width, "centre" if rng.random() < 0.5 else "left")
    if words is None:
        return inner
    above = kind == "table" and rng.random() < 0.5
    first, second = (words, inner) if above else (inner, words)

    def draw(canvas: Canvas, left: int, top: int) -> None:
        first.draw(canvas, left + shift * (first is words), top)
        second.draw(canvas, left + shift * (second is words), top + first.height + gap)

    return Piece(inner.height + gap + words.height, inner.tokens + words.tokens, draw)


def _picture(rng: random.Random, look: Look, room: Room) -> Piece | None:
    width = round(room.width * rng.uniform(0.3, 1.0))
    height = min(round(width * rng.uniform(0.3, 1.0)), round(room.height * 0.6))
    if height < 32 * look.scale or width < 32 * look.scale:
        return None
    shift = rng.choice((0, (room.width - width) // 2))
    seed = rng.random()

    def draw(canvas: Canvas, left: int, top: int) -> None:
        canvas.picture(draw_picture(random.Random(seed), width, height, canvas.image.mode), left + shift, top)

    piece = Piece(height, TOKENS_PER_BLOCK, draw)
    return _captioned(rng, "image", look, room, piece, shift, width) if rng.random() < 0.6 else piece


def _cells(rng: random.Random, look: Look) -> list[list[str]]:
    """Cells of a table: a header of words, then rows of words and numbers, each column of one kind."""
    rows, columns = rng.randint(2, 4), rng.randint(2, 4)
    numeric = [index > 0 and rng.random() < 0.6 for index in range(columns)]

    def cell(is_number: bool) -> str:
        if is_number:
            return number(rng)
        text = plain_word(rng, look.guessable)
        if rng.random() < 0.2:
            text += " " + plain_word(rng, look.guessable)
        return text.capitalize() if rng.random() < 0.5 else text

    header = [cell(False).capitalize() for _ in range(columns)]
    return [header, *([cell(kind) for kind in numeric] for _ in range(rows - 1))]


def _table(rng: random.Random, look: Look, room: Room) -> Piece | None:
    cells = _cells(rng, look)
    style = look.body if rng.random() < 0.6 else look.small
    size_px = style.face.size_px
    header = replace(style, face=face(look.bold, size_px)) if rng.random() < 0.5 else style
    pad, thick = round(size_px * rng.uniform(0.3, 0.8)), max(1, round(rng.uniform(0.8, 2.2) * look.scale))
    columns = column_widths(cells, header, style, 2 * pad + thick)
    spare = room.width - sum(columns) - thick
    row_px = round(size_px * rng.uniform(1.4, 2.1))
    height = row_px * len(cells) + thick
    tokens = TOKENS_PER_BLOCK + 15 + sum(2 + sum(2 + token_count(cell) for cell in row) for row in cells)
    if spare < 0 or height > room.height or tokens > room.tokens + TOKENS_PER_BLOCK:
        return None
    if rng.random() < 0.5:
        columns = [column + spare // len(columns) for column in columns]
    shade = rng.randint(10, 40) if rng.random() < 0.3 else 0
    light = sum(look.paper) > 3 * LIGHT_PAPER
    red, green, blue = (value - shade if light else value + shade for value in look.paper)
    grid = Grid(
        rules=rng.choice(("grid", "grid", "rows", "head", "box")),
        pad_px=pad,
        rule_px=thick,
        column_px=tuple(columns),
        row_px=row_px,
        header=header,
        shade=(red, green, blue) if shade else None,
        aligns=tuple(rng.choice(("left", "left", "centre", "right")) for _ in columns),
    )
    shift = rng.choice((0, (room.width - sum(columns) - thick) // 2))

    def draw(canvas: Canvas, left: int, top: int) -> None:
        canvas.table(cells, left + shift, top, style, grid)

    piece = Piece(height, tokens, draw)
    return _captioned(rng, "table", look, room, piece, shift, sum(columns)) if rng.random() < 0.5 else piece


def _fill(rng: random.Random, look: Look, room: Room, difficulty: float, most: int) -> list[Piece]:
    """Pieces for one column, until its height or its tokens are used up or `most` are made."""
    pieces: list[Piece] = []
    height, tokens = room.height, room.tokens
    gap = look.body.face.size_px // 2
    failures, last = 0, ""
    while len(pieces) < most and failures < 8 and tokens > TOKENS_PER_BLOCK + 3:
        inside = Room(room.width, height, tokens - TOKENS_PER_BLOCK - 1)
        form = rng.random()
        if form < (0.13 if pieces else 0.5):
            kind, make = "title", _title
        elif form < 0.60 or difficulty < 0.15:
            kind, make = "text", _paragraph
        elif form < 0.72:
            kind, make = "list", _list
        elif form < 0.86:
            kind, make = "table", _table
        else:
            kind, make = "picture", _picture
        # Two lists in a row would look like one.
        made = None if kind == last == "list" else make(rng, look, inside)
        if made is None or made.height > height:
            failures += 1
            continue
        pieces.append(made)
        last = kind
        height -= made.height + gap
        tokens -= made.tokens
    return pieces


def _place(rng: random.Random, canvas: Canvas, pieces: list[Piece], left: int, top: int, height: int) -> None:
    """Draws the pieces of a column, the height that is left spread before and between them."""
    spare = height - sum(piece.height for piece in pieces)
    gap = spare / max(1, len(pieces))
    tight = rng.random()
    if tight < 0.6:
        gap = min(gap, pieces[0].height * 0.2 + rng.uniform(0.4, 1.6) * 0.03 * height)
    start = spare - gap * (len(pieces) - 1)
    y = top + start * (0 if rng.random() < 0.5 else rng.random())
    for piece in pieces:
        piece.draw(canvas, left, round(y))
        y += piece.height + gap


@cache
def _noise(level: int, channels: tuple[int, ...]) -> Bytes:
    """Noise around zero as bytes that wrap, within three times its deviation `level`."""
    noise = np.random.default_rng(level).normal(0, level, (NOISE_PX, NOISE_PX, *channels))
    return np.rint(np.clip(noise, -3 * level, 3 * level)).astype(np.int8).view(np.uint8)


def grained(rng: random.Random, pixels: Bytes, level: int) -> None:
    """Adds grain of `level` grey levels (standard deviation) to pixels (H, W) or (H, W, 3) in place."""
    grain = np.roll(_noise(level, pixels.shape[2:]), rng.randrange(NOISE_PX), rng.randrange(2))
    np.clip(pixels, 3 * level, 255 - 3 * level, out=pixels)  # so that no sum leaves the byte
    for y in range(0, pixels.shape[0], NOISE_PX):
        for x in range(0, pixels.shape[1], NOISE_PX):
            part = pixels[y : y + NOISE_PX, x : x + NOISE_PX]
            part += grain[: part.shape[0], : part.shape[1]]


def _shaded(rng: random.Random, image: Image.Image, paper: Ink) -> Bytes:
    """Uneven light: paper no brighter than a slope from corner to corner. Ink stays as it is."""
    levels = paper if image.mode == "RGB" else (sum(paper) // 3,)
    drops = [rng.randint(0, DIMMED) for _ in range(4)]
    corners = bytes(level - drop for drop in drops for level in levels)
    slope = Image.frombytes(image.mode, (2, 2), corners).resize(image.size, Image.Resampling.BILINEAR)
    dimmed: Bytes = np.minimum(np.asarray(image), np.asarray(slope))
    return dimmed


def _softened(pixels: Bytes, times: int) -> None:
    """Blurs by half a pixel a time: the mean with the next pixel down and across, to either side in turns."""
    for turn in range(times):
        for axis in (0, 1):
            ahead = (slice(None),) * axis + (slice(1, None),)
            behind = (slice(None),) * axis + (slice(None, -1),)
            first, second = pixels[behind], pixels[ahead]
            mean = (first & second) + ((first ^ second) >> 1)
            pixels[ahead if turn % 2 else behind] = mean


def _worn(rng: random.Random, image: Image.Image, paper: Ink, scale: float) -> Image.Image:
    """The page as scanners, cameras and compression leave it: light, focus, grain, JPEG."""
    light, focus, grain, packed = (rng.random() < share for share in (0.25, 0.22, 0.25, 0.2))
    pixels = _shaded(rng, image, paper) if light and min(paper) > LIGHT_PAPER else np.array(image)
    if focus:
        _softened(pixels, rng.randint(1, 2) if scale < 1.6 else rng.randint(1, 4))
    if grain:
        grained(rng, pixels, rng.choice((2, 3, 4, 6, 8)))
    image = Image.fromarray(pixels)
    if packed:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=rng.randint(45, 85))
        image = Image.open(file)
        image.load()
    return image


def _token_budget(rng: random.Random, mode: Mode, difficulty: float) -> int:
    """Tokens for all blocks: often near the mode's limit, sometimes few."""
    form = rng.random()
    share = (
        rng.uniform(0.85, 1)
        if form < 0.6
        else rng.uniform(0.4, 0.9)
        if form < 0.85
        else rng.uniform(0.1, 0.4)
    )
    return round(40 + (mode.longest_target - 44) * difficulty * share)


def random_page(seed: int | str, mode: Mode, difficulty: float = 1.0, fine_print: bool = False) -> Page:
    """A page for `mode`, never without a block; its markup fits the mode's longest target.

    Reading order: page header, spanning title, the columns from left to right, footer.
    """
    rng = random.Random(seed)
    # Harder stages keep some of what came before.
    difficulty *= rng.random() ** 0.5 if rng.random() < 0.3 else 1.0
    width, height = page_size(rng, mode)
    scale = view_scale(mode, width, height)
    look = _look(rng, scale, difficulty, fine_print)
    worn = rng.random() > 0.45
    skewed = worn and rng.random() < 0.2
    # Turning three channels takes longer than all else; scans are often grey anyway.
    canvas = Canvas(width, height, look.paper, "RGB" if rng.random() < (0.1 if skewed else 0.4) else "L")
    tokens = _token_budget(rng, mode, difficulty)
    margin = round(rng.uniform(0.04, 0.12) * width)
    top, bottom = round(rng.uniform(0.035, 0.1) * height), height - round(0.04 * height)
    full = width - 2 * margin

    header = footer = None
    if rng.random() < 0.35 * difficulty and tokens > 120:
        text = heading(rng, rng.randint(4, 30), look.guessable)
        lines = _wrapped(text, look.small, full, look.small.pitch_px, 40)[:1]
        header = _lines("text", lines, look.small, full, rng.choice(("left", "centre", "right")))
    if rng.random() < 0.4 * difficulty and tokens > 120:
        page_number = str(rng.randint(1, 400))
        form = rng.choice(("{}", "{}", "{}", "- {} -", "Page {}", "{} / 412", "p. {}"))
        footer = _lines(
            "text", [form.format(page_number)], look.small, full, rng.choice(("left", "centre", "right"))
        )
    if header is not None:
        header.draw(canvas, margin, top)
        top += header.height + round(look.small.face.size_px * rng.uniform(0.5, 1.2))
        tokens -= header.tokens
        if rng.random() < 0.3:
            canvas.rule(
                margin,
                width - margin,
                top - round(0.2 * look.small.face.size_px),
                max(1, round(scale)),
                look.small.ink,
            )
            top += round(look.small.face.size_px * 0.4)
    if footer is not None:
        bottom -= footer.height + round(look.small.face.size_px * 0.8)
        tokens -= footer.tokens

    gutter = round(max(0.03 * width, 1.2 * look.body.face.size_px))
    column = (full - gutter) // 2
    columns = 1
    if (
        column > 9 * look.body.face.size_px
        and rng.random() < (0.55 if mode.side > TILE_PX else 0.4) * difficulty
    ):
        columns = 2
        if rng.random() < 0.4:
            span = _title(rng, look, Room(full, bottom - top, tokens - TOKENS_PER_BLOCK - 1))
            if span is not None and span.height < (bottom - top) // 3:
                span.draw(canvas, margin, top)
                top += span.height + round(look.body.face.size_px * rng.uniform(0.6, 1.5))
                tokens -= span.tokens
    most = 1 + round(11 * difficulty)
    drawn = 0
    for index in range(columns):
        share = tokens if index == columns - 1 else round(tokens * rng.uniform(0.4, 0.6))
        room = Room(column if columns == 2 else full, bottom - top, share)
        pieces = _fill(rng, look, room, difficulty, most)
        if pieces:
            _place(rng, canvas, pieces, margin + index * (column + gutter), top, bottom - top)
        tokens -= sum(piece.tokens for piece in pieces)
        drawn += len(pieces)
    if not drawn:
        canvas.text("text", ["Note"], margin, top, Type(look.small.face, look.small.pitch_px, look.body.ink))
    if footer is not None:
        footer.draw(canvas, margin, height - round(0.03 * height) - footer.height)

    skew = 0.0
    if skewed:
        # Never so far that the corners of the type area leave the page.
        most_degrees = math.degrees(min(0.9 * margin / (height / 2), 0.025 * height / (width / 2)))
        skew = rng.uniform(-1, 1) * min(1.5, most_degrees)
    page = canvas.page(skew)
    return replace(page, image=_worn(rng, page.image, look.paper, scale)) if worn else page
