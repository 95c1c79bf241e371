"""`measure NAME`: every measurement but `bench`; the modules of `measure/` say what each does.

Each is the function `run` of its module, which is imported when it is named: torch and all.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from dsocr_core.cli.options import Command

MEASUREMENTS: Mapping[str, str] = {
    "decode-step": "Time the fast engine's decode step on random weights, on a GPU",
    "batch-step": "Time the decode step of a batch on random weights, on a GPU",
    "prefill": "Time and check vision and prefill of both engines on random weights, on a GPU",
    "ties": "Measure how far rounding moves logits, and what recording them costs",
    "drafts": "Print what drafts would give on pages, and how neighbouring tokens share experts",
    "drafted": "Time decoding with drafts, one page and a batch, on a GPU, or draw what was timed",
    "host-path": "Time what the host does of a page: opening, resizing, hashes",
    "timeline": "Show one page as a timeline: stages, the device's work, and each gap by its name",
    "fast-parity": "Compare the fast engine with the eager one, fed its tokens and free",
    "ladder": "Compare precisions on pages: text, agreement, bytes, and speed where it is real",
    "kernels": "Profile the kernels of a stage with Nsight Compute, into the history",
    "soak": "Read many pages and watch whether memory stays flat",
    "floor": "Compare recorded benches with the least time of each stage: CSV, and a picture",
}


def measurement(name: str) -> Command:
    """The measurement of that name."""
    command: Command = import_module(f"dsocr_core.measure.{name.replace('-', '_')}").run
    return command
