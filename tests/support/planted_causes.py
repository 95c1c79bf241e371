"""Outputs with a known cause: pages that make causes visible, and what our engine writes under each.

Lines that repeat bring n-gram rules into play; strips are cut into more than six tiles; some pages need EXIF.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from data.mini.training.fonts import font_file
from dsocr_core.models.family import FIRST
from dsocr_core.page.documents import Page
from dsocr_core.reading.markup import END_MARKER
from dsocr_core.settings import InferSettings, Settings
from dsocr_core.trace.why.hypotheses import Attempt, applied
from dsocr_core.trace.why.match import Other
from dsocr_core.trace.why.reader import Reader, Reading
from dsocr_core.trace.why.run import why
from dsocr_core.trace.why.search import Budget

TOKENS = 120
LENGTH, STRIPPED = "length", "stripped"
RUNNABLE = (
    "ngram-30-90", "ngram-20-50", "ngram-35", "no-newline", "roles", "tiles-6", "tiles-640", "no-exif",
    "fp16",
)  # fmt: skip
SINGLE = (*RUNNABLE, LENGTH, STRIPPED)
BY_NAME = {each.name: each for each in FIRST.hypotheses}


@dataclass(frozen=True)
class MadePage:
    """A page and how A reads it."""

    path: Path
    preset: str = "tiny"
    prompt: str = "free_ocr"
    dtype: str = "float32"
    """A's: beside bfloat16 float16 writes another text now and then, beside float32 hardly ever."""

    @property
    def opened(self) -> Page:
        return Page(self.path, self.path.name)


_LINES = (
    ("green boats near the old pier",) * 6,
    ("one two three four five six seven",) * 4,
    ("the quick brown fox and the lazy dog",) * 4,
    ("seven red apples", "seven red apples", "seven red apples", "seven red apples", "seven red apples"),
    ("total sum of the first quarter",) * 3 + ("total sum of the last quarter",) * 2,
    ("rain in the north", "snow in the south") * 3,
    ("please sign here and return",) * 5,
    ("paper and ink and paper and ink and",) * 4,
    ("blue gate, white gate, blue gate",) * 4,
    ("monday tuesday wednesday",) * 5,
)
_TURNED = (("north road station opens at nine",) * 4, ("apples and pears",) * 4, ("quiet please",) * 3)
_STRIPS = (
    (770, 110, ("harbour office and market hall",)),
    (700, 96, ("green boats near the old pier",)),
    (100, 700, ("open", "daily", "from", "nine", "till", "four")),
    (90, 720, ("red", "blue", "red", "blue", "red", "blue")),
)
_SAMPLES = ("02-invoice.png", "05-square-card.png", "06-small-ticket.png")
"""With markup, so that stripped special tokens show."""
_IN_BFLOAT16 = 9
"""Of `_LINES`: there float16 writes a text that no other cause writes."""


def made_pages(directory: Path) -> tuple[MadePage, ...]:
    """Twenty pages: ten with lines that repeat, three turned by EXIF, four strips, three of the samples."""
    samples = Path(__file__).resolve().parents[2] / "data" / "samples"
    pages = []
    for number, lines in enumerate(_LINES):
        dtype = "bfloat16" if number == _IN_BFLOAT16 else "float32"
        path = _drawn(directory / f"lines-{number}.png", (480, 480), lines, 22)
        pages.append(MadePage(path, dtype=dtype))
    for number, (lines, turned) in enumerate(zip(_TURNED, (6, 3, 8), strict=True)):
        pages.append(MadePage(_drawn(directory / f"turned-{number}.jpg", (480, 480), lines, 22, turned)))
    for number, (width, height, lines) in enumerate(_STRIPS):
        path = _drawn(directory / f"strip-{number}.png", (width, height), lines, 26 if width > height else 20)
        pages.append(MadePage(path, "gundam"))
    pages += [MadePage(samples / name, prompt="markdown") for name in _SAMPLES]
    return tuple(pages)


def _drawn(path: Path, size: tuple[int, int], lines: Sequence[str], px: int, turned: int = 0) -> Path:
    image = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(image), ImageFont.truetype(str(font_file("DejaVuSans")), px)
    for number, line in enumerate(lines):
        draw.text((16, 16 + number * px * 3 // 2), line, fill="black", font=font)
    exif = Image.Exif()
    if turned:
        exif[274] = turned
        # Stored so that turning it as EXIF says gives the page back.
        image = image.rotate({3: 180, 6: 90, 8: 270}[turned], expand=True)
    image.save(path, exif=exif, **({"quality": 95} if turned else {}))
    return path


class MemoReader(Reader):
    """Reads each page under each setting once, to its end: what is planted is then looked for at no cost."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.memo: dict[Attempt, Reading] = {}

    def read(self, attempt: Attempt, *_: object, **__: object) -> Reading:
        if attempt not in self.memo:
            self.memo[attempt] = super().read(attempt)
        return self.memo[attempt]


def settings_of(page: MadePage, tokens: int = TOKENS) -> Settings:
    infer = InferSettings(max_new_tokens=tokens)
    return Settings(preset=page.preset, prompt=page.prompt, device="cpu", dtype=page.dtype, infer=infer)


def planted(reader: Reader, page: MadePage, names: Sequence[str]) -> str | None:
    """What B wrote with these causes planted; None where they do not go together on this page."""
    chosen = [BY_NAME[name] for name in names if name in BY_NAME]
    reading = reader.read(applied(reader.attempt(page.opened), chosen))
    tokens, text = reading.tokens, reading.text
    if LENGTH in names:
        tokens = tokens[: len(tokens) * 2 // 3]
        text = reader.text(tokens)
    if STRIPPED in names:
        for special in reader.special_texts:
            text = text.replace(special, "")
    return text


def random_pairs(count: int = 10, seed: int = 20) -> list[tuple[str, ...]]:
    """Different pairs of causes that do not exclude each other."""
    groups = {name: BY_NAME[name].group if name in BY_NAME else name for name in SINGLE}
    pairs = [pair for pair in itertools.combinations(SINGLE, 2) if groups[pair[0]] != groups[pair[1]]]
    return random.Random(seed).sample(pairs, count)


@dataclass
class Tally:
    """Of one planted cause over the pages."""

    right: int = 0
    wrong: int = 0
    unchanged: int = 0
    """Pages on which the cause changes nothing, or a part of a pair changes nothing beside the other."""
    same: int = 0
    """Pages on which another cause, tried earlier, gives the very same text."""
    notes: list[str] = field(default_factory=list)


def found_names(causes: Sequence[str]) -> frozenset[str]:
    """The causes of an answer under the names of this module."""
    named = {
        LENGTH if cause.startswith("a token limit") else STRIPPED if cause.startswith("special") else cause
        for cause in causes
    }
    return frozenset(named)


def plant_and_find(
    pages: Sequence[MadePage],
    plants: Sequence[tuple[str, ...]],
    runs: int = 60,
    told: Callable[[str], None] = lambda line: None,
) -> dict[tuple[str, ...], Tally]:
    """Plant each cause on each page and look for it, B's text alone being known."""
    table = {plant: Tally() for plant in plants}
    for page in pages:
        settings = settings_of(page)
        reader = MemoReader(settings)
        for plant in plants:
            outcome = _one(page, plant, settings, reader, runs)
            tally = table[plant]
            setattr(tally, outcome[0], getattr(tally, outcome[0]) + 1)
            told(f"{page.path.name}\t{'+'.join(plant)}\t{outcome[0]}\t{outcome[1]}")
    return table


def _one(
    page: MadePage, plant: tuple[str, ...], settings: Settings, reader: MemoReader, runs: int
) -> tuple[str, str]:
    text = _shown(planted(reader, page, plant))
    fewer = [part for size in range(len(plant)) for part in itertools.combinations(plant, size)]
    if any(_shown(planted(reader, page, part)) == text for part in fewer):
        return "unchanged", ""
    other = Other("b", planted(reader, page, plant) or "")
    answer = why(settings, [page.opened], lambda _: other, Budget(runs, 1e6), reader=reader)
    finding = answer.pages[0].finding
    if finding.cause is None:
        return "wrong", finding.sentence
    causes = found_names([*finding.cause.names, *finding.cause.match.free])
    return ("right" if causes == frozenset(plant) else "same"), "+".join(sorted(causes))


def _shown(text: str | None) -> str:
    return (text or "").removesuffix(END_MARKER).strip()


def totals(table: dict[tuple[str, ...], Tally]) -> Counter[str]:
    """Over all planted causes."""
    found: Counter[str] = Counter()
    for tally in table.values():
        found.update(right=tally.right, wrong=tally.wrong, unchanged=tally.unchanged, same=tally.same)
    return found


def as_table(table: dict[tuple[str, ...], Tally]) -> str:
    """A line a planted cause: pages on which it was found, was not, changes nothing, equals another cause."""
    lines = [f"{'planted':<28}{'right':>7}{'wrong':>7}{'unchanged':>11}{'same':>7}"]
    lines += [
        f"{'+'.join(plant):<28}{tally.right:>7}{tally.wrong:>7}{tally.unchanged:>11}{tally.same:>7}"
        for plant, tally in table.items()
    ]
    return "\n".join(lines)
