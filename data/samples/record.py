"""Read every sample through both backends and record the results beside them, for the first start of the app.

`python -m data.samples.record`, after a change of the embedded checkpoint, a backend or a sample. With
`rekey` after it no model runs: the results that are there get the names that they have by now.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

from dsocr_core.backends.backend import Opening
from dsocr_core.base.bounded_json import parse_json
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.engine.threads import wait_politely
from dsocr_core.page.documents import Page, expand
from dsocr_core.read.session import Session
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import SIDES, VENDOR, OcrResult
from dsocr_core.runs.result_cache import SHIPPED_RESULTS, ResultCache, save_results
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.settings import Settings

SAMPLES = Path(__file__).parent
EXAMPLE_SETTINGS = Settings(
    device="cpu", preset="base", dtype="bfloat16", attention="eager", b={"spec": VENDOR, "dtype": "float32"}
)
"""A page that differs: A rounds to bfloat16, B does not: a time of day is another. Compare opens on it."""
RECORDED = {
    "samples": (SAMPLES, Settings(device="cpu").for_comparison(), "identical"),
    "example": (SAMPLES / "03-tall-notice.png", EXAMPLE_SETTINGS, "differs"),
}
"""Pages, settings and verdict of each recorded run."""
_PASSES = 3
"""Readings of a page, of which the quickest of each side is recorded: others use the machine, too."""


def main() -> None:
    """Record all samples under the default settings on the CPU, and one that differs under others.

    Raises DsocrError when a page fails or has another verdict than its run's.
    """
    wait_politely()
    with _replaced() as staging:
        for name, (path, settings, verdict) in RECORDED.items():
            pages = expand([path])
            with closing(Session(settings, Opening(staging / "unused"))) as session:
                compared(session, pages[0], verdict)  # warms both backends up
                quickest = [_quickest(session, page, verdict) for page in pages]
                ship(session.settings, quickest, staging, name)


def rekey() -> None:
    """Give the recorded results the names that they have by now, where code or form of a checkpoint changed
    and what is read did not: no model runs."""
    with _replaced() as staging:
        for name, (_, settings, _) in RECORDED.items():
            run, comparisons = SHIPPED_RESULTS / "runs" / name, []
            for _, result in RunDirectory(run).results():
                assert result is not None
                request = replace(result.request, image=PROJECT_ROOT / result.request.image)
                own = {"b" if result.backend == VENDOR else "a": result}
                comparisons.append(Comparison(request, own.get("a"), own.get("b")))
            created = parse_json((run / "run.json").read_bytes(), any_number=True)["created"]
            ship(settings, comparisons, staging, name, created)


@contextmanager
def _replaced() -> Iterator[Path]:
    """Folder for new results, which take the place of the recorded ones after the block."""
    with tempfile.TemporaryDirectory(prefix=".recorded-", dir=SAMPLES) as staging:
        yield Path(staging)
        shutil.rmtree(SHIPPED_RESULTS, ignore_errors=True)
        SHIPPED_RESULTS.mkdir()
        (Path(staging) / "runs").replace(SHIPPED_RESULTS / "runs")


def compared(session: Session, page: Page, wanted: str = "identical") -> Comparison:
    """Both backends on a page. Raises DsocrError unless their results have the wanted verdict."""
    comparison = session.compare(session.settings.request(page.path, page.source))
    verdict = comparison.verdict if comparison.report else f"error {comparison.errors}"
    print(f"{page.source}, {session.settings.attention}: {verdict}", flush=True)
    if verdict != wanted:
        raise DsocrError(f"{page.source} with {session.settings.attention} attention: {verdict}")
    return comparison


def _quickest(session: Session, page: Page, verdict: str) -> Comparison:
    """The quickest reading of each side; the readings are the same but for their times."""
    found = [compared(session, page, verdict) for _ in range(_PASSES)]
    a, b = (min((each.results[side] for each in found), key=attrgetter("total_ms")) for side in SIDES)
    return replace(found[0], a=a, b=b)


def ship(
    settings: Settings, comparisons: Iterable[Comparison], root: Path, name: str, created: str | None = None
) -> None:
    """Write comparisons as a run below `root` for the first start on any machine. Raises DsocrError."""
    results = {}
    for comparison in comparisons:
        for side, result in comparison.results.items():
            keys = ResultCache(settings.of_side(side)).keys(result.backend, comparison.request)
            results[keys.shipped] = portable(result)
    save_results(root, name, results, created)


def portable(result: OcrResult) -> OcrResult:
    """The result with paths inside the project written relative to it, so that it reads anywhere."""

    def relative(text: str) -> str:
        path = Path(text)
        inside = path.is_absolute() and path.is_relative_to(PROJECT_ROOT)
        return str(path.relative_to(PROJECT_ROOT)) if inside else text

    request = replace(result.request, image=Path(relative(str(result.request.image))))
    environment = {key: relative(value) for key, value in result.environment.items()}
    return replace(result, request=request, environment=environment)


if __name__ == "__main__":
    rekey() if sys.argv[1:] == ["rekey"] else main()
