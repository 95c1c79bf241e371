"""`gate`: this code beside what it was before, with exit codes for CI."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from rich.console import Console

from dsocr_core.base.console import cancelled_by_interrupt, print_json
from dsocr_core.base.temporary import Temporary
from dsocr_core.cli.compare_runs import may_be_run, written
from dsocr_core.settings import EngineName, Settings, SettingsError, history_location

if TYPE_CHECKING:
    from dsocr_core.measure.processes import Work


@dataclass(frozen=True, kw_only=True)
class WorkOptions:
    """Work of each process.

    Args:
        engine: engine to measure (default: eager)
        size: of the page in pixels (default: 1280x1280)
        tokens: new tokens; the end token is ignored (default: 100)
        batch: pages that the fast engine reads together (default: 1)
        pages: pages of one pass (default: 5, or --batch)
        passes: measured passes of a process (default: 3)
    """

    engine: EngineName | None = None
    size: str | None = None
    tokens: int | None = None
    batch: int | None = None
    pages: int | None = None
    passes: int | None = None


@dataclass(frozen=True, kw_only=True)
class GateReports:
    """Forms of the report.

    Args:
        junit: write JUnit XML, with times
        markdown: write Markdown, for a pull request
    """

    json: bool = False
    junit: str | None = None
    markdown: str | None = None


def gate(
    settings: Annotated[Settings, "engine"],
    images: tuple[str, ...] = (),
    *,
    baseline: str | None = None,
    commit: str | None = None,
    fail_above: str = "3%",
    on: str = "",
    repeats: Annotated[int, 2] = 10,
    contended: bool = False,
    chosen: WorkOptions,
    reports: GateReports,
    console: Console,
) -> int:
    """Measure this code beside a baseline, in processes by turns, and tell whether it is slower. Exit
    code 0: within or faster, 3: slower, 4: inconclusive, 1: pages differ, 2: bad usage.

    Args:
        images: pages to compare too, or a recorded run to read again
        baseline: a commit (default: HEAD; its parent where nothing changed)
        commit: the commit that is measured (default: the working tree)
        fail_above: change beyond which a metric is slower, or faster
        on: metrics like tokens/s,prefill,sam (default: both rates, prefill and the stages that take a while)
        repeats: processes a side at most
        contended: count processes beside other programs too
    """
    from dsocr_core.measure.gate import Plan, hold
    from dsocr_core.measure.gate_report import document, exit_code, junit, markdown, print_gate
    from dsocr_core.measure.processes import commit_before

    neutral, metrics = share_of(fail_above), tuple(filter(None, (name.strip() for name in on.split(","))))
    with ExitStack() as stack:
        location = history_location(settings) if settings.history else stack.enter_context(Temporary("gate"))
        again = len(images) == 1 and may_be_run(images[0])
        plan = Plan(
            _work(settings, chosen), location, baseline or commit_before(), commit, repeats, metrics, neutral,
            contended, images, again,
        )  # fmt: skip
        with cancelled_by_interrupt() as cancel:
            gated = hold(plan, cancel)
    if reports.json:
        print_json(document(gated))
    else:
        print_gate(gated, console)
    for file, text in ((reports.junit, junit), (reports.markdown, markdown)):
        if file:
            console.print(written(file, text(gated)), markup=False)
    return exit_code(gated)


def share_of(text: str) -> float:
    """A share from "3%" or "3". Raises SettingsError."""
    try:
        found = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        found = 0.0
    if not 0 < found < 1:
        raise SettingsError(f"--fail-above is '{text[:20]}': give a percentage like 3%")
    return found


def _work(settings: Settings, chosen: WorkOptions) -> Work:
    """Make the work of each process. Raises DsocrError."""
    from dsocr_core.measure.processes import Work
    from dsocr_core.measure.synthetic_page import parse_size

    given = {name: value for name, value in vars(chosen).items() if value is not None}
    if "size" in given:
        given["size"] = "x".join(map(str, parse_size(given["size"])))
    pages = max(Work.pages, given.get("batch", 1))
    return Work(settings, **{"pages": pages} | given)
