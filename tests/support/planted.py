"""A recorded run with planted differences, so that the right answer of a review is known.

Made of what the embedded checkpoint read on the samples. Half of the other pages are equal on both sides; the
rest differ by what means nothing: coordinates by one step of 999, tokens with them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import cycle

from dsocr_core.reading.markup import END_MARKER
from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.records import FinishReason, OcrResult
from dsocr_core.runs.history import History
from dsocr_core.runs.result_cache import SHIPPED_RESULTS
from dsocr_core.runs.results import PageResults, parity_row
from dsocr_core.runs.run_directory import RunDirectory
from tests.support.results import Block, markup
from tests.support.review_sides import record

RUN_ID = "planted-run"
LIMIT = 8192
Change = Callable[[list[Block], random.Random], None]


@cache
def sample_results() -> tuple[tuple[OcrResult, OcrResult], ...]:
    """Both backends of every sample as recorded with the project, by name; not the example that differs."""
    found: dict[str, dict[str, OcrResult]] = {}
    for _, result in RunDirectory(SHIPPED_RESULTS / "runs" / "samples").results():
        assert result is not None
        found.setdefault(result.request.name, {})[result.backend] = result
    return tuple((backends["eager"], backends["vendor"]) for _, backends in sorted(found.items()))


def moved(blocks: list[Block], chance: random.Random) -> None:
    """A box down or up by 3 to 4.5 percent of the page: still its partner, beyond the tolerance."""
    number = chance.randrange(len(blocks))
    label, (x1, y1, x2, y2), text = blocks[number]
    step = chance.randint(30, 45) * (-1 if y2 > 900 else 1)
    blocks[number] = (label, (x1, y1 + step, x2, y2 + step), text)


def missing(blocks: list[Block], chance: random.Random) -> None:
    for _ in range(chance.randint(1, 2)):
        del blocks[chance.randrange(len(blocks))]


def extra(blocks: list[Block], chance: random.Random) -> None:
    """A thin box at the page's edge, where no block of the samples lies."""
    number = chance.randrange(len(blocks) + 1)
    blocks.insert(number, ("page_number", (975, 1, 998, 12), str(chance.randint(1, 99))))


def relabelled(blocks: list[Block], chance: random.Random) -> None:
    number = chance.randrange(len(blocks))
    label, box, text = blocks[number]
    blocks[number] = ("title" if label != "title" else "text", box, text)


def text_changed(blocks: list[Block], chance: random.Random) -> None:
    """One word of a block becomes another of no letters of it."""
    number = chance.choice([n for n, (*_, text) in enumerate(blocks) if " " in text])
    label, box, text = blocks[number]
    words = text.split(" ")
    words[chance.randrange(1, len(words))] = "ZZZZZ"
    blocks[number] = (label, box, " ".join(words))


def order_changed(blocks: list[Block], chance: random.Random) -> None:
    first = chance.randrange(len(blocks) - 1)
    blocks[first : first + 2] = blocks[first : first + 2][::-1]


def truncated(blocks: list[Block], chance: random.Random) -> None:
    """Stopped at the ceiling, in the middle of the last block."""
    label, box, text = blocks[-1]
    blocks[-1] = (label, box, text[: max(1, len(text) // 2)])


def jitter(blocks: list[Block], chance: random.Random) -> None:
    """One coordinate of one box off by one step: a difference that means nothing."""
    number, side = chance.randrange(len(blocks)), chance.randrange(4)
    label, box, text = blocks[number]
    blocks[number] = (label, (*box[:side], min(999, box[side] + 1), *box[side + 1 :]), text)


KINDS: dict[str, Change] = {
    "moved": moved, "missing": missing, "extra": extra, "relabelled": relabelled, "text": text_changed,
    "order": order_changed, "truncated": truncated,
}  # fmt: skip
"""Kind of difference, as `parity_records.KINDS` names it, and what makes it."""


def changed(result: OcrResult, change: Change, chance: random.Random) -> OcrResult:
    """A result whose blocks were changed. Of a page without an end the tokens reach the ceiling."""
    blocks: list[Block] = [(span.label, span.boxes[0], span.text.strip("\n")) for span in result.blocks]
    blocks[-1] = (*blocks[-1][:2], blocks[-1][2].removesuffix(END_MARKER))
    change(blocks, chance)
    ended = change is not truncated
    return with_text(result, markup(blocks) + (END_MARKER if ended else ""), "eos" if ended else "length")


def with_text(result: OcrResult, text: str, finish_reason: FinishReason = "eos") -> OcrResult:
    """The result with another text, a token a character, up to the ceiling where it did not end."""
    pieces = [*text, *[""] * (0 if finish_reason == "eos" else LIMIT - len(text))]
    ids = tuple(ord(piece or " ") for piece in pieces)
    return replace(
        result, text_raw=text, finish_reason=finish_reason, token_ids=ids, token_texts=tuple(pieces)
    )


def plant(history: History, pages: int, planted: int) -> dict[str, str]:
    """Write the run into a history and take it in; returns what was planted on which page.

    It has no pictures: the samples themselves are at hand.
    """
    chance, samples, answers = random.Random(0), sample_results(), dict[str, str]()
    places = dict(zip(sorted(chance.sample(range(pages), planted)), cycle(KINDS), strict=False))
    environment = {"eager": {"engine": "eager"}, "vendor": {"engine": "published"}}
    with history.writer(record(RUN_ID, preset="small", environment=environment)) as run:
        for number in range(pages):
            of_a, of_b = samples[number % len(samples)]
            name = f"{number:04d}-{of_b.request.image.name}"
            vendor = replace(with_text(of_b, of_b.text_raw), request=replace(of_b.request, source=name))
            # Equal to begin with, whatever the backends once read: what differs is what is planted.
            ours = replace(vendor, backend=of_a.backend, inputs=of_a.inputs, timings=of_a.timings)
            if number in places:
                answers[name] = places[number]
                ours = changed(ours, KINDS[places[number]], chance)
            elif chance.random() < 0.5:
                ours = changed(ours, jitter, chance)
            row = parity_row(name, compare_results(ours, vendor))
            run.add(PageResults(name, results=[ours, vendor], parity=row))
    history.refresh()
    return answers
