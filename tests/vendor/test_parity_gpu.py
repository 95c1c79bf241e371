"""Both backends on the same GPU: the same inputs and tokens, or a tie. `pytest -m gpu tests/gpu -s`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dsocr_core.engine.eager import EagerEngine
from dsocr_core.vendor.backend import VendorBackend
from tests.support.both_backends import QUICK, check, noise_page, open_backends
from tests.support.seeded_weights import tiny_config, write_seeded_checkpoint

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu_backends") / "tiny_gpu_backends"
    return write_seeded_checkpoint(tiny_config(), folder, torch.float32)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def backends(request: pytest.FixtureRequest, checkpoint: Path) -> Iterator[tuple[EagerEngine, VendorBackend]]:
    with open_backends(checkpoint, "cuda", request.param) as both:
        yield both


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gpu_pages")


@pytest.mark.parametrize(("preset", "size"), QUICK, ids=str)
def test_same_inputs_and_tokens(
    backends: tuple[EagerEngine, VendorBackend], pages: Path, preset: str, size: tuple[int, int]
) -> None:
    check(backends, noise_page(pages, *size), preset)
