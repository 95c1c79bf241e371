"""`status`: how far a run over many pages is, from any machine that sees its output."""

from __future__ import annotations

from rich.console import Console

from dsocr_core.base.console import OK, print_json
from dsocr_core.base.words import duration


def status(directory: str, *, json: bool = False, console: Console) -> int:
    """Say how far a run over a cluster is, from its output.

    Args:
        directory: its --out: a directory or a URL
    """
    from dsocr_core.cluster.output import Output
    from dsocr_core.cluster.progress import worker_table
    from dsocr_core.cluster.status import StatusReader, causes_words

    reader = StatusReader(Output(directory))
    state, figures = reader.read(), reader.figures
    if json:
        print_json(state.to_json())
        return OK
    words = f"{state.done:,} of {state.pages:,} pages read"
    if state.pages_per_s:
        words += f", {state.pages_per_s:.3g} pages/s"
        if not state.complete:
            words += f", {duration(1e3 * state.left / state.pages_per_s)} left at that speed"
    console.print(words, markup=False)
    if figures.causes:
        failed = f"{state.failed:,} failed, {state.quarantined:,} quarantined"
        console.print(f"{failed}: {causes_words(figures.causes)}", markup=False)
    if figures.workers:
        console.print(worker_table(figures))
    console.print("complete" if state.complete else "not complete", markup=False)
    return OK
