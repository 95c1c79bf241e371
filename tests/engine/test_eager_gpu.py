"""Our engine on a real GPU: `pytest -m gpu tests/gpu`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from PIL import Image, ImageDraw

from dsocr_core.engine.base import EngineOptions
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.models.family import FIRST
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import OcrRequest, OcrResult
from tests.support.seeded_weights import tiny_config, write_seeded_checkpoint

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


@pytest.fixture(scope="module")
def recognize(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., OcrResult]:
    folder = tmp_path_factory.mktemp("gpu")
    checkpoint = write_seeded_checkpoint(tiny_config(), folder / "tiny_gpu", torch.float32)
    picture = Image.new("RGB", (900, 700), "white")
    ImageDraw.Draw(picture).text((60, 60), "One page for two devices", fill="black")
    picture.save(folder / "page.png")

    def run(device: str, dtype: torch.dtype, attention: str = "sdpa") -> OcrResult:
        engine = EagerEngine(
            load_checkpoint(str(checkpoint), torch.device(device), dtype), EngineOptions(attention)
        )
        return engine.recognize(OcrRequest(folder / "page.png", "gundam", max_new_tokens=40))

    return run


def test_a_gpu_reads_what_the_cpu_reads(recognize: Callable[..., OcrResult]) -> None:
    on_gpu, on_cpu = recognize("cuda", torch.float32), recognize("cpu", torch.float32)
    assert on_gpu.token_ids == on_cpu.token_ids
    assert on_gpu.inputs == on_cpu.inputs


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_bf16_is_the_same_every_time_and_timed_on_the_device(
    recognize: Callable[..., OcrResult], attention: str
) -> None:
    result = recognize("cuda", torch.bfloat16, attention)
    assert result.token_ids == recognize("cuda", torch.bfloat16, attention).token_ids
    assert [timing.stage for timing in result.timings] == [stage for stage in Stage if stage != Stage.ENCODER]
    inside = sum(result.milliseconds(stage) or 0 for stage in FIRST.computed[:-2])
    assert 0 < inside <= (result.milliseconds(Stage.PREFILL) or 0)
