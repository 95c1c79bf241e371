"""The parser of the command line: every subcommand and its options."""

from __future__ import annotations

from jsonargparse import ArgumentParser

from dsocr_core.cli.compare_runs import add_review_arguments
from dsocr_core.cli.history import add_history_commands, history_parser
from dsocr_core.settings import EngineName, Settings

NVTX_ONLY = "mark the stages for a profiler and measure nothing: no events, no clocks, no synchronisation"


def build_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="dsocr_core", description="Read pages with DeepSeek-OCR and compare both backends."
    )
    commands = parser.add_subcommands(dest="command", metavar="COMMAND")
    run = _page_parser("Read pages with our engine; write artifacts and timings.")
    run.add_argument("--resume", type=str, default=None, metavar="DIR",
                     help="go on with that run directory: skip what is done there")  # fmt: skip
    run.add_argument("--nvtx-only", action="store_true", help=NVTX_ONLY)
    together = "pages that the fast engine reads together (default: all, up to 256); 1 is one by one"
    run.add_argument("--batch", type=int, default=None, metavar="N", help=together)
    commands.add_subcommand("run", run)
    compare = _page_parser(
        "Read pages with both backends and report their parity: compare IMAGE ... Or what is recorded, "
        "without a model: compare RUN (its two backends) or compare A_RUN B_RUN, each an id or a "
        "run's directory.",
        "images, folders or PDF files; or one or two recorded runs",
    )
    compare.add_argument(
        "--spans", type=int, default=3, help="how many spans of each backend the table shows"
    )
    add_review_arguments(compare)
    commands.add_subcommand("compare", compare)
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
    vendor = "measure the vendor backend on this directory too; its code must be allowed"
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
