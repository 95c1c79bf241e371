"""Our DeepSeek-OCR-2 at full width against what the published code gave on weights of the same recipe.

`pytest -m slow tests/models/test_published_forward_ocr2.py` (about 6 GB and some minutes on 2 cores). The
decoder has 3 layers and 16 experts; the rest is as published. Values at three flat indices of each stage.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from dsocr_core.engine.generate import Sequence, generate
from dsocr_core.models.blocks.attention import attention_core
from dsocr_core.models.family import MODELS, parse_config
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import published_parameters
from dsocr_core.page.preprocess import normalised, prepare
from dsocr_core.page.prompt import build_prompt, prompt_layout
from dsocr_core.page.tiling import image_token_count
from dsocr_core.reading.records import GROUNDING_PROMPT
from tests.support.remote_code import published_page
from tests.support.seeded_weights import seeded_weight, tiny_ocr2_config, with_changes

ROW = MODELS["deepseek_ocr2"]
PUBLISHED: dict[str, tuple[tuple[int, ...], float, float, dict[int, float]]] = {
    "sam local": ((2, 896, 12, 12), 0.009734, 0.954239, {
        11219: -0.444839, 123413: -0.165159, 246827: 1.309086}),
    "layer 0 local": ((2, 288, 896), -0.020015, 1.162420, {
        22438: 0.259059, 246828: 0.752756, 493656: 1.189447}),
    "layer 23 local": ((2, 288, 896), -0.214186, 5.280536, {
        22438: 1.720823, 246828: -2.967228, 493656: 8.663843}),
    "encoder local": ((2, 144, 896), -0.051954, 1.000619, {
        11219: -1.000584, 123413: -0.924624, 246827: 1.771937}),
    "projector local": ((2, 144, 1280), -0.014926, 1.033415, {
        16027: 0.829216, 176305: -0.308141, 352611: -1.641315}),
    "sam global": ((1, 896, 16, 16), 0.008377, 0.976289, {
        9972: 0.543175, 109701: 1.832726, 219402: -0.610744}),
    "encoder global": ((1, 256, 896), -0.010603, 1.002216, {
        9972: -1.654728, 109701: -0.060416, 219402: -1.277771}),
    "projector global": ((1, 256, 1280), -0.035123, 1.001332, {
        14246: 1.320905, 156716: 0.907739, 313432: -0.43746}),
    "decoder": ((1, 593, 1280), 0.015216, 2.243021, {
        33001: 2.811933, 363018: 0.48515, 726037: -0.658582}),
    "logits": ((1, 1, 129280), 0.006503, 0.997120, {
        5620: 0.353919, 61829: -0.535425, 123658: 0.144783}),
}  # fmt: skip
"""Stage -> shape, mean, std, and the value at each flat index, in float32."""
TOKENS = [119931, 108487, 63668, 6070, 127948]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def model() -> Iterator[OcrModel]:
    sizes = {
        "hidden_size": 1280, "intermediate_size": 6848, "moe_intermediate_size": 896, "n_routed_experts": 16,
        "num_attention_heads": 10, "num_key_value_heads": 10, "num_experts_per_tok": 6, "vocab_size": 129280,
        "num_hidden_layers": 3,
    }  # fmt: skip
    config: dict[str, Any] = with_changes(tiny_ocr2_config(), **sizes)
    config["projector_config"].update(input_dim=896, n_embed=1280)
    config["vision_config"]["width"] = {
        "qwen2-0-5b": {"dim": 896},
        "sam_vit_b": {
            "downsample_channels": [512, 1024], "global_attn_indexes": [2, 5, 8, 11], "heads": 12,
            "layers": 12, "width": 768,
        },
    }  # fmt: skip
    with torch.device("meta"):
        made = OcrModel(parse_config(config))
    made.to_empty(device="cpu").requires_grad_(False)
    for name, tensor in published_parameters(made):
        tensor.copy_(torch.from_numpy(seeded_weight(name, tuple(tensor.shape))))
    yield made.eval()
    del made
    gc.collect()


def run(model: OcrModel) -> tuple[dict[str, Tensor], list[int]]:
    """Every stage's output, and the first greedy tokens."""
    preset = ROW.presets["default"]
    image = prepare(Image.fromarray(published_page(1200, 500)), preset)
    count = image_token_count(preset, image.grid, ROW.newline)
    prompt = prompt_layout(
        lambda text: [1000 + ord(letter) for letter in text], build_prompt(GROUNDING_PROMPT), 128815, 0, count
    )
    assert (image.grid, count, len(prompt.ids)) == ((2, 1), 545, 593)
    stages: dict[str, Tensor] = {}
    views = {"local": normalised(image.tiles), "global": normalised(image.global_view[None])}
    for view, pixels in views.items():
        outputs = [torch.from_numpy(pixels).to(torch.bfloat16).to(model.dtype)]
        hooks = [
            model.get_submodule(f"encoder.layers.{number}").register_forward_hook(
                lambda _, __, output, name=f"layer {number} {view}": stages.setdefault(name, output)
            )
            for number in (0, 23)
        ]
        for stage, part in zip(ROW.vision, model.parts, strict=True):
            outputs.append(part(*outputs))
            stages[f"{stage.name} {view}"] = outputs[-1]
        for hook in hooks:
            hook.remove()
    ids = torch.tensor([prompt.ids])
    tokens = (stages["projector local"], image.grid, stages["projector global"])
    embeddings = model.fuse(ids, ids == 128815, [tokens])
    core = attention_core("eager", model.device, model.dtype)
    sequence = Sequence.start(model, prompt.ids, len(TOKENS), 20, core, rotary_dtype=model.dtype)
    hook = model.get_submodule("decoder.layers.2").register_forward_hook(
        lambda _, __, output: stages.setdefault("decoder", output)
    )
    logits = sequence.forward(model, embeddings)
    hook.remove()
    stages["logits"] = logits[None, None]
    return stages, list(generate(sequence.next_logits(model), logits, sequence.rule, len(TOKENS), 1))


def test_float32_stages_and_tokens(model: OcrModel) -> None:
    with torch.inference_mode():
        stages, tokens = run(model)
    for name, (shape, mean, std, values) in PUBLISHED.items():
        found = stages[name].float()
        assert tuple(found.shape) == shape, name
        flat = found.flatten()
        errors = [abs(flat[place].item() - value) / std for place, value in values.items()]
        figures = max(abs(flat.mean().item() - mean), abs(flat.std().item() - std)) / std
        print(f"{name}: values {max(errors):.1e}, mean and std {figures:.1e} of the stage's std")
        assert max(errors) < 2e-5 and figures < 2e-5, name
    best = stages["logits"].flatten().topk(3)
    assert best.indices.tolist() == [119931, 15016, 82907] and tokens == TOKENS
    np.testing.assert_allclose(best.values, [4.2757, 4.11268, 3.88587], atol=2e-5)
