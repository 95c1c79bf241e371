"""DeepSeek-OCR-2 as transformers itself has it (5.10.1 and later), for `command:`; see docs/backends.md.

Runs by itself in an environment with transformers, torch and Pillow. It reads the files of the published
checkpoint in float32, and runs none of its code.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageOps
from tokenizers import Tokenizer
from transformers import DeepseekOcr2Config, DeepseekOcr2ForConditionalGeneration
from transformers.models.deepseek_ocr2.image_processing_pil_deepseek_ocr2 import (
    DeepseekOcr2ImageProcessorPil,
)

PROMPT = "<image>\n<|grounding|>Convert the document to markdown."


def native_config(published: dict[str, Any], image_id: int) -> DeepseekOcr2Config:
    """Build the library's config from the published one; its own defaults are another model's."""
    width = published["vision_config"]["width"]
    sam, encoder = width["sam_vit_b"], width["qwen2-0-5b"]
    layers, dense = published["num_hidden_layers"], published["first_k_dense_replace"]
    names = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "max_position_embeddings", "bos_token_id", "eos_token_id",
        "moe_intermediate_size", "n_routed_experts", "n_shared_experts", "num_experts_per_tok",
    )  # fmt: skip
    text = {name: published[name] for name in names}
    text["mlp_layer_types"] = ["dense"] * dense + ["sparse"] * (layers - dense)
    vision = {
        "sam_config": {
            "hidden_size": sam["width"],
            "num_hidden_layers": sam["layers"],
            "num_attention_heads": sam["heads"],
            "global_attn_indexes": sam["global_attn_indexes"],
            "downsample_channels": [sam["downsample_channels"][0], encoder["dim"]],
        },
        "encoder_config": {
            "hidden_size": encoder["dim"],
            "num_hidden_layers": encoder.get("layers", 24),
            "num_attention_heads": encoder.get("heads", 14),
            "num_key_value_heads": encoder.get("kv_heads", 2),
            "intermediate_size": encoder.get("mlp_width", 4864),
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
    }
    config = DeepseekOcr2Config(vision_config=vision, text_config=text, image_token_id=image_id)
    config.eos_token_id, config.bos_token_id = text["eos_token_id"], text["bos_token_id"]
    return config


def main() -> None:
    """Read a page and leave its text as NAME.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--image", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--new-tokens", type=int, default=8192)
    parser.add_argument("--ngram-size", type=int, default=20)
    parser.add_argument("--logits", type=Path, help="file for the tokens and each step's logits (torch.save)")
    given = parser.parse_args()

    tokenizer = Tokenizer.from_file(str(given.checkpoint / "tokenizer.json"))
    published = json.loads((given.checkpoint / "config.json").read_text(encoding="utf-8"))
    config = native_config(published, tokenizer.token_to_id("<image>"))
    model = DeepseekOcr2ForConditionalGeneration.from_pretrained(
        given.checkpoint, config=config, dtype=torch.float32
    ).eval()

    image = ImageOps.exif_transpose(Image.open(given.image)).convert("RGB")
    views = DeepseekOcr2ImageProcessorPil()(image, return_tensors="pt")
    views = {  # the published code rounds its pixels, whatever the weights' dtype
        name: part.bfloat16().float() if part.is_floating_point() else part for name, part in views.items()
    }
    count = 144 * int(views["num_local_patches"][0]) + 257
    before, after = (
        tokenizer.encode(part, add_special_tokens=False).ids for part in given.prompt.strip().split("<image>")
    )
    ids = [config.bos_token_id, *before, *[config.image_token_id] * count, *after]
    with torch.inference_mode():
        answer = model.generate(
            input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), **views,
            max_new_tokens=given.new_tokens, do_sample=False, no_repeat_ngram_size=given.ngram_size,
            pad_token_id=config.eos_token_id, return_dict_in_generate=True, output_logits=bool(given.logits),
        )  # fmt: skip
    tokens = answer.sequences[0, len(ids) :].tolist()
    if given.logits:
        torch.save({"tokens": tokens, "logits": torch.cat(answer.logits)}, given.logits)
    text = tokenizer.decode(tokens, skip_special_tokens=False)
    (given.out / f"{given.image.stem}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
