"""`why`: the cause of a difference, found by reproduction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.table import Table

from dsocr_core.base.console import FAILED, OK, SafeConsole, cancelled_by_interrupt, print_json
from dsocr_core.base.specs.kinds import EagerSpec, FastSpec
from dsocr_core.base.specs.parsing import BackendChoice, names_backend
from dsocr_core.cli.options import PagesTogether
from dsocr_core.reading.records import CancelToken
from dsocr_core.settings import Settings, SettingsError, history_location

if TYPE_CHECKING:
    from dsocr_core.page.documents import Page
    from dsocr_core.trace.why.match import Other
    from dsocr_core.trace.why.run import Answer, PageAnswer

_SHOWN = 40
"""Characters of a fact in the table; --json has all of them."""


def why(
    settings: Annotated[Settings, "engine"],
    page: tuple[str, ...],
    *,
    a: BackendChoice = "eager",
    b: BackendChoice,
    backend: str | None = None,
    budget_runs: int = 60,
    budget_s: float = 600.0,
    pages: str | None = None,
    pages_together: PagesTogether = None,
    json: bool = False,
    console: Console,
) -> int:
    """Say why B wrote another text than our engine, by reproducing it: other n-gram rules, prompts, tiles,
    number types, limits. Exit code 0: explained, or equal, on every page; 1: not explained; 2: bad usage.

    Args:
        page: images, folders or PDF files
        a: our engine, which tries the causes: eager or fast; its own settings follow as --a.KEY VALUE
        b: any backend, which reads the pages, or what one wrote: a run, its directory, a result or a text
        backend: which backend of a run B is
        budget_runs: runs of A on each page
        budget_s: seconds for all pages
        pages: pages of PDF files, like 1-3,7
        pages_together: so many pages of a document in one prompt, without a number all of them; images that
            are given are one document
    """
    reads = names_backend(b, settings.backends)
    settings = replace(settings, a=a, b=b if reads else None)
    if not isinstance(settings.spec("a"), EagerSpec | FastSpec):
        raise SettingsError(
            f"--a is {settings.backend('a')}: only our engines try causes; give eager or fast"
        )
    if reads:
        settings = settings.for_comparison()
    from dsocr_core.page.documents import expand
    from dsocr_core.trace.why.run import why as explain
    from dsocr_core.trace.why.search import Budget

    found = expand(map(Path, page), pages, None, settings.pdf_dpi, settings.max_pixels)
    if pages_together is not None:
        found = found.together(pages_together)
    status = SafeConsole(stderr=True).status("loading")

    def on_wait(holder: str) -> None:
        status.update(f"waiting for {holder}")

    with (
        status,
        cancelled_by_interrupt() as cancel,
        _others(settings, str(b), backend, cancel, on_wait, pages_together is not None) as other_of,
    ):
        answer = explain(
            settings.of_side("a"),
            found,
            other_of,
            Budget(budget_runs, budget_s),
            lambda words, number, runs: status.update(f"run {number} of at most {runs}: {words}"),
            cancel,
            on_wait,
        )
    if json:
        print_json(answer.document())
    else:
        print_answer(answer, console)
    return OK if answer.explained else FAILED


@contextmanager
def _others(
    settings: Settings,
    other: str,
    backend: str | None,
    cancel: CancelToken,
    on_wait: Callable[[str], None],
    together: bool,
) -> Iterator[Callable[[Page], Other]]:
    """Gives B on a page: from what reads it now, else from what it has left. Raises DsocrError."""
    if settings.names_backend("b"):
        from dsocr_core.trace.why.reference import asked

        with asked(settings, cancel, on_wait, together) as other_of:
            yield other_of
        return
    from dsocr_core.trace.why.reference import read_other

    yield lambda page: read_other(other, page.source, history_location(settings), backend)


def print_answer(answer: Answer, console: Console) -> None:
    """Each page's facts and what was tried, then the conclusion."""
    for page in answer.pages:
        _print_page(page, console)
    console.print(answer.sentence, markup=False, style="bold")


def _print_page(page: PageAnswer, console: Console) -> None:
    finding = page.finding
    facts = Table(title=f"{page.name}: A and {page.other}", title_justify="left", pad_edge=False)
    for column in ("", "A", "B", ""):
        facts.add_column(column, overflow="fold")
    for line in page.facts:
        facts.add_row(line.name, _short(line.a), _short(line.b), line.state)
    console.print(facts)
    if finding.trials:
        tried = Table(title="tried", title_justify="left", pad_edge=False)
        tried.add_column("cause", overflow="fold")
        for column in ("agrees", "CER", "s"):
            tried.add_column(column, justify="right")
        for trial in finding.trials:
            match = trial.match
            agrees = "exactly" if match.exact else f"{match.agreed} of {match.of}"
            tried.add_row(trial.words, agrees, f"{match.error_rate:.1%}", f"{trial.seconds:.1f}")
        console.print(tried)
    for each in finding.exclusions:
        console.print(f"excluded: {each.hypothesis.words}: {each.why}", markup=False)
    if finding.also:
        console.print(f"this page cannot tell it from: {'; '.join(finding.also)}", markup=False)
    if len(finding.sentence) > 0:
        console.print(f"{page.name}: {finding.sentence}", markup=False)


def _short(value: str | None) -> str:
    if value is None:
        return "not known"
    text = dumps(value, ensure_ascii=False)[1:-1]
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
