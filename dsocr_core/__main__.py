"""The command line: `python -m dsocr_core run|compare|trace|bench|history|doctor`.

Exit codes: 0 all well, 1 a page failed or disagrees, 2 bad usage. `--json` prints one JSON document and
nothing else on stdout; everything for people goes to stderr then. `bench` ends with one JSON line always.
"""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsocr_core.cli_trace import run_trace, trace_parser
from dsocr_core.errors import Cancelled, DsocrError
from dsocr_core.history.cli import add_history_commands, history_parser, run_history
from dsocr_core.interrupt import cancelled_by_interrupt
from dsocr_core.review.cli import add_review_arguments, compare_runs, names_runs
from dsocr_core.saved import SavedRun, place_of
from dsocr_core.settings import EngineName, Settings, SettingsError
from dsocr_core.threads import wait_politely

log = logging.getLogger(__name__)

OK, FAILED, BAD_USAGE = 0, 1, 2
BENCH_COLUMNS = 100
NVTX_ONLY = "mark the stages for a profiler and measure nothing: no events, no clocks, no synchronisation"


def build_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="dsocr_core", description="Read pages with DeepSeek-OCR and compare both roads."
    )
    commands = parser.add_subcommands(dest="command", metavar="COMMAND")
    run = _page_parser("Read pages on our road; write artifacts and timings.")
    run.add_argument("--resume", type=str, default=None, metavar="DIR",
                     help="go on with that run directory: skip what is done there")  # fmt: skip
    run.add_argument("--nvtx-only", action="store_true", help=NVTX_ONLY)
    together = "pages that the fast engine reads together (default: all, up to 256); 1 is one by one"
    run.add_argument("--batch", type=int, default=None, metavar="N", help=together)
    commands.add_subcommand("run", run)
    compare = _page_parser(
        "Read pages on both roads and report their parity: compare IMAGE ... Or compare what is recorded, "
        "without a model: compare RUN (its two roads) or compare A_RUN B_RUN, each an id of the history or a "
        "run's directory.",
        "images, folders or PDF files; or one or two recorded runs",
    )
    compare.add_argument("--spans", type=int, default=3, help="how many spans of each road the table shows")
    add_review_arguments(compare)
    commands.add_subcommand("compare", compare)
    commands.add_subcommand("trace", trace_parser())
    commands.add_subcommand("bench", _bench_parser())
    history = history_parser()
    commands.add_subcommand("history", history)
    add_history_commands(history)
    doctor = ArgumentParser(description="Say what is on this machine and what is missing for what.")
    doctor.add_class_arguments(Settings, None)
    doctor.add_argument("--clear", action="store_true", help="delete what stopped writers left behind")
    doctor.add_argument("--json", action="store_true", help="print one JSON document")
    commands.add_subcommand("doctor", doctor)
    return parser


def _page_parser(description: str, what: str = "images, folders or PDF files") -> ArgumentParser:
    parser = ArgumentParser(description=description)
    parser.add_argument("--config", action="config", help="YAML file of settings")
    parser.add_argument("images", nargs="+", metavar="IMAGE", help=what)
    parser.add_argument("--pages", type=str, default=None, help="pages of PDF files, like 1-3,7")
    parser.add_argument(
        "--out", type=str, default=None, help="run directory (default: data/runs/TIME-COMMAND)"
    )
    parser.add_argument("--save", action="store_true", help="record it as a run of the history")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.add_class_arguments(Settings, None)
    return parser


def _bench_parser() -> ArgumentParser:
    parser = ArgumentParser(
        description="Measure what a page costs, engine by engine; the last line is one JSON document."
    )
    parser.add_argument("--config", action="config", help="YAML file of settings")
    parser.add_argument("--engine", nargs="+", type=EngineName, default=["eager"], help="engines to measure")
    vendor = "measure the vendor's road on this directory too; its code must be allowed"
    parser.add_argument("--vendor-checkpoint", type=str, default=None, metavar="DIR", help=vendor)
    parser.add_argument("--size", type=str, default="1280x1280", metavar="WxH", help="of the page in pixels")
    parser.add_argument("--tokens", type=int, default=100, help="new tokens; the end token is ignored")
    parser.add_argument("--batch", type=int, default=1, help="pages that the fast engine reads together")
    parser.add_argument("--pages", type=int, default=None, help="pages of one pass (default: --batch)")
    parser.add_argument("--repeat", type=int, default=5, help="measured passes, after the warm-up")
    parser.add_argument("--nvtx-only", action="store_true", help=NVTX_ONLY)
    parser.add_argument("--save", action="store_true", help="record each engine as a run of the history")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.add_class_arguments(Settings, None, skip={"engine"})
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    wait_politely()
    parser = build_parser()
    options = parser.parse_args(arguments)
    command = options.command
    chosen: Namespace = options[command]
    as_json = chosen[chosen.history_command].json if command == "history" else chosen.json
    console = Console(stderr=as_json)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    try:
        if command == "history":
            return run_history(chosen, console)
        settings = _settings(parser, options, command)
        if command == "doctor":
            return _doctor(settings, chosen, console)
        if command == "bench":
            return _bench(settings, chosen, console, arguments)
        if command == "trace":
            return run_trace(settings, chosen, console, _as_typed(arguments))
        if command == "compare" and names_runs(chosen):
            return compare_runs(chosen, place_of(settings), console)
        return _pages(command, settings, chosen, console, arguments)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] == __package__:
            raise
        _error(console, f"the package {missing.name} is not installed: pip install -r requirements.txt")
        return BAD_USAGE
    except (Cancelled, KeyboardInterrupt) as stop:  # the latter while torch is imported
        _error(console, str(stop) or "cancelled")
        return FAILED
    except DsocrError as error:
        _error(console, str(error))
        return BAD_USAGE


def _settings(parser: ArgumentParser, options: Namespace, command: str) -> Settings:
    """The settings of the command line and its YAML file. Raises SettingsError."""
    values = parser.instantiate(options)[command]
    names = Settings.__dataclass_fields__
    # `bench` takes several engines, and makes settings for each.
    given = {name: values[name] for name in names if command != "bench" or name != "engine"}
    settings = Settings(**given)
    return settings.for_comparison() if command == "compare" else settings


def _doctor(settings: Settings, chosen: Namespace, console: Console) -> int:
    from dsocr_core.doctor import examine

    findings = examine(settings, chosen.clear)
    failed = any(finding.state == "missing" for finding in findings)
    if chosen.json:
        print(json.dumps({"findings": [asdict(finding) for finding in findings], "ok": not failed}))
        return FAILED if failed else OK
    table = Table(title="What is here", title_justify="left")
    for column in ("", "State", "Found", "What to do"):
        table.add_column(column, overflow="fold")
    colours = {"ok": "green", "optional": "yellow", "missing": "red"}
    for finding in findings:
        colour = colours[finding.state]
        detail, advice = Text(finding.detail), Text(finding.advice)  # paths may hold brackets
        table.add_row(finding.subject, f"[{colour}]{finding.state}[/]", detail, advice)
    console.print(table)
    return FAILED if failed else OK


def _bench(settings: Settings, chosen: Namespace, console: Console, arguments: Sequence[str] | None) -> int:
    from dsocr_core.bench import BenchPlan, bench, parse_size, save

    if chosen.save and chosen.nvtx_only:
        raise SettingsError("--nvtx-only measures nothing that could be saved: leave --save out")
    if chosen.save:
        import dsocr_core.history.store  # noqa: F401  a package that it lacks is told before all is measured
    plan = BenchPlan(
        settings,
        tuple(chosen.engine),
        chosen.vendor_checkpoint,
        parse_size(chosen.size),
        chosen.tokens,
        chosen.batch,
        chosen.repeat,
        chosen.nvtx_only,
        chosen.pages,
    )
    with cancelled_by_interrupt() as cancel:
        measured = bench(plan, cancel)
    document = measured.document()
    if not chosen.json:
        if not console.is_terminal:
            console.width = BENCH_COLUMNS
        measured.print(console)
    if chosen.save:
        document["saved"] = save(plan, measured, _as_typed(arguments), place_of(settings))
    print(json.dumps(document, ensure_ascii=False))
    return OK


def _as_typed(arguments: Sequence[str] | None) -> str:
    """The command line that makes the run again."""
    return shlex.join(["python", "-m", "dsocr_core", *(sys.argv[1:] if arguments is None else arguments)])


def _pages(
    command: str,
    settings: Settings,
    chosen: Namespace,
    console: Console,
    arguments: Sequence[str] | None,
) -> int:
    """`run` and `compare`: pages in, a table or one JSON document out."""
    # Heavy imports come after the command line is known to be good.
    from dsocr_core.batch import Progress, process, run_directory
    from dsocr_core.engine.stage_timer import Marks
    from dsocr_core.pipeline import Pipeline

    if chosen.save and not settings.history:
        raise SettingsError("--save has nowhere to save to: give --history a path or a URL")
    typed = _as_typed(arguments)
    saved = SavedRun(settings, typed) if chosen.save else None
    if command == "compare" and settings.attention_note:
        log.warning("%s", settings.attention_note)
    batch = getattr(chosen, "batch", None)
    if batch is not None and batch < 1:
        raise SettingsError(f"batch is {batch}: give a positive integer")
    if batch is not None and batch > 1 and settings.engine != "fast":
        raise SettingsError(f"engine {settings.engine} reads pages one by one: give --engine fast")
    resume, nvtx_only = getattr(chosen, "resume", None), getattr(chosen, "nvtx_only", False)
    if resume and chosen.out:
        raise DsocrError("--resume names the run directory to go on with: leave --out out")
    directory = Path(resume or chosen.out or run_directory(command))
    try:
        with (
            closing(Pipeline(settings, marks=Marks.RANGES if nvtx_only else Marks.TIMED)) as pipeline,
            Progress(Console(stderr=True)) as progress,
            cancelled_by_interrupt() as cancel,
            saved or nullcontext(),
        ):
            report = process(
                pipeline,
                [Path(image) for image in chosen.images],
                roads=("ours", "vendor") if command == "compare" else ("ours",),
                pages=chosen.pages,
                directory=directory,
                progress=progress,
                cancel=cancel,
                resume=resume is not None,
                spans=getattr(chosen, "spans", 0),
                saved=saved,
                batch=batch,
                command=typed,
            )
    except Cancelled:
        raise Cancelled(_what_is_left(command, directory, saved)) from None
    if chosen.json:
        report.write_json(sys.stdout)
    else:
        report.print(console)
        console.print(f"written to {directory}", markup=False)
        if saved is not None and saved.id:
            console.print(f"saved as run {saved.id}", markup=False)
    return FAILED if report.failed else OK


def _what_is_left(command: str, directory: Path, saved: SavedRun | None) -> str:
    """What a cancelled run left, and how to go on."""
    words = ["cancelled"]
    if saved is not None and saved.id:
        words.append(f"what was finished is saved as run {saved.id}")
    if directory.is_dir():
        words.append(f"go on with --resume {directory}" if command == "run" else f"it is in {directory}")
    return "; ".join(words)


def _error(console: Console, message: str) -> None:
    console.print("[bold red]error:[/] ", end="")
    console.print(" ".join(message.split()), markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
