"""`compare --why N`: the causes of the worst pages' differences, found by reproduction."""

from __future__ import annotations

from collections.abc import Iterator
from json import dumps
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dsocr_core.base.console import SafeConsole, cancelled_by_interrupt
from dsocr_core.base.formatting import shortened
from dsocr_core.base.specs import ENGINES
from dsocr_core.settings import Settings, SettingsError

if TYPE_CHECKING:
    from dsocr_core.page.documents import Page, Pages
    from dsocr_core.review.review import Review
    from dsocr_core.trace.why.match import Other
    from dsocr_core.trace.why.run import Answer

_SHOWN = 40
"""Characters of a fact in the table; --json has all of them."""


def check_why(settings: Settings) -> None:
    """Raises SettingsError where A is none of our engines, which try the causes."""
    if settings.spec("a").kind not in ENGINES:
        raise SettingsError(
            f"--why tries other settings on A, and A is {settings.backend('a')}: give --a eager or fast"
        )


def explain_worst(review: Review, pages: Pages, settings: Settings, most: int) -> Answer | None:
    """Find why B wrote another text on the `most` worst pages that differ; None where none does.

    `pages` are those of the review and `settings` A's. Raises DsocrError, Cancelled.
    """
    from dsocr_core.runs.results import readings
    from dsocr_core.trace.why.match import Other
    from dsocr_core.trace.why.run import why

    other = [page for page in review.pages if page.a and page.b and page.a.text_raw != page.b.text_raw]
    names = {page.names[0] or "": page.names[1] or "" for page in other[:most]}
    if not names:
        return None
    read = readings(review.history, review.b.record.id, list(names.values())).results

    def other_of(page: Page) -> Other:
        return Other.of(read[names[page.source], review.b.backend], review.b.name)

    with SafeConsole(stderr=True).status("loading") as status, cancelled_by_interrupt() as cancel:
        return why(
            settings.of_side("a"),
            pages.only(names),
            other_of,
            progress=lambda words, run, runs: status.update(f"run {run} of at most {runs}: {words}"),
            cancel=cancel,
            on_wait=lambda holder: status.update(f"waiting for {holder}"),
        )


def shown(answer: Answer) -> Iterator[RenderableType]:
    """Each page's facts that are not equal, what was tried, then the conclusion; --json has all."""
    for page in answer.pages:
        finding = page.finding
        table = Table("", "A", "B", "", title=f"{page.name}: A and {page.other}", title_justify="left")
        for line in page.facts:
            if line.state != "equal":
                table.add_row(line.name, _fact(line.a), _fact(line.b), line.state)
        yield table
        for trial in finding.trials:
            match = trial.match
            agrees = "exactly" if match.exact else f"{match.agreed} of {match.of} characters"
            yield f"tried: {trial.words}: agrees {agrees}, CER {match.error_rate:.1%}, {trial.seconds:.1f} s"
        yield from (f"excluded: {each.hypothesis.words}: {each.why}" for each in finding.exclusions)
        if finding.also:
            yield f"this page cannot tell it from: {'; '.join(finding.also)}"
        if finding.sentence:
            yield f"{page.name}: {finding.sentence}"
    yield Text(answer.sentence, style="bold")


def _fact(value: str | None) -> str:
    return "not known" if value is None else shortened(dumps(value, ensure_ascii=False)[1:-1], _SHOWN)
