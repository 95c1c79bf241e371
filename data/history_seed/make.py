"""The runs that come with the project: every sample through both backends, once for each of our attentions.

`python -m data.history_seed.make [ZIP...]`, on a machine that does nothing else, after a change of the
embedded checkpoint, of a backend or of a sample. Runs of another machine come as zips of `history export`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from dsocr_core.errors import DsocrError
from dsocr_core.history.importers.detect import import_paths
from dsocr_core.history.record import record_run
from dsocr_core.history.store import SEED_LOCATION, History
from dsocr_core.history.writer import RunWriter
from dsocr_core.inputs.documents import Page, expand
from dsocr_core.outputs.comparison import Comparison
from dsocr_core.outputs.result_cache import portable
from dsocr_core.run.pipeline import Pipeline
from dsocr_core.settings import EMBEDDED_CHECKPOINT, PROJECT_ROOT, Attention, Settings
from dsocr_core.threads import wait_politely

SAMPLES = Path("data/samples")
ATTENTIONS: tuple[Attention, ...] = ("sdpa", "eager")
MOST_BYTES = 1_000_000
"""All files together: they lie in git. Pictures are left out, the samples are there."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the runs and replace the earlier ones; 1 when a page fails or is not identical."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("zips", nargs="*", type=Path, metavar="ZIP", help="exported runs to take along")
    parser.add_argument("--to", type=Path, default=SEED_LOCATION, help="where (default: data/history_seed)")
    options = parser.parse_args(arguments)
    zips, target = [file.resolve() for file in options.zips], options.to.resolve()
    wait_politely()
    os.chdir(PROJECT_ROOT)  # paths in the records are the same on every machine
    target.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".making-", dir=target))
    try:
        _record(staging)
        with History(staging) as history:
            left_out = import_paths(history, zips).skipped
        if left_out:
            raise DsocrError(f"{left_out[0].path}: {left_out[0].reason}")
        size = sum(file.stat().st_size for file in (staging / "runs").rglob("*") if file.is_file())
        if size > MOST_BYTES:
            raise DsocrError(f"the runs have {size:,} bytes, more than {MOST_BYTES:,}: take fewer along")
        shutil.rmtree(target / "runs", ignore_errors=True)
        (staging / "runs").replace(target / "runs")
        print(f"{target}: {len(history)} runs, {size:,} bytes")
    except DsocrError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return 0


def _record(root: Path) -> None:
    """A run of all samples for each attention, under the default settings on the CPU. Raises DsocrError."""
    checkpoint = str(EMBEDDED_CHECKPOINT.relative_to(PROJECT_ROOT))
    with ExitStack() as stack:
        pipelines: list[Pipeline] = []
        for attention in ATTENTIONS:
            settings = Settings(checkpoint=checkpoint, device="cpu", attention=attention)
            pipelines.append(stack.enter_context(closing(Pipeline(settings, results=root / "unused"))))
        pages = expand([SAMPLES])
        for pipeline in pipelines:  # warms both backends up
            _compared(pipeline, pages[0])
        # Page by page in turn: other load of the machine affects all runs alike.
        read = [[_compared(pipeline, page) for pipeline in pipelines] for page in pages]
    for pipeline, comparisons in zip(pipelines, zip(*read, strict=True), strict=True):
        _write(root, pipeline.settings, comparisons)


def _compared(pipeline: Pipeline, page: Page) -> Comparison:
    """Both backends on a page, their results identical. Raises DsocrError."""
    comparison = pipeline.compare(pipeline.settings.request(page.path, page.source))
    verdict = comparison.verdict if comparison.report else f"error {comparison.errors}"
    print(f"{page.source}, {pipeline.settings.attention}: {verdict}", flush=True)
    if verdict != "identical":
        raise DsocrError(f"{page.source} with {pipeline.settings.attention} attention: {verdict}")
    return comparison


def _write(root: Path, settings: Settings, comparisons: Sequence[Comparison]) -> None:
    results = [portable(result) for pair in comparisons for result in (pair.a, pair.b) if result]
    options = [f"--device={settings.device}", f"--attention={settings.attention}", "--save"]
    command = shlex.join(["python", "-m", "dsocr_core", "compare", str(SAMPLES), *options])
    record = record_run(settings, results, command)
    with RunWriter(root, replace(record, host=None)) as run:  # of no machine in particular
        for result in results:
            run.add_result(result.request.name, result)
        for comparison in comparisons:
            if comparison.report is not None:
                run.add_parity(comparison.request.name, comparison.report)


if __name__ == "__main__":
    sys.exit(main())
