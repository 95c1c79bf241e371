"""Both backends on seeded random weights, for every preset and many page sizes.

The vendor backend is the reference remote code in its worker process; the two share no code. The full
table (five presets, thirty sizes, two number types) runs with `-m slow`; a cut through it runs always.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dsocr_core.engine.base import EagerEngine
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.vendor.backend import VendorBackend
from tests.support.seeded_weights import tiny_config, write_seeded_checkpoint
from tests.vendor.both_backends import QUICK, check, noise_page, open_backends

SIZES = (
    (1, 1), (17, 900), (64, 64), (100, 900), (320, 200), (333, 777), (639, 640), (640, 640), (640, 641),
    (641, 640), (700, 701), (700, 2100), (720, 480), (800, 600), (853, 1280), (900, 300), (960, 960),
    (1000, 1000), (1024, 768), (1240, 1754), (1280, 720), (1281, 1279), (1400, 1400), (1600, 500),
    (1754, 1240), (1920, 1080), (2000, 2600), (2100, 700), (2480, 3508), (3000, 340),
)  # fmt: skip
assert len(SIZES) == 30


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeded_checkpoint(
        tiny_config(), tmp_path_factory.mktemp("backends") / "tiny_backends", torch.float32
    )


@pytest.fixture(scope="session", params=["float32", "bfloat16"])
def backends(
    request: pytest.FixtureRequest, checkpoint: Path, interpreter: Path
) -> Iterator[tuple[EagerEngine, VendorBackend]]:
    with open_backends(checkpoint, "cpu", request.param, interpreter) as both:
        yield both


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.mark.parametrize(
    ("backends", "preset", "size"),
    [*(("float32", *case) for case in QUICK[:-1]), *(("bfloat16", *case) for case in (QUICK[0], QUICK[-2]))],
    ids=str,
    indirect=["backends"],
)
def test_same_inputs_and_tokens(
    backends: tuple[EagerEngine, VendorBackend], pages: Path, preset: str, size: tuple[int, int]
) -> None:
    check(backends, noise_page(pages, *size), preset)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_same_inputs_and_tokens_on_the_gpu(checkpoint: Path, pages: Path, dtype: str) -> None:
    with open_backends(checkpoint, "cuda", dtype) as both:
        for preset, size in QUICK:
            check(both, noise_page(pages, *size), preset)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("preset", PRESETS)
def test_same_inputs_and_tokens_on_the_full_table(
    backends: tuple[EagerEngine, VendorBackend], pages: Path, preset: str
) -> None:
    for size in SIZES:
        check(backends, noise_page(pages, *size), preset)
