"""The command line: `python -m analytic_model report|verify`.

Exit codes: 0 all well, 1 a gap above the tolerance, 2 bad usage. `--json` prints one JSON document and
nothing else on stdout; errors go to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from analytic_model import report
from analytic_model.hardware import HARDWARE, hardware_named
from analytic_model.policy import Attention, Causal, Dtype, LmHead, Policy
from analytic_model.predict import predict
from analytic_model.workload import Workload
from dsocr_core.config import load_config
from dsocr_core.errors import DsocrError

OK, BAD_USAGE = 0, 2


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="analytic_model", description="What a page costs: FLOPs, bytes and time bounds by arithmetic."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_report(commands.add_parser("report", help="print the cost of one page's stages"))
    # Its options are its own: importing it brings torch.
    commands.add_parser("verify", help="compare with torch's FLOP counter", add_help=False)
    return parser


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, required=True, help="config.json or the directory of one")
    parser.add_argument("--width", type=int, required=True, help="of the page in pixels")
    parser.add_argument("--height", type=int, required=True, help="of the page in pixels")
    parser.add_argument("--preset", default="gundam", help="tiny, small, base, large or gundam")
    parser.add_argument(
        "--prompt-tokens", type=int, default=10, help="text tokens of the prompt, bos included"
    )
    parser.add_argument("--decode-tokens", type=int, default=1, help="new tokens")
    parser.add_argument("--batch", type=int, default=1, help="pages of this shape side by side")
    parser.add_argument("--hardware", default="h200", help=", ".join(HARDWARE))
    parser.add_argument("--attention", choices=get_args(Attention), default="sdpa", help="the decoder's")
    parser.add_argument("--dtype", choices=get_args(Dtype), default="bfloat16")
    parser.add_argument(
        "--causal", choices=get_args(Causal), default="full", help="prefill attention counted"
    )
    parser.add_argument("--lm-head", choices=get_args(LmHead), default="last", help="prefill logits")
    parser.add_argument(
        "--no-window-padding", action="store_true", help="leave out the zeros in SAM's last windows"
    )
    parser.add_argument(
        "--count-unsupported", action="store_true", help="count cores that torch's counter does not see"
    )
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
        print(_report(options))
    except DsocrError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_USAGE
    return OK


def _report(options: argparse.Namespace) -> str:
    config = load_config(options.config)
    workload = Workload.from_image(
        options.width,
        options.height,
        options.preset,
        options.prompt_tokens,
        options.decode_tokens,
        options.batch,
    )
    policy = Policy(
        ignore_torch_unsupported_flops=not options.count_unsupported,
        causal=options.causal,
        lm_head=options.lm_head,
        attention=options.attention,
        dtype=options.dtype,
        vision_window_padding=not options.no_window_padding,
    )
    hardware = hardware_named(options.hardware)
    hardware.peak_flops(policy.dtype)  # a device without a figure for it is refused before anything
    prediction = predict(config, workload, policy)
    if options.json:
        return json.dumps(report.as_json(config, prediction, hardware), indent=2)
    return report.as_text(config, prediction, hardware)


if __name__ == "__main__":
    sys.exit(main())
