"""Views made by 32-bit integers on a device: byte for byte what the host makes with Pillow."""

from __future__ import annotations

import random

import numpy as np
import PIL
import pytest
import torch
from PIL import Image

import dsocr_core.engine.views as views_module
from dsocr_core.engine.views import can_resize, device_views, resized, uploaded, views_of
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.family import preset_named
from dsocr_core.page.preprocess import prepare

CPU = torch.device("cpu")
SIZES = [(1280, 1280), (1654, 2339), (300, 200), (37, 1800), (2000, 31), (1, 700), (640, 640)]


def page(width: int, height: int, seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def check(image: Image.Image, preset_name: str, device: torch.device) -> None:
    preset = preset_named(preset_name)
    made, host = device_views(image, preset, device), prepare(image, preset)
    assert (made.grid, made.image_size) == (host.grid, host.image_size)
    assert np.array_equal(made.global_view[0].cpu().numpy(), host.global_view)
    assert np.array_equal(made.tiles.cpu().numpy(), host.tiles)
    copied = made.on_host()
    assert np.array_equal(copied.global_view, host.global_view)
    assert np.array_equal(copied.tiles, host.tiles)


def test_five_hundred_sizes_are_pillows_own() -> None:
    sizes = random.Random(41)
    for number in range(500):
        before = sizes.randint(1, 90), sizes.randint(1, 90)
        after = sizes.randint(1, 90), sizes.randint(1, 90)
        if number % 10 == 0:
            after = after[0], before[1]  # one pass alone
        image = page(*before, number)
        made = resized(torch.from_numpy(np.array(image)), after).numpy()
        assert np.array_equal(made, np.asarray(image.resize(after))), (before, after)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_the_views_of_a_page_are_those_of_the_host(size: tuple[int, int]) -> None:
    for name in PRESETS if size == SIZES[0] else ("gundam", "tiny"):
        check(page(*size, 7), name, CPU)


def test_a_page_of_several_pieces_of_memory_has_the_same_bytes() -> None:
    """Pillow holds up to 16 MB in one piece; a page of 24 MB, another of one row."""
    for size in ((2400, 2500), (3, 1)):
        check(page(*size, 5), "gundam", CPU)


def test_a_cpu_and_another_pillow_leave_it_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    image, preset = page(700, 900, 3), preset_named("gundam")
    monkeypatch.setattr(views_module, "device_views", lambda *_: pytest.fail("made on the device"))
    gpu = torch.device("cuda")
    assert not can_resize(CPU) and can_resize(gpu)
    own = Image.Image.resize
    with monkeypatch.context() as patch:  # a Pillow that always resizes along one side first is found out
        patch.setattr(Image.Image, "resize", lambda page, to: own(own(page, (to[0], page.height)), to))
        assert not views_module.bytes_hold.__wrapped__()
    monkeypatch.setattr(views_module, "bytes_hold", lambda: False)
    assert not can_resize(gpu)
    made, host = views_of(image, preset, CPU), uploaded(prepare(image, preset), CPU)
    assert torch.equal(made.tiles, host.tiles) and torch.equal(made.global_view, host.global_view)


@pytest.mark.gpu
def test_a_gpu_makes_the_same_bytes() -> None:
    if not can_resize(torch.device("cuda")):
        pytest.skip(f"Pillow {PIL.__version__} resizes otherwise: the host makes the views")
    for size in SIZES:
        for name in PRESETS:
            check(page(*size, 11), name, torch.device("cuda"))
