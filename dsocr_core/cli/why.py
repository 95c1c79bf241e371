"""`why`: the cause of a difference, found by reproduction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace
from rich.console import Console
from rich.table import Table

from dsocr_core.backend_specs.kinds import EagerSpec, FastSpec
from dsocr_core.backend_specs.parsing import names_backend
from dsocr_core.cli.options import (
    add_json,
    add_settings,
    add_subcommand,
    require_above_zero,
    require_positive,
    settings_of,
)
from dsocr_core.cli.sides import add_side, choice_of
from dsocr_core.console import FAILED, OK, SafeConsole, cancelled_by_interrupt, print_json
from dsocr_core.records import CancelToken
from dsocr_core.settings import Settings, SettingsError, history_location

if TYPE_CHECKING:
    from dsocr_core.why.match import Other
    from dsocr_core.why.run import Answer, PageAnswer

_SHOWN = 40
"""Characters of a fact in the table; --json has all of them."""

_DESCRIPTION = (
    "Say why B wrote another text than our engine, by reproducing it: other n-gram rules, prompts, tiles, "
    "number types, limits. Exit code 0: explained, or equal, on every page; 1: not explained; 2: bad usage."
)


def add(commands: Any) -> None:
    parser = add_subcommand(commands, "why", _DESCRIPTION)
    parser.add_argument("page", nargs="+", metavar="PAGE", help="images of pages")
    add_side(parser, "a", "our engine, which tries the causes: eager (default) or fast")
    b = "any backend, which reads the pages; or what one wrote: a run, a run directory, a result or text file"
    add_side(parser, "b", b, required=True)
    backend = "which backend of a run B is"
    parser.add_argument("--backend", type=str, default=None, metavar="BACKEND", help=backend)
    parser.add_argument("--budget-runs", type=int, default=60, help="runs of A on each page")
    parser.add_argument("--budget-s", type=float, default=600.0, help="seconds for all pages")
    add_json(parser)
    add_settings(parser, skip={"engine"})


def run(chosen: Namespace, console: Console, typed: str) -> int:
    """Returns the exit code. Raises DsocrError for what is not usable, Cancelled on Ctrl-C."""
    require_positive(chosen, "budget_runs")
    require_above_zero(chosen, "budget_s")
    b = choice_of(chosen.b)
    assert b is not None
    reads = names_backend(b, chosen.backends)
    settings = settings_of(chosen, skip={"engine"}, a=choice_of(chosen.a) or "eager", b=b if reads else None)
    if not isinstance(settings.spec("a"), EagerSpec | FastSpec):
        raise SettingsError(
            f"--a is {settings.backend('a')}: only our engines try causes; give eager or fast"
        )
    pages = [(Path(page), Path(page).name) for page in chosen.page]
    if pdf := next((path for path, _ in pages if path.suffix.lower() == ".pdf"), None):
        raise SettingsError(f"{pdf}: why takes images; give a picture of the PDF's page")
    if reads:
        settings = settings.for_comparison()
    from dsocr_core.why.run import why
    from dsocr_core.why.search import Budget

    status = SafeConsole(stderr=True).status("loading")

    def on_wait(holder: str) -> None:
        status.update(f"waiting for {holder}")

    with (
        status,
        cancelled_by_interrupt() as cancel,
        _others(settings, chosen, cancel, on_wait) as other_of,
    ):
        answer = why(
            settings.of_side("a"),
            pages,
            other_of,
            Budget(chosen.budget_runs, chosen.budget_s),
            lambda words, number, runs: status.update(f"run {number} of at most {runs}: {words}"),
            cancel,
            on_wait,
        )
    if chosen.json:
        print_json(answer.document())
    else:
        print_answer(answer, console)
    return OK if answer.explained else FAILED


@contextmanager
def _others(
    settings: Settings, chosen: Namespace, cancel: CancelToken, on_wait: Callable[[str], None]
) -> Iterator[Callable[[Path, str], Other]]:
    """Gives B on a page: from what reads it now, else from what it has left. Raises DsocrError."""
    if settings.names_backend("b"):
        from dsocr_core.why.asked import asked

        with asked(settings, cancel, on_wait) as other_of:
            yield other_of
        return
    from dsocr_core.why.reference import read_other

    yield lambda path, name: read_other(chosen.b, name, history_location(settings), chosen.backend)


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
    text = json.dumps(value, ensure_ascii=False)[1:-1]
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
