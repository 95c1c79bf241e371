"""`trace`: the first tensor that differs between two backends on one page, or between two dumps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jsonargparse import Namespace
from rich.console import Console
from rich.table import Table

from dsocr_core.cli.options import add_json, add_settings, add_subcommand, settings_of
from dsocr_core.console import FAILED, OK, SafeConsole, cancelled_by_interrupt, print_json
from dsocr_core.outputs.trace_curve import BlockError, block_errors, percent, shortened, steps_shown
from dsocr_core.outputs.trace_records import TraceSummary
from dsocr_core.outside.untrusted import Refused, parse_json, read_bytes
from dsocr_core.records import CancelToken
from dsocr_core.settings import Settings, SettingsError

if TYPE_CHECKING:
    from dsocr_core.trace.run import TracePlan

Way = Literal["eager", "fast", "float32", "vendor"]
MAX_NAMES_BYTES = 1024 * 1024
_SHOWN_ROUTERS = 8
TABLE_COLUMNS = 140
"""Width of the table where no terminal has one."""


_DESCRIPTION = (
    "Find the first tensor that differs: two backends on a page, both with A's tokens. Or two dumps: "
    "trace DIR_A DIR_B. Exit code 0: equal, 1: different, 2: bad usage."
)


def add(commands: Any) -> None:
    parser = add_subcommand(commands, "trace", _DESCRIPTION)
    parser.add_argument("page", nargs="+", metavar="PAGE", help="images; or the directories of two dumps")
    parser.add_argument("--a", type=Way, default="eager", help="side A; float32 is the oracle")
    parser.add_argument("--b", type=Way, default="vendor", help="side B, fed with A's tokens")
    steps = "decode steps after the prefill; unless given, up to the first token that differs, or 8"
    parser.add_argument("--steps", type=int, default=None, help=steps)
    out = "write the tensors to DIR/a and DIR/b"
    parser.add_argument("--out", type=str, default=None, metavar="DIR", help=out)
    only = "blocks to compare, like clip or sam.block0,decoder.layer1"
    parser.add_argument("--only", type=str, default=None, metavar="NAMES", help=only)
    inject = "put A's tensor into B there, like A:sam.out; A:blocks is all"
    parser.add_argument("--inject", type=str, default=None, metavar="A:NAMES", help=inject)
    names = "JSON file that maps the second dump's names to the first's; {i} stands for a number"
    parser.add_argument("--names", type=str, default=None, metavar="FILE", help=names)
    parser.add_argument("--save", action="store_true", help="record the summary as a run of the history")
    add_json(parser)
    add_settings(parser, skip={"engine"})


def run(chosen: Namespace, console: Console, typed: str) -> int:
    """Returns the exit code. Raises DsocrError for what is not usable, Cancelled on Ctrl-C."""
    settings = settings_of(chosen, skip={"engine"})
    if chosen.save and not settings.history:
        raise SettingsError("--save has nowhere to save to: give --history a path or a URL")
    paths = [Path(path) for path in chosen.page]
    with cancelled_by_interrupt() as cancel:
        if len(paths) == 2 and all(path.is_dir() for path in paths):
            summaries = [_compare_dumps(paths[0], paths[1], chosen, cancel)]
        else:
            if chosen.out and len(paths) > 1:
                raise SettingsError("--out takes one page: each would replace the one before")
            summaries = [_trace_page(path, settings, chosen, console, typed, cancel) for path in paths]
    if chosen.json:
        several = {"pages": [{"page": summary.page, **summary.document()} for summary in summaries]}
        print_json(several if len(summaries) > 1 else summaries[0].document())
    else:
        if not console.is_terminal:
            console.width = TABLE_COLUMNS
        for summary in summaries:
            if len(summaries) > 1:
                console.print(f"\n{summary.page}", markup=False, style="bold")
            print_summary(summary, console)
    return OK if all(summary.equal for summary in summaries) else FAILED


def _compare_dumps(a: Path, b: Path, chosen: Namespace, cancel: CancelToken) -> TraceSummary:
    from dsocr_core.trace.run import compare_directories

    refused = [name for name in ("out", "inject", "save") if getattr(chosen, name)]
    if refused:
        raise SettingsError(f"--{refused[0]} goes with a page: two directories are only compared")
    return compare_directories(a, b, _names(chosen.names), _split(chosen.only), cancel)


def _trace_page(
    page: Path, settings: Settings, chosen: Namespace, console: Console, typed: str, cancel: CancelToken
) -> TraceSummary:
    from dsocr_core.trace.run import divergence_steps, trace_page

    if page.suffix.lower() == ".pdf":
        raise SettingsError(f"{page}: trace takes one image; give a picture of the PDF's page")
    if chosen.names:
        raise SettingsError("--names goes with two directories: our own names need none")
    plan = _plan(chosen)
    request = settings.request(page)
    with _Progress() as progress:
        if chosen.steps is None:
            progress.say("reading with both, to find where they diverge")
            plan = replace(plan, steps=divergence_steps(settings, request, plan, cancel, progress.wait))
        summary = trace_page(settings, request, plan, progress.tell, cancel, progress.wait)
    if chosen.save:
        from dsocr_core.trace.recorder import record_trace

        saved = record_trace(settings, request, plan, summary, typed)
        if not chosen.json:
            console.print(f"saved as run {saved}", markup=False)
    return summary


def _plan(chosen: Namespace) -> TracePlan:
    from dsocr_core.trace.run import USUAL_STEPS, TracePlan

    return TracePlan(
        chosen.a,
        chosen.b,
        USUAL_STEPS if chosen.steps is None else chosen.steps,
        _split(chosen.only),
        _injected(chosen.inject),
        Path(chosen.out) if chosen.out else None,
    )


def _split(names: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (names or "").split(",") if name.strip())


def _injected(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    side, mark, names = text.partition(":")
    if side != "A" or not mark or not _split(names):
        raise SettingsError(f"--inject {text}: give A: and names of blocks, like A:sam.out")
    return _split(names)


def _names(file: str | None) -> Mapping[str, str] | None:
    """The mapping of a file. Raises SettingsError."""
    if file is None:
        return None
    try:
        names = parse_json(read_bytes(Path(file), MAX_NAMES_BYTES, follow_links=True))
        if not all(isinstance(name, str) for name in names.values()):
            raise Refused("not a JSON object of names")
    except Refused as error:
        raise SettingsError(f"--names {file}: {str(error)[:120]}; give a JSON object of names") from error
    return names


class _Progress:
    """What is done now, on the terminal's error stream, while it lasts."""

    def __init__(self) -> None:
        self._console = SafeConsole(stderr=True)
        self._status = self._console.status("loading")
        self._began = time.monotonic()

    def __enter__(self) -> _Progress:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def say(self, words: str) -> None:
        self._status.update(words)

    def tell(self, side: str, call: int, calls: int) -> None:
        step = "prefill" if call == 0 else f"decode step {call} of {calls - 1}"
        self._status.update(f"{side}: {step}, {time.monotonic() - self._began:.0f} s")

    def wait(self, holder: str) -> None:
        self._status.update(f"waiting for {holder}")


# --- printing -------------------------------------------------------------------------------------


def print_summary(summary: TraceSummary, console: Console) -> None:
    """The sentence, the causes, and where something differs the curve by block."""
    console.print(summary.sentence, markup=False, style="bold")
    for cause in summary.causes[1:]:
        console.print(f"also: {cause.words}", markup=False)
    counted = f"{summary.differing:,} of {summary.compared:,} outputs differ"
    console.print(f"{counted}; A {summary.a}, B {summary.b}, {summary.steps} decode steps", markup=False)
    for side, names in (("A", summary.only_a), ("B", summary.only_b)):
        if names:
            console.print(f"only {side} has {shortened(names)}", markup=False)
    if summary.first is None:
        return
    steps = steps_shown(summary.steps)
    title = "RMS error over A's std in what a block takes and gives; share that differs and largest ULP"
    table = Table(title=title, title_justify="left", pad_edge=False)
    table.add_column("block")
    for column in ("takes", "gives", "differ", "ULP", *(f"step {step}" for step in steps[1:])):
        table.add_column(column, justify="right")
    for block, cells in block_errors(summary).items():
        first = cells.get(0)
        row = ["", "", "", ""] if first is None else _cells(first)
        table.add_row(block, *row, *(_error(cells.get(step)) for step in steps[1:]))
    console.print(table)
    if summary.routers:
        console.print("Tokens whose experts differ:", markup=False)
        for change in summary.routers[:_SHOWN_ROUTERS]:
            step = "prefill" if change.call == 0 else f"step {change.call}"
            of_tokens = f"{change.changed} of {change.tokens}, {change.ties} at a tie"
            console.print(f"  {change.name}, {step}: {of_tokens}", markup=False)
        if (more := len(summary.routers) - _SHOWN_ROUTERS) > 0:
            console.print(f"  and in {more} more layers and steps", markup=False)


def _cells(cell: BlockError) -> list[str]:
    ulp = "" if cell.max_ulp is None else f"{cell.max_ulp:,}"
    return [_figure(cell.carried), _error(cell), percent(cell.share), ulp]


def _error(cell: BlockError | None) -> str:
    if cell is None:
        return ""
    return _figure(cell.error) if cell.differing else "equal"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"
