"""The other models of the family in a few thousand weights: their config.json, and a folder of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.seeded_weights import tiny_config

WINDOW = 4
"""New tokens that the tiny Unlimited-OCR remembers."""


def tiny_ocr2() -> dict[str, Any]:
    """DeepSeek-OCR-2: an encoder of 3 layers, its 6 heads in 2 groups."""
    config = tiny_config() | {"architectures": ["DeepseekOCR2ForCausalLM"]}
    widths = config["vision_config"]["width"]
    del widths["clip-l-14-224"]
    widths["qwen2-0-5b"] = {"dim": 48, "layers": 3, "heads": 6, "kv_heads": 2, "mlp_width": 40}
    config["projector_config"]["input_dim"] = 48
    return config


def tiny_unlimited() -> dict[str, Any]:
    """Unlimited-OCR."""
    return tiny_config() | {"architectures": ["UnlimitedOCRForCausalLM"], "sliding_window_size": WINDOW}


def written(config: dict[str, Any], folder: Path) -> str:
    """The checkpoint of random weights with that config."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return f"random:{folder}"
