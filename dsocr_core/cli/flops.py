"""`flops NAME`: report, against, sweep, require, verify: what a page costs by arithmetic."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from analytic_model import report
from analytic_model.hardware import HARDWARE, hardware_named
from analytic_model.policy import Attention, Causal, Dtype, LmHead, Policy
from analytic_model.predict import predict
from analytic_model.requirements import TARGETS, requirements
from analytic_model.sweep import AXES, ENGINES, QUANTITIES, QUANTITY_WORDS, as_rows, spread, sweep, tiled
from analytic_model.workload import Workload
from dsocr_core.cli.options import add_json, add_subcommand
from dsocr_core.console import FAILED, OK, print_json, titled_table
from dsocr_core.errors import DsocrError
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.family import load_config
from dsocr_core.outside.visible import visible
from dsocr_core.settings import Settings, history_location
from dsocr_core.words import amount, percent

if TYPE_CHECKING:
    from analytic_model.verify import Verification

A4 = (1654, 2339)
"""Pixels at 200 dpi."""
SHOWN = 10
"""Rows over the tolerance that are printed, the worst first; --json has them all."""


def add(commands: Any) -> None:
    parser = add_subcommand(commands, "flops", "Predict what a page costs: FLOPs, bytes and time bounds.")
    below = parser.add_subcommands(dest="name", metavar="NAME")
    _add_report(add_subcommand(below, "report", "Print the cost of one page, stage by stage."))
    _add_against(add_subcommand(below, "against", "Set the times of a recorded page against their bounds."))
    _add_sweep(add_subcommand(below, "sweep", "Print a quantity over an axis, stage by stage, as CSV."))
    _add_require(add_subcommand(below, "require", "Say what a target takes, and which devices reach it."))
    _add_verify(
        add_subcommand(below, "verify", "Compare predicted FLOPs with what torch counts; exits 1 on a gap.")
    )


def run(chosen: Namespace, console: Console, typed: str) -> int:
    if not console.is_terminal:
        console.width = 110
    return _COMMANDS[chosen.name](chosen[chosen.name], console)


# --- options ------------------------------------------------------------------------------------


def _add_page(parser: ArgumentParser, tokens: int) -> None:
    """The model, the page and its tokens."""
    parser.add_argument("--config", type=str, required=True, help="config.json or the directory of one")
    parser.add_argument("--width", type=int, default=A4[0], help="of the page in pixels")
    parser.add_argument("--height", type=int, default=A4[1], help="of the page in pixels")
    parser.add_argument("--preset", type=str, default="gundam", help=", ".join(PRESETS))
    parser.add_argument(
        "--prompt-tokens", type=int, default=10, help="text tokens of the prompt, bos included"
    )
    parser.add_argument("--decode-tokens", type=int, default=tokens, help="new tokens")
    parser.add_argument("--batch", type=int, default=1, help="pages of this shape side by side")
    for name, choices, default, words in (
        ("dtype", Dtype, "bfloat16", "number type"),
        ("causal", Causal, "full", "prefill attention that is counted"),
        ("lm-head", LmHead, "last", "prefill positions that get logits"),
    ):
        parser.add_argument(f"--{name}", choices=get_args(choices), default=default, help=words)
    parser.add_argument(
        "--no-window-padding", action="store_true", help="leave out the zeros in SAM's last windows"
    )


def _add_report(parser: ArgumentParser) -> None:
    _add_page(parser, tokens=1)
    parser.add_argument("--hardware", type=str, default="h200", help=", ".join(HARDWARE))
    parser.add_argument("--attention", choices=get_args(Attention), default="sdpa", help="the decoder's")
    parser.add_argument(
        "--count-unsupported", action="store_true", help="count cores that torch's counter does not see"
    )
    add_json(parser)


def _add_against(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="id of a run of the history")
    parser.add_argument(
        "--page", type=str, default="", help="one of its pages (default: that of median time)"
    )
    parser.add_argument("--backend", type=str, default="", help="one of its backends (default: the first)")
    devices = "of the bounds (default: the run's own): " + ", ".join(HARDWARE)
    parser.add_argument("--hardware", type=str, default="", help=devices)
    where = "where runs are: a path, relative to the project, or a URL (default: data/runs/history)"
    parser.add_argument("--history", type=str, default=None, metavar="WHERE", help=where)
    add_json(parser)


def _add_sweep(parser: ArgumentParser) -> None:
    _add_page(parser, tokens=100)
    quantities = "; ".join(f"{name}: {words}" for name, words in QUANTITY_WORDS.items())
    parser.add_argument("--axis", choices=AXES, required=True, help="what grows from point to point")
    parser.add_argument("--quantity", choices=QUANTITIES, required=True, help=quantities)
    parser.add_argument(
        "--engine", choices=ENGINES, nargs="+", default=list(ENGINES), help="attention of the decoder"
    )
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first value on the axis")
    parser.add_argument("--to", dest="last", type=int, default=1000, help="the last value on the axis")
    parser.add_argument("--points", type=int, default=100, help="evenly spread over the range")
    parser.add_argument(
        "--hardware", type=str, default="h200", help="for --quantity time: " + ", ".join(HARDWARE)
    )


def _add_require(parser: ArgumentParser) -> None:
    _add_page(parser, tokens=500)
    parser.add_argument(
        "--tiles", type=int, nargs=2, default=None, metavar=("COLUMNS", "ROWS"), help="in place of a size"
    )
    for name, metavar, words in (
        ("ttft", "MS", "time to first token, vision and prefill"),
        ("tpot", "MS", "time per output token of every page"),
        ("pages", "PER_S", "pages a second, all stages"),
    ):
        parser.add_argument(f"--{name}", type=float, default=None, metavar=metavar, help=words)
    add_json(parser)


def _add_verify(parser: ArgumentParser) -> None:
    configs = "config.json files (default: embedded, published)"
    parser.add_argument("--config", type=str, nargs="+", default=[], metavar="PATH", help=configs)
    parser.add_argument("--preset", type=str, nargs="+", default=list(PRESETS), help="presets (default: all)")
    parser.add_argument(
        "--tolerance", type=float, default=0.0, help="accepted relative gap, from 0 to below 1"
    )
    parser.add_argument("--quick", action="store_true", help="compare a small table")
    parser.add_argument(
        "--device", type=str, default="", help="also run every config for real there, such as cuda"
    )
    parser.add_argument(
        "--vendor-checkpoint", type=str, default=None, metavar="DIR", help="also count its own modules"
    )
    parser.add_argument("--trust-remote-code", action="store_true", help="let that directory's code run")
    add_json(parser)


# --- commands -----------------------------------------------------------------------------------


def _workload(options: Namespace) -> Workload:
    return Workload.from_image(
        options.width, options.height, options.preset, options.prompt_tokens, options.decode_tokens,
        options.batch,
    )  # fmt: skip


def _policy(options: Namespace) -> Policy:
    return Policy(
        causal=options.causal,
        lm_head=options.lm_head,
        dtype=options.dtype,
        vision_window_padding=not options.no_window_padding,
    )


def _report(options: Namespace, console: Console) -> int:
    config, workload = load_config(Path(options.config)), _workload(options)
    policy = replace(
        _policy(options),
        ignore_torch_unsupported_flops=not options.count_unsupported,
        attention=options.attention,
    )
    hardware = hardware_named(options.hardware)
    hardware.peak_flops(policy.dtype)  # a device without a figure for it is refused before anything
    prediction = predict(config, workload, policy)
    if options.json:
        print_json(report.as_json(config, prediction, hardware))
    else:
        print(report.as_text(config, prediction, hardware))
    return OK


def _against(options: Namespace, console: Console) -> int:
    from analytic_model import frames
    from analytic_model.recorded import hardware_key, pages_of, reading, usual_page
    from dsocr_core.history.store import SEED_LOCATION, History

    settings = Settings(history=options.history) if options.history else Settings()
    with History(history_location(settings), also=[SEED_LOCATION]) as history:
        if options.run not in history.run_ids():
            raise DsocrError(f"run {options.run} is not in this history: see dsocr history list")
        pages = pages_of(history, options.run)
        page = options.page or usual_page(history, options.run, sorted(pages["page"].unique()))
        backend = options.backend or sorted(pages["backend"].unique())[0]
        read = reading(history, pages, options.run, page, backend)
    policy = Policy(attention=read.attention, dtype=read.dtype)  # type: ignore[arg-type]
    key = options.hardware or hardware_key(read.recorded.device)
    prediction = predict(load_config(read.config_path), read.workload, policy)
    times = frames.times(prediction, hardware_named(key) if key else None, read.recorded.times)
    if options.json:
        rows = json.loads(times.to_json(orient="records"))
        print_json({"run": options.run, "page": page, "backend": backend, "hardware": key, "stages": rows})
        return OK
    device = read.recorded.device
    bounds = hardware_named(key).name if key else "no device that is known"
    title = f"{visible(page)} by {visible(backend)} on {visible(device)} (n = 1), bounds of {bounds}"
    columns = {
        "measured_s": ("Recorded", "s"), "bound_s": ("Least time", "s"), "flops": ("FLOPs", "FLOP"),
        "bytes": ("Traffic", "B"), "flops_per_s": ("Speed", "FLOP/s"), "mfu": ("Of peak", "%"),
        "bandwidth_share": ("Of bandwidth", "%"),
    }  # fmt: skip
    there = {name: head for name, head in columns.items() if times[name].notna().any()}
    table = titled_table(title, "Stage", *(head for head, _ in there.values()))
    for row in times.to_dict("records"):
        cells = (
            percent(100 * row[name]) if unit == "%" else amount(row[name], unit)
            for name, (_, unit) in there.items()
        )
        table.add_row(row["stage"], *cells)
    console.print(table)
    return OK


def _sweep(options: Namespace, console: Console) -> int:
    values = spread(options.first, options.last, options.points)
    points = sweep(
        load_config(Path(options.config)), _workload(options), options.axis, values, options.quantity,
        options.engine, hardware_named(options.hardware), _policy(options),
    )  # fmt: skip
    print(report.as_csv(as_rows(points, options.axis, options.quantity)))
    return OK


def _require(options: Namespace, console: Console) -> int:
    given = {name: getattr(options, name) for name in TARGETS if getattr(options, name) is not None}
    if len(given) != 1:
        raise DsocrError("flops require: give one target: --ttft MS, --tpot MS or --pages PER_S")
    ((target, value),) = given.items()
    workload = _workload(options)
    if options.tiles is not None:
        workload = tiled(workload, tuple(options.tiles), options.preset)
    needed = requirements(load_config(Path(options.config)), workload, target, value, _policy(options))
    if options.json:
        print_json(report.requirements_json(workload, needed))
    else:
        print(report.requirements_text(workload, needed))
    return OK


def _verify(options: Namespace, console: Console) -> int:
    if not 0 <= options.tolerance < 1:
        raise DsocrError(f"--tolerance {options.tolerance}: expected a number from 0 to below 1")
    from analytic_model import verify
    from analytic_model.measure import VendorMeter

    vendor = options.vendor_checkpoint
    work = verify.verify(
        [Path(config) for config in options.config], options.preset, options.quick, options.device,
        VendorMeter(Path(vendor), options.trust_remote_code) if vendor else None,
    )  # fmt: skip
    over = sorted((row for row in work.rows if row.gap > options.tolerance), key=lambda row: -row.gap)
    if options.json:
        rows = [row.document() for row in work.rows]
        print_json({"tolerance": options.tolerance, "ok": not over, "rows": rows, "notes": work.notes})
    else:
        _print_verification(work, console)
        console.print(
            f"{len(work.rows):,} comparisons, {len(over):,} over the tolerance of {options.tolerance:g}"
        )
        for row in over[:SHOWN]:
            where = f"{row.config}, {row.run}, {row.case}: {row.stage}, {row.operator}"
            console.print(f"  {where}: {row.analytic:,} against {row.measured:,} measured", markup=False)
    return FAILED if over else OK


def _print_verification(work: Verification, console: Console) -> None:
    """The worst comparison of each config, stage and operator, or the largest where all agree."""
    title = "FLOPs (and parameters) of the worst comparison, or of the largest where all agree"
    table = titled_table(title, "Config", "Stage", "Operator", "Rows", "Analytic", "Measured", "Gap")
    for group in work.grouped():
        row = max(group, key=lambda row: (row.gap, row.measured))
        table.add_row(
            row.config, row.stage, row.operator, f"{len(group)}", f"{row.analytic:,}", f"{row.measured:,}",
            f"{row.gap:.2g}",
        )  # fmt: skip
    console.print(table)
    for note in work.notes:
        console.print(note, markup=False)


_COMMANDS = {"report": _report, "against": _against, "sweep": _sweep, "require": _require, "verify": _verify}
