"""The command line: `python -m analytic_model report|sweep|require|verify`.

Exit codes: 0 all well, 1 a gap above the tolerance, 2 bad usage. `--json` prints one JSON document and
nothing else on stdout; errors go to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from analytic_model import report
from analytic_model.hardware import HARDWARE, hardware_named
from analytic_model.policy import Attention, Causal, Dtype, LmHead, Policy
from analytic_model.predict import predict
from analytic_model.requirements import TARGETS, requirements
from analytic_model.sweep import AXES, ENGINES, QUANTITIES, QUANTITY_WORDS, as_rows, spread, sweep, tiled
from analytic_model.workload import Workload
from dsocr_core.config import load_config
from dsocr_core.errors import DsocrError

OK, BAD_USAGE = 0, 2
A4 = (1654, 2339)
"""Pixels at 200 dpi."""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="analytic_model", description="What a page costs: FLOPs, bytes and time bounds by arithmetic."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_report(commands.add_parser("report", help="print the cost of one page's stages"))
    _add_sweep(commands.add_parser("sweep", help="a quantity over an axis, stage by stage, as CSV"))
    _add_require(commands.add_parser("require", help="what a target takes, and which devices reach it"))
    # Its options are its own: importing it brings torch.
    commands.add_parser("verify", help="compare with torch's FLOP counter", add_help=False)
    return parser


def _add_page(parser: argparse.ArgumentParser, size: tuple[int, int] | None, tokens: int) -> None:
    """The model, the page and its tokens. Without a `size` the page's has to be given."""
    parser.add_argument("--config", type=Path, required=True, help="config.json or the directory of one")
    width, height = size or (None, None)
    needed = size is None
    parser.add_argument("--width", type=int, required=needed, default=width, help="of the page in pixels")
    parser.add_argument("--height", type=int, required=needed, default=height, help="of the page in pixels")
    parser.add_argument("--preset", default="gundam", help="tiny, small, base, large or gundam")
    parser.add_argument(
        "--prompt-tokens", type=int, default=10, help="text tokens of the prompt, bos included"
    )
    parser.add_argument("--decode-tokens", type=int, default=tokens, help="new tokens")
    parser.add_argument("--batch", type=int, default=1, help="pages of this shape side by side")
    parser.add_argument("--dtype", choices=get_args(Dtype), default="bfloat16", help="number type")
    parser.add_argument(
        "--causal", choices=get_args(Causal), default="full", help="prefill attention counted"
    )
    parser.add_argument("--lm-head", choices=get_args(LmHead), default="last", help="prefill logits")
    parser.add_argument(
        "--no-window-padding", action="store_true", help="leave out the zeros in SAM's last windows"
    )


def _add_report(parser: argparse.ArgumentParser) -> None:
    _add_page(parser, None, tokens=1)
    parser.add_argument("--hardware", default="h200", help=", ".join(HARDWARE))
    parser.add_argument("--attention", choices=get_args(Attention), default="sdpa", help="the decoder's")
    parser.add_argument(
        "--count-unsupported", action="store_true", help="count cores that torch's counter does not see"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    _add_page(parser, A4, tokens=100)
    parser.add_argument("--axis", choices=AXES, required=True, help="what grows from point to point")
    parser.add_argument("--quantity", choices=QUANTITIES, required=True, help=_quantities())
    parser.add_argument(
        "--engine", choices=ENGINES, nargs="+", default=list(ENGINES), help="attention of the decoder"
    )
    parser.add_argument("--from", dest="first", type=int, default=1, help="the axis's first value")
    parser.add_argument("--to", dest="last", type=int, default=1000, help="the axis's last value")
    parser.add_argument("--points", type=int, default=100, help="evenly spread over the range")
    parser.add_argument("--hardware", default="h200", help="for --quantity time: " + ", ".join(HARDWARE))


def _quantities() -> str:
    return "; ".join(f"{name}: {words}" for name, words in QUANTITY_WORDS.items())


def _add_require(parser: argparse.ArgumentParser) -> None:
    _add_page(parser, A4, tokens=500)
    parser.add_argument("--tiles", type=int, nargs=2, metavar=("COLUMNS", "ROWS"), help="in place of a size")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--ttft", type=float, metavar="MS", help="time to first token, vision and prefill")
    target.add_argument("--tpot", type=float, metavar="MS", help="time per output token of every page")
    target.add_argument("--pages", type=float, metavar="PER_S", help="pages a second, all stages")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = build_parser()
    options, rest = parser.parse_known_args(arguments)
    if options.command == "verify":
        from analytic_model import verify

        return verify.main(rest)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        print(_COMMANDS[options.command](options))
    except DsocrError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_USAGE
    return OK


def _workload(options: argparse.Namespace) -> Workload:
    return Workload.from_image(
        options.width,
        options.height,
        options.preset,
        options.prompt_tokens,
        options.decode_tokens,
        options.batch,
    )


def _policy(options: argparse.Namespace) -> Policy:
    return Policy(
        causal=options.causal,
        lm_head=options.lm_head,
        dtype=options.dtype,
        vision_window_padding=not options.no_window_padding,
    )


def _report(options: argparse.Namespace) -> str:
    config = load_config(options.config)
    workload = _workload(options)
    policy = replace(
        _policy(options),
        ignore_torch_unsupported_flops=not options.count_unsupported,
        attention=options.attention,
    )
    hardware = hardware_named(options.hardware)
    hardware.peak_flops(policy.dtype)  # a device without a figure for it is refused before anything
    prediction = predict(config, workload, policy)
    if options.json:
        return json.dumps(report.as_json(config, prediction, hardware), indent=2)
    return report.as_text(config, prediction, hardware)


def _sweep(options: argparse.Namespace) -> str:
    values = spread(options.first, options.last, options.points)
    hardware = hardware_named(options.hardware)
    config, policy = load_config(options.config), _policy(options)
    points = sweep(
        config, _workload(options), options.axis, values, options.quantity, options.engine, hardware, policy
    )
    return report.as_csv(as_rows(points, options.axis, options.quantity))


def _require(options: argparse.Namespace) -> str:
    workload = _workload(options)
    if options.tiles is not None:
        workload = tiled(workload, tuple(options.tiles), options.preset)
    target, value = next(
        (name, float(given)) for name in TARGETS if (given := getattr(options, name)) is not None
    )
    needed = requirements(load_config(options.config), workload, target, value, _policy(options))
    if options.json:
        return json.dumps(report.requirements_json(workload, needed), indent=2)
    return report.requirements_text(workload, needed)


_COMMANDS = {"report": _report, "sweep": _sweep, "require": _require}

if __name__ == "__main__":
    sys.exit(main())
