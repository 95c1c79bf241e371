"""Read every sample through both backends and record the results beside them, for the first start of the app.

`python -m data.samples.record`, after a change of the embedded checkpoint, a backend or a sample.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from dsocr_core.inputs.documents import expand
from dsocr_core.outputs.result_cache import SHIPPED_RESULTS
from dsocr_core.run.pipeline import Pipeline
from dsocr_core.settings import Settings
from dsocr_core.threads import wait_politely

SAMPLES = Path(__file__).parent


def main() -> int:
    """Record all samples under the default settings on the CPU; 1 when one fails or is not identical."""
    wait_politely()
    staging = Path(tempfile.mkdtemp(prefix=".recorded-", dir=SAMPLES))
    pipeline = Pipeline(Settings(device="cpu").for_comparison(), results=staging / "unused")
    try:
        pages = expand([SAMPLES])
        pipeline.compare(pipeline.settings.request(pages[0].path))  # warms both backends up
        for page in pages:
            comparison = pipeline.compare(pipeline.settings.request(page.path, page.source))
            verdict = comparison.verdict if comparison.report else f"error {comparison.errors}"
            print(f"{page.source}: {verdict}", flush=True)
            if verdict != "identical":
                return 1
            pipeline.results.ship(comparison, staging / "recorded")
        shutil.rmtree(SHIPPED_RESULTS, ignore_errors=True)
        (staging / "recorded").replace(SHIPPED_RESULTS)
    finally:
        pipeline.close()
        shutil.rmtree(staging, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
