"""A recorded run with planted differences, so that the right answer of a review is known.

Made of what the embedded checkpoint read on the samples, written by the history's own writer:

    python -m tests.support.planted LOCATION [PAGES [PLANTED [SEED]]]

Half of the other pages are equal on both sides; the rest differ by what means nothing: coordinates by one
step of 999, tokens with them.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from dsocr_core.reading.markup import END_MARKER
from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.records import OcrResult
from dsocr_core.runs.history import History
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.result_cache import SHIPPED_RESULTS
from dsocr_core.runs.results import PageResults, parity_row
from dsocr_core.runs.run_directory import RunDirectory

RUN_ID = "planted-run"
PAGES, PLANTED = 500, 50
LIMIT = 8192
_END_TOKEN = 1


@dataclass(frozen=True)
class Block:
    """A block as the model writes it; coordinates in 0..999."""

    label: str
    box: tuple[int, int, int, int]
    text: str


@dataclass(frozen=True)
class Page:
    """What A is made to have read; B stays what was recorded."""

    blocks: tuple[Block, ...]
    ended: bool = True
    new_tokens: int | None = None
    """Filled up to so many, where the page is to stop at the ceiling."""
    tail: str = ""


Change = Callable[[Page, random.Random], Page]


@cache
def sample_results() -> tuple[tuple[OcrResult, OcrResult], ...]:
    """Both backends of every sample as recorded with the project, by name; not the example that differs."""
    found: dict[str, dict[str, OcrResult]] = {}
    for _, result in RunDirectory(SHIPPED_RESULTS / "runs" / "samples").results():
        assert result is not None
        found.setdefault(result.request.name, {})[result.backend] = result
    return tuple((backends["eager"], backends["vendor"]) for _, backends in sorted(found.items()))


def blocks_of(text: str) -> tuple[Block, ...]:
    """The blocks of a recorded text, read as plainly as they are written."""
    blocks = []
    for part in text.removesuffix(END_MARKER).split("<|ref|>")[1:]:
        label, rest = part.split("<|/ref|><|det|>", 1)
        coordinates, body = rest.split("<|/det|>", 1)
        (box,) = json.loads(coordinates)
        blocks.append(Block(label, tuple(box), body.strip("\n")))  # type: ignore[arg-type]
    return tuple(blocks)


def text_of(page: Page) -> str:
    parts = (
        f"<|ref|>{block.label}<|/ref|><|det|>[[{', '.join(map(str, block.box))}]]<|/det|>\n{block.text}"
        for block in page.blocks
    )
    return "\n\n".join(parts) + page.tail + (END_MARKER if page.ended else "")


# --- what is planted ------------------------------------------------------------------------------


def _with(page: Page, number: int, **changes: object) -> Page:
    blocks = list(page.blocks)
    blocks[number] = replace(blocks[number], **changes)  # type: ignore[arg-type]
    return replace(page, blocks=tuple(blocks))


def moved(page: Page, chance: random.Random) -> Page:
    """A box down or up by 3 to 4.5 percent of the page: still its partner, beyond the tolerance."""
    number = chance.randrange(len(page.blocks))
    x1, y1, x2, y2 = page.blocks[number].box
    step = chance.randint(30, 45) * (-1 if y2 > 900 else 1)
    return _with(page, number, box=(x1, y1 + step, x2, y2 + step))


def missing(page: Page, chance: random.Random) -> Page:
    blocks = list(page.blocks)
    for _ in range(chance.randint(1, 2)):
        del blocks[chance.randrange(len(blocks))]
    return replace(page, blocks=tuple(blocks))


def extra(page: Page, chance: random.Random) -> Page:
    """A thin box at the page's edge, where no block of the samples lies."""
    number = chance.randrange(len(page.blocks) + 1)
    ghost = Block("page_number", (975, 1, 998, 12), str(chance.randint(1, 99)))
    return replace(page, blocks=(*page.blocks[:number], ghost, *page.blocks[number:]))


def relabelled(page: Page, chance: random.Random) -> Page:
    number = chance.randrange(len(page.blocks))
    return _with(page, number, label="title" if page.blocks[number].label != "title" else "text")


def text_changed(page: Page, chance: random.Random) -> Page:
    """One word of a block becomes another of no letters of it."""
    number = chance.choice([n for n, block in enumerate(page.blocks) if " " in block.text])
    words = page.blocks[number].text.split(" ")
    words[chance.randrange(1, len(words))] = "ZZZZZ"
    return _with(page, number, text=" ".join(words))


def order_changed(page: Page, chance: random.Random) -> Page:
    blocks = list(page.blocks)
    first = chance.randrange(len(blocks) - 1)
    blocks[first], blocks[first + 1] = blocks[first + 1], blocks[first]
    return replace(page, blocks=tuple(blocks))


def truncated(page: Page, chance: random.Random) -> Page:
    """Stopped at the ceiling, in the middle of the last block."""
    *blocks, last = page.blocks
    cut = replace(last, text=last.text[: max(1, len(last.text) // 2)])
    return replace(page, blocks=(*blocks, cut), ended=False, new_tokens=LIMIT)


def loop(page: Page, chance: random.Random) -> Page:
    """The last block says one sentence again and again, up to the ceiling."""
    unit = chance.choice(("and so it goes on, ", "the valley and the river, ", "Page 3 of 4. "))
    *blocks, last = page.blocks
    return replace(page, blocks=(*blocks, last), ended=False, new_tokens=LIMIT, tail=f" {unit * 30}")


KINDS: dict[str, Change] = {
    "moved": moved,
    "missing": missing,
    "extra": extra,
    "relabelled": relabelled,
    "text": text_changed,
    "order": order_changed,
    "truncated": truncated,
    "loop": loop,
}
"""Kind of difference, as `parity_records.KINDS` names it, and what makes it."""


def jitter(page: Page, chance: random.Random) -> Page:
    """One coordinate of one box off by one step: a difference that means nothing."""
    number = chance.randrange(len(page.blocks))
    box = list(page.blocks[number].box)
    side = chance.randrange(4)
    box[side] = min(999, box[side] + 1)
    return _with(page, number, box=tuple(box))


# --- results --------------------------------------------------------------------------------------


def result_with(vendor: OcrResult, ours: OcrResult, page: Page) -> OcrResult:
    """Our engine's result for changed blocks. Tokens are kept up to the first change of the text."""
    text = text_of(page)
    same = next((n for n, (a, b) in enumerate(zip(text, vendor.text_raw, strict=False)) if a != b), len(text))
    ids, texts, length = [], [], 0
    for token, word in zip(vendor.token_ids, vendor.token_texts, strict=True):
        length += len(word)
        if length > same:
            break
        ids.append(token)
        texts.append(word)
    rest = text.removesuffix(END_MARKER)[sum(map(len, texts)) :]
    pieces = [rest[n : n + 3] for n in range(0, len(rest), 3)]
    ids += [100 + sum(map(ord, piece)) % 900 for piece in pieces]
    texts += pieces
    if page.ended and ids[-1:] != [_END_TOKEN]:
        ids.append(_END_TOKEN)
        texts.append(END_MARKER)
    while page.new_tokens is not None and len(ids) < page.new_tokens:
        ids.append(7)
        texts.append("")
    return replace(
        ours,
        text_raw=text,
        token_ids=tuple(ids),
        token_texts=tuple(texts),
        finish_reason="eos" if page.ended else "length",
    )


@dataclass(frozen=True)
class Planted:
    """A run and what is in it: page name -> kind of what was planted there."""

    run_id: str
    kinds: dict[str, str]
    pages: int


def results(
    pages: int = PAGES, planted: int = PLANTED, seed: int = 0, kinds: Sequence[str] = tuple(KINDS)
) -> tuple[list[tuple[str, OcrResult, OcrResult]], dict[str, str]]:
    """(page, ours, vendor) of every page, and the kind of each planted one."""
    chance = random.Random(seed)
    samples = sample_results()
    places = dict(zip(sorted(chance.sample(range(pages), planted)), _turns(kinds, planted), strict=True))
    made, answers = [], {}
    for number in range(pages):
        ours, vendor = samples[number % len(samples)]
        name = f"{number:04d}-{Path(vendor.request.name).name}"
        ours, vendor = (
            replace(result, request=replace(result.request, source=name)) for result in (ours, vendor)
        )
        # Equal to begin with, whatever the backends once read: what differs is what is planted.
        ours = replace(
            ours,
            text_raw=vendor.text_raw,
            token_ids=vendor.token_ids,
            token_texts=vendor.token_texts,
            finish_reason=vendor.finish_reason,
        )
        page = Page(blocks_of(vendor.text_raw))
        if number in places:
            answers[name] = places[number]
            ours = result_with(vendor, ours, KINDS[places[number]](page, chance))
        elif chance.random() < 0.5:
            ours = result_with(vendor, ours, jitter(page, chance))
        made.append((name, ours, vendor))
    return made, answers


def _turns(kinds: Sequence[str], count: int) -> list[str]:
    return [kinds[number % len(kinds)] for number in range(count)]


def plant(
    history: History, pages: int = PAGES, planted: int = PLANTED, seed: int = 0, run_id: str = RUN_ID
) -> Planted:
    """Write the run into a history and take it in. No pictures: the samples themselves are at hand."""
    made, answers = results(pages, planted, seed)
    record = RunRecord(
        id=run_id,
        created="2026-11-20T10:00:00+00:00",
        source="dsocr",
        command="python -m tests.support.planted",
        backends=("eager", "vendor"),
        engine="eager",
        device="cpu",
        dtype="float32",
        attention="sdpa",
        preset="small",
        settings={"prompt": "markdown", "infer": {"max_new_tokens": LIMIT, "no_repeat_ngram_size": 20}},
        environment={"eager": {"engine": "eager"}, "vendor": {"engine": "published"}},
    )
    with history.writer(record) as run:
        for name, ours, vendor in made:
            run.add(PageResults(name, results=[ours]))
            run.add(PageResults(name, results=[vendor]))
            run.add_rows("parity", [parity_row(name, compare_results(ours, vendor))])
    history.refresh()
    return Planted(run_id, answers, pages)


def main(arguments: Sequence[str]) -> None:
    location, *numbers = arguments
    with History(location) as history:
        made = plant(history, *map(int, numbers))
    print(json.dumps({"run": made.run_id, "pages": made.pages, "planted": made.kinds}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
