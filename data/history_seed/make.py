"""The runs that come with the project: what a newcomer finds in the history, all of it measured.

`python -m data.history_seed.make [ZIP...]`, on a machine that does nothing else, after a change of the
embedded checkpoint, of a backend or of a sample. It reads every sample with both backends, once for each of
our attentions, and the first few once more with our engine under each of `VARIANTS`. Runs of a GPU stay as
they are; further ones come as zips of `history export` from the machine that made them with `--save`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from analytic_model import PUBLISHED
from analytic_model.counted import count_run
from data.samples.record import compared, portable
from dsocr_core.backends.backend import Opening
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT, PROJECT_ROOT
from dsocr_core.engine.threads import wait_politely
from dsocr_core.models.family import read_config
from dsocr_core.page.documents import expand
from dsocr_core.read.session import Session
from dsocr_core.reading.parity import Comparison
from dsocr_core.runs.export import export_runs
from dsocr_core.runs.history import EXAMPLE, SEED_LOCATION, History
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.record import record_run
from dsocr_core.runs.results import PageResults, parity_row
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.settings import Attention, InferSettings, Settings

SAMPLES = Path("data/samples")
ATTENTIONS: tuple[Attention, ...] = ("sdpa", "eager")
VARIANTS: tuple[tuple[tuple[str, ...], Settings, str], ...] = (
    (("--preset=tiny",), Settings(preset="tiny"), "the smallest preset: set it against the run with Small"),
    (
        ("--infer.max-new-tokens=120",),
        Settings(infer=InferSettings(max_new_tokens=120)),
        "a length limit that most pages meet",
    ),
    (
        ("--infer.no-repeat-ngram-size=6",),
        Settings(infer=InferSettings(no_repeat_ngram_size=6)),
        "another n-gram rule than the published code's",
    ),
)
"""Options, what they mean and a note: pages that differ from the other runs' for a known reason."""
VARIANT_PAGES = 3
"""Samples of a variant, from the first: three are enough to be set against a run of all."""
MOST_BYTES = 6_000_000
"""All files together: they lie in git. Pictures are left out, the samples are there."""


def main(files: Sequence[str] = (), target: Path = SEED_LOCATION) -> None:
    """Make the runs and replace the earlier ones. `files` are zips of runs to take along.

    Raises DsocrError when a page fails or is not identical.
    """
    zips = [Path(file).resolve() for file in files]
    wait_politely()
    os.chdir(PROJECT_ROOT)  # paths in the records are the same on every machine
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=target) as folder:
        staging = Path(folder)
        _record(staging)
        with History(staging) as history:
            zips += _of_a_gpu(target, staging)
            left_out = import_paths(history, zips).skipped
            for run_id in history.run_ids():
                history.tag(run_id, EXAMPLE)
                settings = history.record(run_id).settings
                if settings and len(history.rows(run_id, "readings", columns=["page"])):
                    checkpoint = str(settings.get("checkpoint"))
                    known = PUBLISHED if "published" in checkpoint else EMBEDDED_CHECKPOINT
                    count_run(history, run_id, read_config(known)[0])
            runs = len(history)
        if left_out:
            raise DsocrError(f"{left_out[0].path}: {left_out[0].reason}")
        size = sum(file.stat().st_size for file in (staging / "runs").rglob("*") if file.is_file())
        if size > MOST_BYTES:
            raise DsocrError(f"the runs have {size:,} bytes, more than {MOST_BYTES:,}: take fewer along")
        for part in ("runs", "annotations"):
            shutil.rmtree(target / part, ignore_errors=True)
            (staging / part).replace(target / part)
        print(f"{target}: {runs} runs, {size:,} bytes")


def _of_a_gpu(target: Path, staging: Path) -> list[Path]:
    """The runs of a GPU that are there already, as a file to import; none where there are none."""
    with History(target) as history:
        runs = history.runs()
        run_ids = runs.loc[runs["gpu"].notna(), "run_id"].tolist()
        if run_ids:
            export_runs(history, run_ids, staging / "gpu.zip")
    return [staging / "gpu.zip"] if run_ids else []


def _record(root: Path) -> None:
    """On the CPU: both backends for each attention, and our engine under each variant. Raises DsocrError."""
    checkpoint = str(EMBEDDED_CHECKPOINT.relative_to(PROJECT_ROOT))
    pages = expand([SAMPLES])
    with ExitStack() as stack:

        def opened(settings: Settings) -> Session:
            settings = replace(settings, checkpoint=checkpoint, device="cpu")
            return stack.enter_context(closing(Session(settings, Opening(root / "unused"))))

        sessions = [opened(Settings(attention=attention)) for attention in ATTENTIONS]
        for session in sessions:  # warms both backends up
            compared(session, pages[0])
        # Page by page in turn: other load of the machine affects all runs alike.
        read = [[compared(session, page) for session in sessions] for page in pages]
        for one, comparisons in zip(sessions, zip(*read, strict=True), strict=True):
            options = [f"--attention={one.settings.attention}"]
            _write(root, one.settings, "compare", options, comparisons)
        for words, changed, note in VARIANTS:
            one, few = opened(changed), pages[:VARIANT_PAGES]
            alone = [one.compare(one.settings.request(page.path, page.source), ("a",)) for page in few]
            _write(root, one.settings, "run", words, alone, note)


def _write(
    root: Path,
    settings: Settings,
    command: str,
    words: Sequence[str],
    comparisons: Sequence[Comparison],
    note: str | None = None,
) -> None:
    """A run of the history, as that command with `--save` leaves it. Raises DsocrError."""
    for comparison in comparisons:
        if comparison.errors:
            raise DsocrError(f"{comparison.request.name}: {next(iter(comparison.errors.values()))}")
    results = [portable(result) for pair in comparisons for result in (pair.a, pair.b) if result]
    options = [f"--device={settings.device}", *words, "--save"]
    pages = [str(SAMPLES)] if command == "compare" else [str(result.request.image) for result in results]
    typed = shlex.join(["python", "-m", "dsocr_core", command, *pages, *options])
    record = record_run(settings, results, typed, notes=note)
    with RunDirectory.create(root, replace(record, host=None)) as run:  # of no machine in particular
        for result in results:
            run.add(PageResults(result.request.name, results=[result]))
        for comparison in comparisons:
            if comparison.report is not None:
                run.add_rows("parity", [parity_row(comparison.request.name, comparison.report)])


if __name__ == "__main__":
    main(sys.argv[1:])
