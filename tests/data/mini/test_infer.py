"""The reference loaded as users load it: AutoModel on a directory, then `infer`."""

from collections.abc import Iterator
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
NEW_TOKENS = 12


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeded_checkpoint(tiny_config(), tmp_path_factory.mktemp("reference") / "tiny_reference")


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float32], ids=["bf16", "float32"])
def model(checkpoint: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    loaded = AutoModel.from_pretrained(
        checkpoint, _attn_implementation="eager", trust_remote_code=True, use_safetensors=True
    )
    loaded = loaded.eval().to(request.param)
    published = loaded.generate
    loaded.seen = []

    def generate(*args: Any, **kwargs: Any) -> torch.Tensor:
        loaded.seen.append((args, kwargs))
        return published(*args, **{**kwargs, "max_new_tokens": NEW_TOKENS})

    loaded.generate = generate
    yield loaded


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Path) -> Any:
    return AutoTokenizer.from_pretrained(checkpoint)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "page.png"
    Image.fromarray(published_page(700, 500)).save(path)
    return str(path)


@pytest.mark.parametrize(("mode", "grid", "length"), [(SMALL, [1, 1], 111), (GUNDAM, [3, 2], 273 + 31 * 20)])
def test_one_generate_call_as_published(
    model: Any, tokenizer: Any, page: str, tmp_path: Path, mode: dict[str, Any], grid: list[int], length: int,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    model.seen.clear()
    counted = mode["crop_mode"]
    arguments = {**mode, "save_results": True, "test_compress": counted}
    assert model.infer(tokenizer, PROMPT, page, str(tmp_path), **arguments) is None
    [(args, kwargs)] = model.seen
    ids, mask = args[0][0], kwargs["images_seq_mask"][0]
    assert mask.sum().item() == length
    assert ids[~mask].tolist() == [0, *tokenizer.encode(PROMPT.removeprefix("<image>"))]
    assert kwargs["images_spatial_crop"].tolist() == [grid]
    assert (kwargs["max_new_tokens"], kwargs["no_repeat_ngram_size"]) == (8192, 20)
    assert (kwargs["temperature"], kwargs["eos_token_id"], kwargs["use_cache"]) == (0.0, 1, True)
    assert {"result.mmd", "result_with_boxes.jpg", "images"} == {path.name for path in tmp_path.iterdir()}
    printed = capsys.readouterr().out
    assert ("image size:  (700, 500)" in printed) == counted
    assert (f"valid image tokens:  {int(256 * (1 - 200 / 700)) + 600}" in printed) == counted
