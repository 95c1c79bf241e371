"""`gate`: this code beside what it was before, with exit codes for CI."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from rich.console import Console

from dsocr_core.base.console import cancelled_by_interrupt, print_json
from dsocr_core.base.paths import Temporary
from dsocr_core.cli.compare_runs import written
from dsocr_core.settings import EngineName, Settings, SettingsError, history_location

if TYPE_CHECKING:
    from dsocr_core.measure.processes import Work


@dataclass(frozen=True, kw_only=True)
class WorkOptions:
    """Work of each process.

    Args:
        engine: engine to measure
        size: of the page in pixels
        tokens: new tokens; the end token is ignored
        batch: pages that the fast engine reads together
        pages: pages of one pass (default: 5, or --batch)
        passes: measured passes of a process
    """

    engine: EngineName = "eager"
    size: str = "1280x1280"
    tokens: int = 100
    batch: int = 1
    pages: int | None = None
    passes: int = 3

    def work(self, settings: Settings) -> Work:
        """Raises DsocrError."""
        from dsocr_core.measure.processes import Work
        from dsocr_core.measure.synthetic_page import parse_size

        size, pages = "x".join(map(str, parse_size(self.size))), self.pages or max(Work.pages, self.batch)
        return Work(settings, self.engine, size, self.tokens, self.batch, pages, self.passes)


def gate(
    settings: Annotated[Settings, "engine"],
    images: tuple[str, ...] = (),
    *,
    baseline: str | None = None,
    commit: str | None = None,
    fail_above: str = "3%",
    on: str = "",
    repeats: int = 10,
    contended: bool = False,
    json: bool = False,
    markdown: str | None = None,
    work: WorkOptions,
    console: Console,
) -> int:
    """Measure this code beside a baseline, in processes by turns, and tell whether it is slower. Exit
    code 0: within or faster, 3: slower, 4: inconclusive, 1: pages differ, 2: bad usage.

    Args:
        images: pages that both read, too
        baseline: a commit (default: HEAD; its parent where nothing changed)
        commit: the commit that is measured (default: the working tree)
        fail_above: change beyond which a metric is slower, or faster
        on: metrics like tokens/s,prefill,sam (default: both rates, prefill and the stages that take a while)
        repeats: processes a side at most
        contended: count processes beside other programs too
        markdown: write Markdown, for a pull request
    """
    from dsocr_core.measure import gate_report
    from dsocr_core.measure.gate import Plan, hold

    if repeats < 2:
        raise SettingsError(f"--repeats is {repeats}: give 2 or more")
    metrics = tuple(filter(None, (name.strip() for name in on.split(","))))
    with ExitStack() as stack:
        cancel = stack.enter_context(cancelled_by_interrupt())
        location = history_location(settings) if settings.history else stack.enter_context(Temporary("gate"))
        plan = Plan(
            work.work(settings), location, baseline, commit, repeats, metrics,
            share_of(fail_above), contended, images,
        )  # fmt: skip
        gated = hold(plan, cancel)
    if json:
        print_json(gate_report.document(gated))
    else:
        gate_report.print_gate(gated, console)
    if markdown:
        console.print(written(markdown, gate_report.markdown(gated)), markup=False)
    return gate_report.exit_code(gated)


def share_of(text: str) -> float:
    """A share from "3%" or "3". Raises SettingsError."""
    with suppress(ValueError):
        if 0 < (found := float(text.strip().removesuffix("%")) / 100) < 1:
            return found
    raise SettingsError(f"--fail-above is '{text[:20]}': give a percentage like 3%")
