"""Read every sample through both backends and record the results beside them, for the first start of the app.

`python -m data.samples.record`, after a change of the embedded checkpoint, a backend or a sample. With
`rekey` after it no model runs: the results that are there get the names that they have by now.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from dsocr_core.backends.backend import Opening
from dsocr_core.base.bounded_json import parse_json
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.engine.threads import wait_politely
from dsocr_core.page.documents import expand
from dsocr_core.read.session import Session
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import SIDES, VENDOR, OcrResult
from dsocr_core.runs.result_cache import SHIPPED_RESULTS, ResultCache, save_results
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.settings import Settings

SAMPLES = Path(__file__).parent
EXAMPLE = SAMPLES / "03-tall-notice.png"
EXAMPLE_SETTINGS = Settings(
    device="cpu", preset="base", dtype="bfloat16", attention="eager", b={"spec": VENDOR, "dtype": "float32"}
)
"""A page that differs: A rounds to bfloat16, B does not: a time of day is another. Compare opens on it."""
_PASSES = 3
"""Readings of a page, of which the quickest of each side is recorded: others use the machine, too."""


def main() -> int:
    """Record all samples under the default settings on the CPU, and one that differs under others.

    1 when one fails, is not identical, or the other does not differ.
    """
    wait_politely()
    staging = Path(tempfile.mkdtemp(prefix=".recorded-", dir=SAMPLES))
    session = Session(Settings(device="cpu").for_comparison(), Opening(staging / "unused"))
    try:
        pages, comparisons = expand([SAMPLES]), []
        session.compare(session.settings.request(pages[0].path))  # warms both backends up
        for page in pages:
            comparison = _quickest(session, page.path, page.source)
            verdict = comparison.verdict if comparison.report else f"error {comparison.errors}"
            print(f"{page.source}: {verdict}", flush=True)
            if verdict != "identical":
                return 1
            comparisons.append(comparison)
        ship(session.settings, comparisons, staging / "recorded", "samples")
        if not _record_example(staging):
            return 1
        shutil.rmtree(SHIPPED_RESULTS, ignore_errors=True)
        (staging / "recorded").replace(SHIPPED_RESULTS)
    finally:
        session.close()
        shutil.rmtree(staging, ignore_errors=True)
    return 0


def _quickest(session: Session, path: Path, name: str) -> Comparison:
    """The quickest reading of each side; the readings are the same but for their times."""
    found = [session.compare(session.settings.request(path, name)) for _ in range(_PASSES)]
    if any(each.errors for each in found):
        return found[0]
    a, b = ([each.results[side] for each in found] for side in SIDES)
    return replace(found[0], a=min(a, key=_total_ms), b=min(b, key=_total_ms))


def _total_ms(result: OcrResult) -> float:
    return result.total_ms


def _record_example(staging: Path) -> bool:
    with closing(Session(EXAMPLE_SETTINGS, Opening(staging / "unused"))) as session:
        comparison = _quickest(session, EXAMPLE, EXAMPLE.name)
        print(f"{EXAMPLE.name} in {EXAMPLE_SETTINGS.dtype}: {comparison.verdict}", flush=True)
        if comparison.report is None or comparison.verdict != "differs":
            return False
        ship(session.settings, [comparison], staging / "recorded", "example")
    return True


def ship(settings: Settings, comparisons: Iterable[Comparison], root: Path, name: str) -> None:
    """Write comparisons as a run below `root` for the first start on any machine; the `example` is found only
    where the same number type and attention are asked for. Raises DsocrError."""
    results = {}
    for comparison in comparisons:
        for side, result in comparison.results.items():
            keys = ResultCache(settings.of_side(side)).keys(result.backend, comparison.request)
            results[keys.example if name == "example" else keys.shipped] = portable(result)
    save_results(root, name, results)


def portable(result: OcrResult) -> OcrResult:
    """The result with paths inside the project written relative to it, so that it reads anywhere."""

    def relative(text: str) -> str:
        path = Path(text)
        inside = path.is_absolute() and path.is_relative_to(PROJECT_ROOT)
        return str(path.relative_to(PROJECT_ROOT)) if inside else text

    request = replace(result.request, image=Path(relative(str(result.request.image))))
    environment = {key: relative(value) for key, value in result.environment.items()}
    return replace(result, request=request, environment=environment)


def rekey() -> int:
    """Give the recorded results the names that they have by now, where code or form of a checkpoint changed
    and what is read did not: no model runs."""
    staging = Path(tempfile.mkdtemp(prefix=".recorded-", dir=SAMPLES))
    try:
        for run in sorted(SHIPPED_RESULTS.glob("runs/*")):
            results, example = {}, run.name == "example"
            for _, result in RunDirectory(run).results():
                assert result is not None
                settings = Settings(device="cpu").for_comparison()
                if example:
                    settings = EXAMPLE_SETTINGS.of_side("b" if result.backend == VENDOR else "a")
                request = replace(result.request, image=PROJECT_ROOT / result.request.image)
                keys = ResultCache(settings).keys(result.backend, request)
                results[keys.example if example else keys.shipped] = result
            created = parse_json((run / "run.json").read_bytes(), any_number=True)["created"]
            save_results(staging, run.name, results, created)
        shutil.rmtree(SHIPPED_RESULTS)
        staging.rename(SHIPPED_RESULTS)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(rekey() if sys.argv[1:] == ["rekey"] else main())
