"""Checkpoints of the published format with seeded random weights, at any size.

The recipe is the one of `forward.json`: for a parameter's published name, n are standard normal
float32 numbers of `Generator(PCG64(crc32(name)))`, scaled by what kind of weight it is. So a weight
depends on its name and shape only, and every implementation can make the same one.
"""

from __future__ import annotations

import copy
import json
import math
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from dsocr_core.models.family import parse_config
from dsocr_core.models.weights import empty_model, published_parameters
from tests.support.paths import MINI, PUBLISHED

REMOTE_CODE = MINI

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
MARKUP = (
    "<image>", "<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<|grounding|>",
    "<td>", "</td>", "<tr>", "</tr>", "<|User|>", "<|Assistant|>",
)  # fmt: skip
"""Added tokens in the published order."""

WINDOW = 8
"""New tokens that the tiny Unlimited-OCR remembers."""
TINY_VOCABULARY = 288
"""3 specials, 256 bytes, the markup tokens, and some ids that no text has."""

Shape = tuple[int, ...]


def tiny_config() -> dict[str, Any]:
    """The published `config.json` with sizes that are small enough for tests on a CPU."""
    sizes = {
        "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 48, "n_routed_experts": 4,
        "num_attention_heads": 4, "num_experts_per_tok": 2, "num_hidden_layers": 3, "num_key_value_heads": 4,
        "vocab_size": TINY_VOCABULARY, "torch_dtype": "bfloat16",
    }  # fmt: skip
    config = json.loads((PUBLISHED / "config.json").read_text("utf-8")) | {"transformers_version": "4.46.3"}
    config["projector_config"] |= {"input_dim": 64, "n_embed": 64}
    width = config["vision_config"]["width"]
    width["clip-l-14-224"] |= {"heads": 4, "layers": 2, "width": 32}
    sam = {"downsample_channels": [24, 32], "global_attn_indexes": [1], "heads": 2, "layers": 3, "width": 32}
    width["sam_vit_b"] |= sam
    return with_changes(_of_model(config, "deepseekocr", "DeepseekOCR"), **sizes)


def _of_model(config: dict[str, Any], module: str, name: str) -> dict[str, Any]:
    """The config with the classes of another model."""
    names = {"AutoConfig": f"{name}Config", "AutoModel": f"{name}ForCausalLM"}
    auto = {auto: f"modeling_{module}.{of}" for auto, of in names.items()}
    return config | {"architectures": [names["AutoModel"]], "auto_map": auto}


def tiny_ocr2_config() -> dict[str, Any]:
    """The same of DeepSeek-OCR-2, with the encoder's sizes, which the published file leaves out."""
    config = _of_model(tiny_config(), "deepseekocr2", "DeepseekOCR2")
    width = config["vision_config"]["width"]
    del width["clip-l-14-224"]
    width["qwen2-0-5b"] = {"dim": 32, "layers": 2, "heads": 4, "kv_heads": 2, "mlp_width": 48}
    config["projector_config"]["input_dim"] = 32
    return config


def tiny_unlimited_config(window: int = WINDOW) -> dict[str, Any]:
    """The same of Unlimited-OCR."""
    config = with_changes(tiny_config(), sliding_window_size=window, max_position_embeddings=32768)
    return _of_model(config, "unlimitedocr", "UnlimitedOCR") | {"model_type": "unlimited-ocr"}


def written(config: dict[str, Any], folder: Path) -> str:
    """The checkpoint of random weights with that config."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return f"random:{folder}"


def with_changes(config: dict[str, Any], **decoder_fields: Any) -> dict[str, Any]:
    """The config with decoder fields changed in both places where the file holds them."""
    changed = copy.deepcopy(config)
    changed.update(decoder_fields)
    changed["language_config"].update(decoder_fields)
    return changed


def weight_shapes(config: dict[str, Any]) -> dict[str, Shape]:
    """Published name -> shape of every weight (tests/models/test_weights.py holds both to the published)."""
    model = empty_model(parse_config(config), torch.float32)
    return {name: tuple(tensor.shape) for name, tensor in published_parameters(model)}


def seeded_weight(name: str, shape: Shape) -> np.ndarray:
    """The float32 weight of that published name."""
    seed = zlib.crc32(name.encode())
    n = np.random.Generator(np.random.PCG64(seed)).standard_normal(shape, dtype=np.float32)
    if len(shape) == 1:
        return 1 + np.float32(0.05) * n if name.endswith("weight") else np.float32(0.05) * n
    if any(part in name for part in ("rel_pos", "pos_embed", "position_embedding")):
        return np.float32(0.05) * n
    if "embed_tokens" in name:
        return np.float32(0.5) * n
    return n / np.float32(math.sqrt(math.prod(shape[1:])))


def write_seeded_checkpoint(
    config: dict[str, Any], directory: Path, dtype: torch.dtype = torch.bfloat16
) -> Path:
    """Write config, seeded weights, tokenizer and the reference's remote code; returns `directory`.

    Code of another model than the first lies in tests/published.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    write_seeded_weights(config, directory, dtype)
    byte_tokenizer().save_pretrained(directory)
    model = config["auto_map"]["AutoModel"].partition(".")[0]
    own = PUBLISHED.glob(f"*/{model}.py")
    for source in (*REMOTE_CODE.glob("*.py"), *own):
        shutil.copy(source, directory / source.name)
    return directory


def write_seeded_weights(config: dict[str, Any], directory: Path, dtype: torch.dtype) -> None:
    """Write two `model-0000i-of-00002.safetensors` and their index, one shard in memory at a time."""
    shapes, weight_map = weight_shapes(config), dict[str, str]()
    half = len(shapes) // 2
    for number, part in enumerate((list(shapes)[:half], list(shapes)[half:]), start=1):
        file = f"model-{number:05d}-of-00002.safetensors"
        tensors = {name: torch.from_numpy(seeded_weight(name, shapes[name])).to(dtype) for name in part}
        save_file(tensors, directory / file, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(part, file))
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and the published special tokens with ids of its own (bos 0, eos 1, pad 2)."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([BOS, EOS, PAD, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in (BOS, EOS, PAD, *MARKUP)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, pad_token=PAD,
        clean_up_tokenization_spaces=False, model_max_length=10**30,
    )  # fmt: skip
