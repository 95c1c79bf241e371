"""Loading by published name: strict, readable errors, and the same tensors as in the file."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dsocr_core.base.errors import DsocrError
from dsocr_core.models.family import load_config, parse_config
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import load_model, published_parameters, random_model
from tests.support.paths import PUBLISHED
from tests.support.seeded_weights import seeded_weight, tiny_config, write_seeded_weights

CPU = torch.device("cpu")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(tiny_config()))
    write_seeded_weights(tiny_config(), tmp_path, torch.float32)
    return tmp_path


def edit_shard(checkpoint: Path, change: dict[str, torch.Tensor | None]) -> None:
    """Replace or drop tensors of the shards and of the index; new ones go to the first shard."""
    index_file = checkpoint / "model.safetensors.index.json"
    index = json.loads(index_file.read_text())
    weight_map = {name: file for name, file in index["weight_map"].items() if name not in change}
    shards = sorted(set(index["weight_map"].values()))
    for shard in shards:
        kept = {name: x for name, x in load_file(checkpoint / shard).items() if name not in change}
        added = {name: x for name, x in change.items() if x is not None and shard == shards[0]}
        save_file(kept | added, checkpoint / shard)
        weight_map |= dict.fromkeys(added, shard)
    index_file.write_text(json.dumps({"weight_map": weight_map}))


def load(checkpoint: Path, dtype: torch.dtype = torch.float32) -> OcrModel:
    return load_model(load_config(checkpoint), checkpoint, CPU, dtype)


def assert_weights_of_the_files(model: OcrModel) -> None:
    for name, tensor in published_parameters(model):
        assert torch.equal(tensor, torch.from_numpy(seeded_weight(name, tuple(tensor.shape)))), name


def test_every_weight_is_the_files(checkpoint: Path) -> None:
    assert_weights_of_the_files(load(checkpoint))
    cast = load(checkpoint, torch.bfloat16)
    assert {tensor.dtype for _, tensor in published_parameters(cast)} == {torch.bfloat16}
    # What save_pretrained writes of CLIP besides.
    positions = load_config(checkpoint).clip.positions
    edit_shard(checkpoint, {POSITION_IDS: torch.arange(positions).expand(1, -1).contiguous()})
    assert_weights_of_the_files(load(checkpoint))


POSITION_IDS = "model.vision_model.embeddings.position_ids"
MATRICES = [f"model.layers.{layer}.self_attn.{p}_proj.weight" for layer in range(3) for p in "qkvo"]
QUANTISED = [
    ({"model.norm.weight": torch.ones(64).to(kind)},
     ("norm.weight is stored as ", " without a scale; ", "endpoint:URL"))
    for kind in (torch.int8, torch.uint8, torch.float8_e4m3fn, torch.int32)
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"model.norm.weight": None, "model.extra": torch.zeros(1), "model.image_newline": torch.zeros(3)},
            ("1 missing (model.norm.weight)", "1 unexpected (model.extra)",
             "1 misshapen (model.image_newline is [3], config says [64])"),
        ),
        (dict.fromkeys(MATRICES), (f"12 missing ({', '.join(MATRICES[:5])}, ...)",)),
        ({POSITION_IDS: torch.arange(7)[None]}, ("position_ids is [1, 7], config says [1, 257]",)),
        ({"model.vision_model.other_ids": torch.arange(7)[None]},
         ("1 unexpected (model.vision_model.other_ids)",)),
        *QUANTISED,
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_one_line(
    checkpoint: Path, change: dict[str, torch.Tensor | None], says: tuple[str, ...]
) -> None:
    edit_shard(checkpoint, change)
    with pytest.raises(DsocrError) as error:
        load(checkpoint)
    assert "\n" not in str(error.value) and str(checkpoint) in str(error.value)
    assert [part for part in says if part not in str(error.value)] == []


def test_files_that_are_not_there_or_damaged(checkpoint: Path) -> None:
    first, second = (checkpoint / f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
    first.write_bytes(first.read_bytes()[:1000])
    with pytest.raises(DsocrError, match=r"model-00001-of-00002\.safetensors: cannot be read"):
        load(checkpoint)
    second.unlink()
    with pytest.raises(DsocrError, match="model-00002-of-00002"):
        load(checkpoint)
    (checkpoint / "model.safetensors.index.json").unlink()
    with pytest.raises(DsocrError, match="random:PATH"):
        load(checkpoint)


def test_random_weights_are_seeded() -> None:
    config = parse_config(tiny_config())
    first, again = (dict(published_parameters(random_model(config, CPU, torch.float32))) for _ in range(2))
    other = dict(published_parameters(random_model(config, CPU, torch.float32, seed=1)))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


def test_names_and_sizes_are_the_published_checkpoints() -> None:
    with torch.device("meta"):
        weights = dict(published_parameters(OcrModel(load_config(PUBLISHED))))
    assert len(weights) == 2710  # names of the published index, and what they hash to in their order
    digest = hashlib.sha256("\n".join(sorted(weights)).encode()).hexdigest()
    assert digest == "c3bd0ecd3dacf3b8d6bc9a086ae866572e5653437df4ac7d4c4bb6da954331c9"
    assert sum(tensor.numel() for tensor in weights.values()) == 3_336_106_240


def test_sizes_that_no_memory_holds_are_refused_before_anything_is_allocated() -> None:
    config = parse_config(tiny_config() | {"n_routed_experts": 10_000, "moe_intermediate_size": 2**24})
    with pytest.raises(DsocrError, match=r"config\.json describes weights of [\d,.]+ GB; cpu has"):
        random_model(config, CPU, torch.float32)
