"""Times and checks vision and prefill on a GPU: no page file, random weights and pixels.

    dsocr measure prefill --config PATH --grid 2 2

Prints each stage of the eager engine and of the fast one in its variants; how far each is from the eager
engine in float32 with the same weights; which kernels take the time. What fails prints one line, and the
rest goes on.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from dsocr_core.base.console import print_json
from dsocr_core.engine.device import full_float32
from dsocr_core.engine.fast.engine import PAGES_A_PASS
from dsocr_core.engine.fast.ops import Ops
from dsocr_core.engine.fast.prefill import FastPrefill
from dsocr_core.engine.fast.vision import VisionTowers
from dsocr_core.measure.device import require_fast_engine_for
from dsocr_core.measure.prefill_variants import EagerVariant, FastVariant, Page, PagesVariant, Variant
from dsocr_core.measure.rows import Rows
from dsocr_core.models.blocks.attention import sdpa_core
from dsocr_core.models.family import load_config, preset_named
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.stages import Stage
from dsocr_core.models.weights import random_model
from dsocr_core.page.tiling import NO_TILES

WARM_UP = 2
KERNELS_SHOWN = 12


def run(
    *,
    config: Path,
    preset: str | None = None,
    grid: tuple[int, int] = (2, 2),
    text_tokens: int = 35,
    repeat: int = 10,
) -> None:
    """Time and check vision and prefill of both engines on random weights, on a GPU.

    Args:
        config: config.json of the sizes to run
        preset: of the model (default: its usual one)
        grid: columns and rows of tiles, under a preset that cuts
        text_tokens: prompt tokens beside the image's
        repeat: measured passes
    """
    require_fast_engine_for("measure prefill")
    device = torch.device("cuda")
    rows = Rows(device, product=True)
    model = random_model(load_config(config), device, torch.bfloat16)
    chosen = preset_named(preset or model.family.preset, model.family)
    page = Page.random(model.config, chosen, grid if chosen.crop_mode else NO_TILES, text_tokens, device)
    shapes = ", ".join("x".join(map(str, view.shape)) for view in page.views)
    rows.say(f"views {shapes}; prompt {len(page.prompt.ids)} tokens")
    with torch.inference_mode():
        errors = measure(rows, model, page, repeat)
    print_json(rows.document(preset=chosen.name, grid=page.grid, errors=errors))


def measure(rows: Rows, model: OcrModel, page: Page, repeat: int) -> dict[str, list[str]]:
    """Time and check all variants, times first; returns `_errors`."""
    kernels = model.device.type == "cuda"
    prefill = FastPrefill(model, Ops(kernels))
    towers = partial(VisionTowers, model, Ops(kernels))
    makers: dict[str, Callable[[], Variant]] = {
        "eager": lambda: EagerVariant(model, page, sdpa_core),
        "fast": lambda: FastVariant(model, page, sdpa_core, towers(), prefill),
        "fast, no graph": lambda: FastVariant(model, page, sdpa_core, towers(), prefill, graphs=False),
    }

    flops: dict[Stage, int] = {}
    variants: dict[str, Variant] = {}
    errors: dict[str, list[str]] = {}
    with rows.attempt("FLOPs"), _autocast(model):
        flops = _flops(EagerVariant(model, page, sdpa_core))
    for name, make in makers.items():
        with rows.attempt(name):
            variant = make()
            rows.table(name)
            with _autocast(model):
                _times(rows, variant, flops, repeat)
            if name in ("eager", "fast"):
                variants[name] = variant
    name = f"fast, {PAGES_A_PASS} pages together"
    with rows.attempt(name):
        together = PagesVariant(model, page, sdpa_core, towers(), prefill, PAGES_A_PASS)
        rows.table(name)
        with _autocast(model):
            _times(rows, together, {stage: PAGES_A_PASS * count for stage, count in flops.items()}, repeat)
            alike = together.is_alike_everywhere()
        rows.say(f"a page's logits, whoever is beside it: {'the same bits' if alike else 'OTHER BITS'}")
        del together
    with rows.attempt("errors"):
        errors = _errors(model, page, variants)
    for name, variant in variants.items():
        if kernels:
            with rows.attempt(f"kernels of {name}"), _autocast(model):
                _kernels(name, variant)
    return errors


def _autocast(model: OcrModel) -> torch.autocast:
    return torch.autocast(model.device.type, torch.bfloat16, enabled=model.dtype == torch.bfloat16)


def _flops(variant: Variant) -> dict[Stage, int]:
    """By torch's counter, of the eager engine's stages."""
    found = {}
    for stage, run in variant.stages().items():
        with FlopCounterMode(display=False) as counter:
            run()
        found[stage] = counter.get_total_flops()
    return found


def _times(rows: Rows, variant: Variant, flops: Mapping[Stage, int], repeat: int) -> None:
    """Time each stage waited for by itself; then all of them in a row, as a page has them."""
    for _ in range(WARM_UP):
        variant.run()
    of_stages: list[tuple[str, Callable[[], None], int]] = [
        (stage.value, run, flops.get(stage, 0)) for stage, run in variant.stages().items()
    ]
    for label, run, count in [*of_stages, ("all in a row", variant.run, sum(flops.values()))]:
        rows.row(label, run, repeat=repeat, flops=count or None, note=partial(_launches, rows, run))


def _launches(rows: Rows, run: Callable[[], None], ms: float) -> str:
    if rows.device.type != "cuda":
        return ""
    _, launches, kernels = _profiled(run)
    return f"{launches} launches, {kernels} kernels"


def _errors(model: OcrModel, page: Page, variants: dict[str, Variant]) -> dict[str, list[str]]:
    """Print and return ||x - float32|| / ||float32|| after each stage on own results; then prefill alone."""
    with full_float32():
        oracle = EagerVariant(copy.deepcopy(model).float(), page, sdpa_core)
        oracle.run()
        embeddings = oracle.outputs[Stage.VISION_FUSION].to(model.dtype)
        exact = {stage: rows.clone() for stage, rows in oracle.joined().items()}
        oracle.outputs[Stage.VISION_FUSION] = embeddings.float()
        oracle.prefill()
        logits = oracle.outputs[Stage.PREFILL]
    table: dict[str, list[str]] = defaultdict(list)
    for variant in variants.values():
        with _autocast(model):
            variant.run()
            for stage, rows in variant.joined().items():
                table[stage.value].append(f"{_error(rows, exact[stage]):.2e}")
            first, second = (_prefill_alone(variant, embeddings) for _ in range(2))
        table["prefill, same embeddings"].append(f"{_error(first, logits):.2e}")
        table["  values, median position"].append(f"{median_position_error(variant, oracle):.2e}")
        table["best token as float32's"].append("yes" if first.argmax() == logits.argmax() else "no")
        table["twice, the same bits"].append("yes" if torch.equal(first, second) else "no")
    print(f"\n{'error against float32':26} " + " ".join(f"{name:>10}" for name in variants))
    for label, cells in table.items():
        print(f"{label:26} " + " ".join(f"{cell:>10}" for cell in cells))
    return dict(table)


def _prefill_alone(variant: Variant, embeddings: Tensor) -> Tensor:
    variant.outputs[Stage.VISION_FUSION] = embeddings
    variant.prefill()
    return variant.outputs[Stage.PREFILL].clone()


def _error(actual: Tensor, exact: Tensor) -> float:
    wide = exact.double()
    return float((actual.double() - wide).norm() / wide.norm())


def median_position_error(variant: Variant, oracle: Variant) -> float:
    """Measure the error of the last layer's cached values, position by position.

    Rounding sends a token with a near tie to another expert now and then, in any engine. That decides what
    the one position of the logits shows; the median position shows the arithmetic.
    """
    made, exact = (each.cache.values[-1, 0].double() for each in (variant, oracle))  # (h, N, D)
    return float(((made - exact).norm(dim=(0, 2)) / exact.norm(dim=(0, 2))).median())


def _kernels(name: str, variant: Variant) -> None:
    """Print where a page's time goes, by kernel: the most of vision's and of prefill's."""
    parts = {
        "vision": [variant.stages()[stage.name] for stage in variant.model.family.vision],
        "prefill": [variant.stages()[Stage.VISION_FUSION], variant.stages()[Stage.PREFILL]],
    }
    for part, runs in parts.items():
        times, _, _ = _profiled(lambda runs=runs: [run() for run in runs])  # type: ignore[misc]
        total = sum(sum(each) for each in times.values())
        print(f"\n{name}, {part}: {total / 1e3:.3f} ms in kernels")
        most = sorted(times.items(), key=lambda item: -sum(item[1]))[:KERNELS_SHOWN]
        for kernel, each in most:
            print(f"{sum(each) / 1e3:8.3f} ms {len(each):5} x {sum(each) / len(each):8.1f} us  {kernel[:90]}")


def _profiled(run: Callable[[], object]) -> tuple[dict[str, list[float]], int, int]:
    """(microseconds of each kernel's runs, launches by the host, kernels that ran)"""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = defaultdict(list)
    launches = 0
    for event in profiler.events() or ():
        if event.device_type == DeviceType.CUDA:
            times[event.name].append(event.time_range.elapsed_us())
        elif "Launch" in event.name and event.name.startswith("cu"):
            launches += 1
    return dict(times), launches, sum(len(each) for each in times.values())
