"""`verify`: a recorded run's pages read again, with its texts as drafts where the engine verifies them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.text import Text

from dsocr_core.base.console import Name, page_table
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import HISTORY, PROJECT_ROOT
from dsocr_core.base.visible import json_line
from dsocr_core.base.words import duration, plural
from dsocr_core.cli.read import Compared, read
from dsocr_core.engine.drafts.given import Given
from dsocr_core.read.plan import RunPlan, new_run_directory
from dsocr_core.settings import (
    Attention,
    Dtype,
    EngineName,
    Rotary,
    Settings,
    SettingsError,
    history_location,
    settings_of,
)

if TYPE_CHECKING:
    from dsocr_core.page.documents import Pages
    from dsocr_core.review.page import PageReview
    from dsocr_core.review.review import Review
    from dsocr_core.runs.record import RunRecord
    from dsocr_core.runs.results import Readings

log = logging.getLogger(__name__)

_MOST_TOGETHER = 256
_SHOWN = 30
"""Characters of a token in the table; --json has all of them."""


@dataclass(frozen=True, kw_only=True)
class OwnSettings:
    """Settings in which the second reading may differ from the run's.

    Args:
        engine: another engine than the run's
        checkpoint: another checkpoint directory than the run's
        device: another device than the run's
        dtype: another number type than the run's
        attention: another attention than the run's
        rotary: other rotary frequencies than the run's
    """

    engine: EngineName | None = None
    checkpoint: str | None = None
    device: str | None = None
    dtype: Dtype | None = None
    attention: Attention | None = None
    rotary: Rotary | None = None


@dataclass(frozen=True, kw_only=True)
class Written:
    """Place where the second reading goes.

    Args:
        history: where the run is, and this one is recorded
        out: run directory to write (default: data/runs/TIME-verify)
    """

    history: str = HISTORY
    out: str | None = None
    json: bool = False

    def __post_init__(self) -> None:
        if not self.history:
            raise SettingsError("verify records what it read: give --history a path or a URL")


def verify(
    recorded: str,
    images: tuple[str, ...] = (),
    *,
    backend: str | None = None,
    own: OwnSettings,
    written: Written,
    console: Console,
    typed: str,
) -> int:
    """Read a recorded run's pages again and say of each whether the tokens are equal, or where and why they
    part. Settings are the run's, those given here aside. Exit code 0: all equal, 1: a page differs or was not
    read, 2: bad usage. Raises DsocrError, Cancelled.

    Args:
        recorded: a run of the history
        images: where its pages are, found by their names (default: the files that were read)
        backend: which backend's texts (default: A's)
    """
    # DuckDB and pandas are loaded after the command line is known to be good.
    from dsocr_core.review.review import open_review
    from dsocr_core.runs.results import readings
    from dsocr_core.runs.store import SEED_LOCATION, History

    location = history_location(Settings(history=written.history))
    with History(location, also=[SEED_LOCATION]) as history:
        if recorded not in history:
            raise DsocrError(f"the history at {location} has no run '{recorded}'; see: dsocr history list")
        record = history.record(recorded)
        texts = readings(history, recorded, with_steps=False)
        named = _backend(texts, record, backend)
        settings = replace(_settings(record, named, own), history=written.history)
        pages = _pages(texts, named, images, settings)
        batch = batch_of(texts, named)
    directory = Path(written.out or new_run_directory("verify"))
    plan = RunPlan((), directory, slots=batch, command=typed, found=pages)
    made = next(iter(read([settings], plan, location, f"it is in {directory}").runs), None)
    if made is None:
        raise DsocrError("no page was read: nothing is recorded")
    with History(location, also=[SEED_LOCATION]) as history:
        verified = Verified(open_review(history, made, recorded, None, named))
    lines = [f"written to {directory}", f"recorded as run {made}"]
    return Compared(verified, [made], lines).tell(written.json, console)


def _backend(read: Readings, record: RunRecord, named: str | None) -> str | None:
    """Whose texts are verified: the one that is named, else the run's first. Raises DsocrError."""
    there = {backend for _, backend in read.requests}
    order = [*record.backends, *sorted(backend or "" for backend in there)]
    found = next((name for name in order if name in there), None) if named is None else named
    if found not in there:
        raise DsocrError(f"run {record.id} has no backend '{found}'; it has {', '.join(map(str, there))}")
    return found


def batch_of(read: Readings, backend: str | None) -> int:
    """Pages that the run read together, as most of its results say: they are read again so, as pages that are
    read together round otherwise than one alone."""
    found = Counter(
        result.environment.get("batch", "1") for (_, of), result in read.results.items() if of == backend
    )
    number = max(found, key=lambda each: found[each], default="1")
    known = number.isascii() and number.isdigit()
    return max(1, min(int(number[:9]), _MOST_TOGETHER)) if known else 1


def _settings(record: RunRecord, backend: str | None, own: OwnSettings) -> Settings:
    """The run's settings with what was given otherwise. Raises DsocrError."""
    if record.source != "dsocr" or not record.settings:
        raise DsocrError(f"run {record.id} does not say with which settings it was read: use compare")
    try:
        made = settings_of(record.settings)
        of_b = backend == made.backend("b") and backend != made.backend("a")
        before = made.of_side("b" if of_b else "a")
    except DsocrError as error:
        raise DsocrError(f"run {record.id}: {error}") from error
    given = {name: value for name, value in vars(own).items() if value is not None}
    if "checkpoint" not in given and (PROJECT_ROOT / before.checkpoint).exists():
        given["checkpoint"] = str(PROJECT_ROOT / before.checkpoint)
    settings = replace(before, a=None, b=None, draft="", **given)
    from dsocr_core.backends.on_device import drafts_are_exact

    if drafts_are_exact(settings):
        return replace(settings, draft=f"run:{record.id}")
    log.info("read without drafts: they are verified by the fast engine on a GPU, in bfloat16")
    return settings


def _pages(read: Readings, backend: str | None, images: Sequence[str], settings: Settings) -> Pages:
    """The run's pages, where they are now. Raises DsocrError."""
    from dsocr_core.page.documents import Pages, expand
    from dsocr_core.review.pictures import source_of

    requests = {page: request for (page, of), request in read.requests.items() if of == backend}
    if not images:
        return Pages.recorded(
            {page: source_of(request.image, request.file) for page, request in requests.items()}
        )
    found = expand(images, None, None, settings.pdf_dpi, settings.max_pixels, recursive=True).only(requests)
    if not len(found):
        raise DsocrError(
            f"none of the given files is called like a page of the run, as '{next(iter(requests))}'"
        )
    return found


@dataclass(frozen=True)
class Verified:
    """A review of the second reading, A, and the recorded one, B, judged by tokens alone."""

    review: Review

    @property
    def pages(self) -> list[PageReview]:
        """Those that were to be read again."""
        return [page for page in self.review.pages if page.names[0] is not None]

    @property
    def failed(self) -> int:
        """Pages that differ, or were not read."""
        return sum(not equal(page) for page in self.pages)

    def document(self) -> dict[str, Any]:
        """As JSON, pages that differ first."""
        pages = [_row(page) for page in self.pages]
        return {
            "run": self.review.a.record.id,
            "of": self.review.b.record.id,
            "backend": self.review.b.backend,
            "equal": len(pages) - self.failed,
            "differ": self.failed,
            "drafts": self._drafts.document(),
            "decode_ms": dict(zip(("now", "recorded"), self._decoding(), strict=True)),
            "pages": pages,
        }

    def write_json(self, stream: TextIO) -> None:
        stream.write(json_line(self.document()) + "\n")

    def print(self, console: Console) -> None:
        table = page_table("Page", "Tokens", "Parts at", "Why", words="Why")
        for page in self.pages:
            row = _row(page)
            table.add_row(
                Name(row["image"]),
                "equal" if row["equal"] else "differ" if page.report else "not read",
                "" if row["token"] is None else _parting(row),
                Text("; ".join(row["why"])),
            )
        console.print(table)
        values = self.document()
        now, before = values["decode_ms"]["now"], values["decode_ms"]["recorded"]
        if now and before:
            console.print(f"decode: {duration(now)}, recorded {duration(before)} ({before / now:.2f}x)")
        if self._drafts.words:
            console.print(self._drafts.words)
        console.print(f"{plural(values['equal'], 'page')} equal, {values['differ']} not")

    @property
    def _drafts(self) -> Given:
        given = Given()
        for page in self.pages:
            if page.a is not None:
                given.add(page.a.environment, len(page.a.token_ids or ()) or None)
        return given

    def _decoding(self) -> list[float | None]:
        """Milliseconds of decoding all pages that both sides timed, now and recorded."""
        from dsocr_core.models.stages import Stage
        from dsocr_core.runs.results import times

        sides = zip((self.review.a, self.review.b), (0, 1), strict=True)
        found = []
        for side, place in sides:
            timed = times(self.review.history, side.record.id)
            stages = [timed.get((page.names[place] or "", side.backend), ()) for page in self.pages]
            found.append([sum(t.milliseconds for t in of if t.stage == Stage.DECODE) for of in stages])
        both = [pair for pair in zip(*found, strict=True) if all(pair)]
        return [sum(side) for side in zip(*both, strict=True)] or [None, None]


def equal(page: PageReview) -> bool:
    """Tell whether both readings have the same tokens; the same text where one does not know its tokens."""
    if page.report is None or page.a is None or page.b is None:
        return False
    same = page.report.tokens_equal
    return page.a.text_raw == page.b.text_raw if same is None else same


def _row(page: PageReview) -> dict[str, Any]:
    """One page: the token at which it parts, what stands there on both sides, and why."""
    divergence = page.report.first_divergence if page.report else None
    same = equal(page)
    why = [hint.words for hint in page.hints] or list(page.reasons)
    return {
        "image": page.name,
        "equal": same,
        "token": divergence.index if divergence else None,
        "text": divergence.text_a if divergence else None,
        "recorded_text": divergence.text_b if divergence else None,
        "why": [] if same else why,
    }


def _parting(row: Mapping[str, Any]) -> Text:
    now, before = (repr(row[name][:_SHOWN]) for name in ("text", "recorded_text"))
    return Text(f"token {row['token']}: {now}, recorded {before}")
