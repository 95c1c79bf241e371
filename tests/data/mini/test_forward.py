"""The reference's own forward pass at full width against the published code's (forward.json).

Three layers and sixteen experts on seeded weights. About 900 million parameters and some minutes:
`pytest -m slow tests/data/mini/test_forward.py`.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from tests.support.paths import PUBLISHED
from tests.support.remote_code import published_page, remote_module
from tests.support.seeded_weights import seeded_weight, with_changes

PROMPT = "<image>\n<|grounding|>Convert the document to markdown."
ROUNDING_ULPS = 2
"""Two bf16 logits of one size may swap places when they are this near."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]


class CharacterTokenizer:
    """The recipe's: each character is the id 1000 + its code point."""

    bos_token_id, eos_token_id = 0, 1

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [1000 + ord(character) for character in text]

    def convert_tokens_to_ids(self, token: str) -> int:
        assert token == "<image>"
        return 128815


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return json.loads((PUBLISHED / "forward.json").read_text())


@pytest.fixture(scope="module")
def float32_model(facts: dict[str, Any]) -> Iterator[Any]:
    torch.set_num_threads(2)
    modeling = remote_module("modeling_deepseekocr")
    published = json.loads((PUBLISHED / "config.json").read_text())
    config = modeling.DeepseekOCRConfig.from_dict(with_changes(published, **facts["config"]["changes"]))
    config._attn_implementation = "eager"
    with torch.device("meta"):
        model = modeling.DeepseekOCRForCausalLM(config)
    for name, parameter in list(model.named_parameters()):
        owner, _, leaf = name.rpartition(".")
        weight = torch.from_numpy(seeded_weight(name, tuple(parameter.shape)))
        setattr(model.get_submodule(owner), leaf, nn.Parameter(weight, requires_grad=False))
    for module in list(model.modules()):
        if hasattr(module, "rotary_emb"):
            module.rotary_emb = LlamaRotaryEmbedding(config=config)
    yield model.eval()


@pytest.fixture(scope="module")
def inputs(facts: dict[str, Any]) -> Any:
    page = Image.fromarray(published_page(facts["image"]["width"], facts["image"]["height"]))
    prepared = remote_module("image_inputs").prepare_inputs(
        CharacterTokenizer(), PROMPT, page, 1024, 640, True
    )
    assert prepared.images_spatial_crop.tolist() == [facts["grid"]]
    assert prepared.input_ids.shape == (facts["prompt_length"],)
    return prepared


def test_float32_stages_and_tokens(float32_model: Any, inputs: Any, facts: dict[str, Any]) -> None:
    expected = facts["float32"]
    tokens, stages, logits = _run(float32_model, inputs, facts["new_tokens"])
    for name, stage in expected["stages"].items():
        error = (
            (stages[name].flatten()[stage["at"]].float() - torch.tensor(stage["values"])).abs().max().item()
        )
        print(f"float32 {name}: largest error {error / stage['std']:.1e} of the std")
        assert list(stages[name].shape) == stage["shape"]
        assert error < 1e-3 * stage["std"], name
    assert tokens == expected["tokens"]
    for step, top in enumerate(expected["top3"]):
        assert logits[step][top["ids"]].tolist() == pytest.approx(top["logits"], abs=2e-3), step


def test_bfloat16_tokens_until_a_margin_within_rounding(
    float32_model: Any, inputs: Any, facts: dict[str, Any]
) -> None:
    """Last of the module: it turns the float32 model into bfloat16, rotary frequencies included."""
    expected = facts["bfloat16_autocast_cpu"]
    model = float32_model.to(torch.bfloat16)
    assert model.model.layers[0].self_attn.rotary_emb.inv_freq.dtype == torch.bfloat16
    tokens, stages, _ = _run(model, inputs, facts["new_tokens"])
    for name, stage in expected["stages"].items():
        error = (
            (stages[name].flatten()[stage["at"]].float() - torch.tensor(stage["values"])).abs().mean().item()
        )
        print(f"bfloat16 {name}: mean error {error / stage['std']:.1e} of the std")
        assert error < 0.03 * stage["std"], name
    agreed = next(
        (step for step, (a, b) in enumerate(zip(tokens, expected["tokens"], strict=True)) if a != b), None
    )
    if agreed is not None:
        first, second = expected["top3"][agreed]["logits"][:2]
        print(f"bfloat16: first other token at step {agreed}, where the margin is {first - second:.4f}")
        assert first - second <= ROUNDING_ULPS * torch.finfo(torch.bfloat16).eps * abs(first), agreed
    else:
        print("bfloat16: all tokens equal")


def _run(model: Any, inputs: Any, new_tokens: int) -> tuple[list[int], dict[str, Tensor], list[Tensor]]:
    """Greedy tokens, the prefill's stage outputs under the names of forward.json, and raw logits a step."""
    stages: dict[str, Tensor] = {}
    logits: list[Tensor] = []
    handles = []

    def keep(module: nn.Module, *names: str) -> None:
        """The first outputs of the module, under these names in turn; it runs on unchanged."""
        free = list(names)

        def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            if free:
                stages[free.pop(0)] = output.clone()

        handles.append(module.register_forward_hook(hook))

    # Tiles first, then the global view.
    keep(model.model.sam_model, "sam_local", "sam_global")
    keep(model.model.vision_model, "clip_local", "clip_global")
    keep(model.model.projector, "projector_local", "projector_global")
    for number, layer in enumerate(model.model.layers):
        keep(layer, f"layer{number}_prefill")

    def keep_logits(_module: nn.Module, _inputs: Any, output: Any) -> None:
        logits.append(output.logits[:, -1:].clone())

    handles.append(model.register_forward_hook(keep_logits))
    with torch.autocast("cpu", torch.bfloat16, enabled=model.dtype == torch.bfloat16), torch.no_grad():
        output = model.generate(
            inputs.input_ids.unsqueeze(0),
            images=[(inputs.images_crop, inputs.images_ori)],
            images_seq_mask=inputs.images_seq_mask.unsqueeze(0),
            images_spatial_crop=inputs.images_spatial_crop,
            temperature=0.0, eos_token_id=1, max_new_tokens=new_tokens, no_repeat_ngram_size=20,
        )  # fmt: skip
    for handle in handles:
        handle.remove()
    stages["logits_last_prefill"] = logits[0]
    return output[0, inputs.input_ids.shape[0] :].tolist(), stages, [step[0, 0] for step in logits]
