"""The fast engine reads the samples as the eager engine does: `pytest -m gpu tests/engine/fast`.

In float32, where the order of sums decides no token of these pages on a CPU. In bfloat16 the two best logits
tie on some of them, for the eager engine against itself too; `parity_fast` measures that.
"""

from __future__ import annotations

import pytest
import torch

from dsocr_core.engine.base import EagerEngine
from dsocr_core.engine.checkpoint import Checkpoint, load_checkpoint
from dsocr_core.engine.fast.batch import BatchReader
from dsocr_core.engine.fast.engine import FastEngine
from dsocr_core.page.documents import expand
from dsocr_core.reading.records import OcrRequest, OcrResult
from tests.engine.fast.read_batch import read
from tests.support.paths import DATA

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]

DEVICE = torch.device("cuda")


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return load_checkpoint(str(DATA / "mini"), DEVICE, torch.float32)


@pytest.fixture(scope="module", params=["small", "gundam"])
def eager(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> list[OcrResult]:
    engine = EagerEngine(checkpoint)
    return [engine.recognize(OcrRequest(page.path, request.param)) for page in expand([DATA / "samples"])]


def test_every_sample_reads_as_the_eager_engine_reads_it_alone_and_in_a_batch(
    checkpoint: Checkpoint, eager: list[OcrResult]
) -> None:
    reader = BatchReader(FastEngine(checkpoint), len(eager))
    found = read(reader, reader.engine, [result.request for result in eager])
    for number, result in enumerate(eager):
        together, alone = found[number], reader.engine.recognize(result.request)
        assert isinstance(together, OcrResult), together
        assert alone.token_ids == together.token_ids == result.token_ids, result.request.name
