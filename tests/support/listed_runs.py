"""A small history with every kind of run in it, for the tests of its pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsocr_core.runs.history import History
from tests.support.made_up_runs import HOSTILE, record, timing

COMMITS = ("1f0c" * 10, "9e3d" * 10)
SETTINGS = {
    "checkpoint": "data/mini", "preset": "small", "prompt": "markdown", "engine": "eager", "dtype": "auto",
    "infer": {"max_new_tokens": 8192, "no_repeat_ngram_size": 20}, "pdf_dpi": 150,
}  # fmt: skip
EAGER, FAST, PROFILED, STRANGE, IMPORTED = (
    "20261103-080000-aaaaaaaa", "20261110-091500-bbbbbbbb", "20261112-101500-cccccccc",
    "20261115-120000-dddddddd", "nsys-0123456789abcdef01234567",
)  # fmt: skip
"""The runs; in this order of time but for the last, which comes first."""


def make(location: Path) -> History:
    history = History(location)
    add(history, EAGER, "2026-11-03T08:00:00+00:00", command="python -m dsocr_core run 'a b.png'", pages=3)
    fast = {"engine": "fast", "preset": "gundam", "infer": {"max_new_tokens": 64, "no_repeat_ngram_size": 20}}
    add(
        history, FAST, "2026-11-10T09:15:00+00:00", backends=("fast", "vendor"), engine="fast",
        device="cuda:0", gpu="NVIDIA H200", host="gpu-box", dtype="bfloat16", preset="gundam",
        git_commit=COMMITS[1], git_dirty=True,
        versions={"python": "3.11.9", "torch": "2.11.0", "triton": "3.5.0"}, settings=SETTINGS | fast,
        notes="after the fused kernels", pages=4,
    )  # fmt: skip
    add(history, PROFILED, "2026-11-12T10:15:00+00:00", profiled=True, pages=1)
    add(history, STRANGE, "2026-11-15T12:00:00+00:00", host=HOSTILE[3], notes=HOSTILE[3], command=HOSTILE[2],
        git_commit=HOSTILE[-4], environment={HOSTILE[3]: HOSTILE[-4], "long": HOSTILE[6]}, pages=2,
        failed=1)  # fmt: skip
    history.note(STRANGE, "\n".join(HOSTILE))
    for text in HOSTILE[:6]:
        history.tag(STRANGE, text)
    history.tag(EAGER, "baseline")
    unknown = dict.fromkeys(("engine", "device", "host", "dtype", "preset", "attention", "git_commit"))
    nothing: dict[str, Any] = {"settings": {}, "versions": {}, "environment": {}, "backends": ()}
    add(history, IMPORTED, "2025-11-02T10:00:00+00:00", source="nsys", profiled=True, git_dirty=None, pages=0,
        **unknown, **nothing)  # fmt: skip
    return history


def add(history: History, run_id: str, created: str, pages: int, failed: int = 0, **changes: Any) -> None:
    """Write one run of `pages` pages on each backend into the history, and take it in."""
    values: dict[str, Any] = {
        "device": "cpu", "host": "desk", "dtype": "float32", "attention": "sdpa", "preset": "small",
        "git_commit": COMMITS[0], "git_dirty": False, "settings": SETTINGS,
        "versions": {"python": "3.11.9", "torch": "2.13.0"}, "environment": {"platform": "Linux"},
    }  # fmt: skip
    made = record(run_id, created=created, **values | changes)
    with history.writer(made) as run:
        for backend in made.backends:
            for page in range(pages - failed):
                name = f"page-{page}.png"
                run.add_rows("readings", [{"page": name, "path": f"scans/{name}", "backend": backend,
                                           "text_raw": "text", "new_tokens": 100 + page,
                                           "sha256": f"{page:064x}"}])  # fmt: skip
                run.add_rows("timings", [
                    timing(name, stage, ms + page, backend=backend)
                    for stage, ms in (("prefill", 100.0), ("decode", 900.0))
                ])  # fmt: skip
            bad = [
                {"page": f"bad-{n}.png", "backend": backend, "error": "not an image"} for n in range(failed)
            ]
            run.add_rows("readings", bad)
        if "vendor" in made.backends:
            verdicts = ["identical" if page else "differs" for page in range(pages)]
            rows = [{"page": f"page-{n}.png", "verdict": verdict} for n, verdict in enumerate(verdicts)]
            run.add_rows("parity", rows)
    history.refresh()
