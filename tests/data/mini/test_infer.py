"""The reference loaded as users load it: AutoModel on a directory, then `infer`."""

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import AutoModel, AutoTokenizer

from tests.published.remote_code import published_page
from tests.support.seeded_weights import tiny_config, write_seeded_checkpoint

PROMPT = "<image>\n<|grounding|>Convert the document to markdown."
SMALL = {"base_size": 640, "image_size": 640, "crop_mode": False}
GUNDAM = {"base_size": 1024, "image_size": 640, "crop_mode": True}


@pytest.mark.parametrize(
    ("dtype", "mode", "grid", "length"),
    [(torch.bfloat16, SMALL, [1, 1], 111), (torch.float32, GUNDAM, [3, 2], 273 + 31 * 20)],
)
def test_one_generate_call_as_published(
    tmp_path: Path, dtype: torch.dtype, mode: dict[str, Any], grid: list[int], length: int,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    checkpoint = write_seeded_checkpoint(tiny_config(), tmp_path / "tiny_reference")
    model: Any = AutoModel.from_pretrained(
        checkpoint, _attn_implementation="eager", trust_remote_code=True, use_safetensors=True
    )
    model, tokenizer = model.eval().to(dtype), AutoTokenizer.from_pretrained(checkpoint)
    seen, published = [], model.generate

    def generate(*args: Any, **kwargs: Any) -> torch.Tensor:
        seen.append((args, kwargs))
        return published(*args, **{**kwargs, "max_new_tokens": 12})

    model.generate, (page, out) = generate, (tmp_path / "page.png", tmp_path / "out")
    Image.fromarray(published_page(700, 500)).save(page)
    arguments = {**mode, "save_results": True, "test_compress": mode["crop_mode"]}
    assert model.infer(tokenizer, PROMPT, str(page), str(out), **arguments) is None
    [(args, kwargs)] = seen
    ids, mask = args[0][0], kwargs["images_seq_mask"][0]
    assert mask.sum().item() == length
    assert ids[~mask].tolist() == [0, *tokenizer.encode(PROMPT.removeprefix("<image>"))]
    assert kwargs["images_spatial_crop"].tolist() == [grid]
    assert (kwargs["max_new_tokens"], kwargs["no_repeat_ngram_size"]) == (8192, 20)
    assert (kwargs["temperature"], kwargs["eos_token_id"], kwargs["use_cache"]) == (0.0, 1, True)
    assert {"result.mmd", "result_with_boxes.jpg", "images"} == {path.name for path in out.iterdir()}
    printed = capsys.readouterr().out
    assert ("image size:  (700, 500)" in printed) == mode["crop_mode"]
    assert (f"valid image tokens:  {int(256 * (1 - 200 / 700)) + 600}" in printed) == mode["crop_mode"]
