"""Our modules against the published code's own forward pass (`forward.json`), at full width.

`pytest -m slow tests/models/test_published_forward.py` (about 4 GB and a few minutes on 2 cores).
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from dsocr_core.engine.generate import Sequence, generate
from dsocr_core.models.blocks.attention import attention_core
from dsocr_core.models.family import parse_config, preset_named
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import published_parameters
from dsocr_core.page.preprocess import PreparedImage, normalised, prepare
from dsocr_core.page.prompt import build_prompt, prompt_layout
from dsocr_core.page.tiling import image_token_count
from dsocr_core.reading.records import GROUNDING_PROMPT
from tests.support.paths import PUBLISHED
from tests.support.seeded_weights import seeded_weight

BF16_ROUNDING = 0.05
"""Logits of the published forward have std 1 and magnitude 4, where a bf16 step is 1/64; the errors of
three layers add up to a few steps."""
STAGE_MEAN_ERROR = 2e-3
"""Of the sampled values of a bf16 stage, by its std. Equal operations differ as forward.json is printed, by
3e-7; with CLIP's GELU rounded to bf16 after each operation all stages from CLIP on differ by over 6e-3."""
STAGE_FIGURES_ERROR = 2e-6
"""Of a stage's mean and std, by its std: 0 for equal operations, 5e-6 to 8e-5 with that GELU."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    return json.loads((PUBLISHED / "forward.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def model(published: dict[str, Any]) -> Iterator[OcrModel]:
    data = json.loads((PUBLISHED / "config.json").read_text(encoding="utf-8"))
    data.update(published["config"]["changes"])
    with torch.device("meta"):
        model = OcrModel(parse_config(data))
    model.to_empty(device="cpu").requires_grad_(False)
    for name, tensor in published_parameters(model):
        tensor.copy_(torch.from_numpy(seeded_weight(name, tuple(tensor.shape))))
    yield model.eval()
    del model
    gc.collect()


def page(published: dict[str, Any]) -> PreparedImage:
    """The page that forward.json states, cut by its preset."""
    image = published["image"]
    x, y = np.meshgrid(np.arange(image["width"]), np.arange(image["height"]))
    pixels = np.stack([(x * 7 + y * 13 + k * 29 + (x * y) // 97) % 256 for k in range(3)], -1)
    return prepare(Image.fromarray(pixels.astype(np.uint8)), preset_named(published["preset"]))


def run(model: OcrModel, published: dict[str, Any]) -> tuple[dict[str, Tensor], list[int], list[Tensor]]:
    """Every stage's output, the greedy tokens, and each step's logits."""
    prepared = page(published)
    prompt = prompt_layout(
        lambda text: [1000 + ord(letter) for letter in text],
        build_prompt(GROUNDING_PROMPT),
        128815,
        0,
        image_token_count(preset_named(published["preset"]), prepared.grid),
    )
    assert len(prompt.ids) == published["prompt_length"]
    assert list(prepared.grid) == published["grid"]

    stages = {
        **vision(model, "local", torch.from_numpy(normalised(prepared.tiles))),
        **vision(model, "global", torch.from_numpy(normalised(prepared.global_view[None]))),
    }
    projected = [stages["projector_local"], stages["projector_global"]]
    ids = torch.tensor([prompt.ids])
    embeddings = model.fuse(ids, ids == 128815, [(projected[0], prepared.grid, projected[1])])
    core = attention_core("eager", model.device, model.dtype)
    count = published["new_tokens"]
    sequence = Sequence.start(model, prompt.ids, count, 20, core, rotary_dtype=model.dtype)
    hooks = [
        layer.register_forward_hook(lambda _, __, output, i=i: stages.setdefault(f"layer{i}_prefill", output))
        for i, layer in enumerate(model.decoder.layers)
    ]
    logits = sequence.forward(model, embeddings)
    for hook in hooks:
        hook.remove()
    stages["logits_last_prefill"] = logits[None, None]

    steps = [logits]
    forward = sequence.forward
    sequence.forward = lambda *args: steps.append(forward(*args)) or steps[-1]  # type: ignore[method-assign]
    tokens = list(generate(sequence.next_logits(model), logits, sequence.rule, count, 1))
    return stages, tokens, steps


def vision(model: OcrModel, name: str, pixels: Tensor) -> dict[str, Tensor]:
    """The towers' outputs on views of one size, under the names of forward.json."""
    sam = model.sam(pixels.to(torch.bfloat16).to(model.dtype))
    patches = model.clip(sam)
    return {f"sam_{name}": sam, f"clip_{name}": patches, f"projector_{name}": model.projector(patches, sam)}


def stage_errors(output: Tensor, stage: dict[str, Any]) -> tuple[float, float]:
    """Mean error of the sampled values, and the larger error of mean and std, all by the stage's std."""
    wide = output.float()
    sampled = (wide.flatten()[stage["at"]] - torch.tensor(stage["values"])).abs().mean().item()
    figures = max(abs(wide.mean().item() - stage["mean"]), abs(wide.std().item() - stage["std"]))
    return sampled / stage["std"], figures / stage["std"]


def test_float32_stages_and_tokens(model: OcrModel, published: dict[str, Any]) -> None:
    expected = published["float32"]
    with torch.inference_mode():
        stages, tokens, _ = run(model, published)
    assert set(stages) == set(expected["stages"])
    for name, stage in expected["stages"].items():
        assert list(stages[name].shape) == stage["shape"]
        ours = stages[name].flatten()[stage["at"]].numpy()
        worst = np.abs(ours - np.array(stage["values"])).max() / stage["std"]
        print(f"{name}: largest error {worst:.2e} of the stage's std")
        assert worst < 1e-3, name
    assert tokens == expected["tokens"]


def test_bfloat16_stages_and_tokens(model: OcrModel, published: dict[str, Any]) -> None:
    """Runs after float32: it casts the shared model. The rotary frequencies are rounded as published."""
    expected = published["bfloat16_autocast_cpu"]
    model.to(torch.bfloat16)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        stages, tokens, _ = run(model, published)
    assert set(stages) == set(expected["stages"])
    for name, stage in expected["stages"].items():
        sampled, figures = stage_errors(stages[name], stage)
        print(f"bf16 {name}: mean error {sampled:.2e}, of mean and std {figures:.2e} of the stage's std")
        assert sampled < STAGE_MEAN_ERROR and figures < STAGE_FIGURES_ERROR, name
    same = next(
        (i for i, pair in enumerate(zip(tokens, expected["tokens"], strict=True)) if pair[0] != pair[1]), 48
    )
    print(f"bf16: first {same} of {len(tokens)} tokens equal")
    if same < len(tokens):
        top = dict(zip(*(expected["top3"][same][key] for key in ("ids", "logits")), strict=True))
        assert tokens[same] in top, f"step {same}: {tokens[same]} is not among the published top three"
        margin = max(top.values()) - top[tokens[same]]
        print(f"step {same}: published margin between both choices {margin:.4f}")
        assert margin <= BF16_ROUNDING
