"""The seeded checkpoints have the published names and the published total size."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from tests.support.paths import SHARED
from tests.support.seeded_weights import (
    MARKUP,
    byte_tokenizer,
    seeded_weight,
    tiny_config,
    weight_shapes,
    write_seeded_checkpoint,
)

PUBLISHED = SHARED / "data" / "vendor"


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published facts are not beside the repository")
def test_full_size_has_the_published_names_and_parameter_count() -> None:
    config = json.loads((PUBLISHED / "config.json").read_text())
    index = json.loads((PUBLISHED / "model.safetensors.index.json").read_text())
    shapes = weight_shapes(config)
    assert set(shapes) == set(index["weight_map"])
    assert sum(math.prod(shape) for shape in shapes.values()) == 3_336_106_240
    assert index["metadata"]["total_size"] == 2 * 3_336_106_240


def test_checkpoint_holds_every_weight_in_the_asked_dtype(tmp_path: Path) -> None:
    directory = write_seeded_checkpoint(tiny_config(), tmp_path / "tiny", torch.float32)
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    shapes = weight_shapes(tiny_config())
    assert set(index["weight_map"]) == set(shapes)
    name = "model.layers.1.mlp.experts.3.down_proj.weight"
    with safe_open(directory / index["weight_map"][name], "pt") as shard:
        stored = shard.get_tensor(name)
    assert stored.dtype == torch.float32
    assert torch.equal(stored, torch.from_numpy(seeded_weight(name, shapes[name])))


def test_byte_tokenizer_round_trips_and_knows_the_markup() -> None:
    tokenizer = byte_tokenizer()
    text = "<image>\n<|ref|>naïve 文<|/ref|> a  b"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=False, spaces_between_special_tokens=False) == text
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 1, 2)
    assert all(len(tokenizer.encode(token, add_special_tokens=False)) == 1 for token in MARKUP)
    assert max(tokenizer.get_vocab().values()) < tiny_config()["vocab_size"]
