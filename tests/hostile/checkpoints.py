"""Checkpoint directories with sizes beyond memory, damaged JSON and weights, pipes and devices for files."""

from __future__ import annotations

import copy
import json
import os
import struct
from pathlib import Path
from random import Random
from typing import Any

import torch

from dsocr_core.base.paths import EMBEDDED_CHECKPOINT
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.vendor.remote_code import remote_code
from tests.hostile.damage import VALUES, damaged

_INDEX, _WEIGHTS = "model.safetensors.index.json", "model-00001-of-00001.safetensors"


def checkpoints(random: Random, folder: Path) -> str | None:
    """One directory, loaded as an engine loads it. Raises DsocrError when it is refused."""
    for name, content in _files(random).items():
        (folder / name).write_bytes(content)
    if random.random() < 0.1:
        path = folder / random.choice(("config.json", _INDEX, _WEIGHTS, "tokenizer.json"))
        path.unlink(missing_ok=True)
        target = random.choice((None, "/dev/zero", path))
        path.symlink_to(target) if target else os.mkfifo(path)
    remote_code(folder)
    load_checkpoint(str(folder), torch.device("cpu"), torch.float32)
    return "a checkpoint without the weights it names was loaded"


def _files(random: Random) -> dict[str, bytes]:
    config = json.loads((EMBEDDED_CHECKPOINT / "config.json").read_text(encoding="utf-8"))
    names = ["model.embed_tokens.weight", "lm_head.weight", "x" * random.choice((1, 5000)), "a/../b"]
    place = random.choice((_WEIGHTS, "../x", "/etc/passwd", "n" * 5000))
    index: Any = {"weight_map": dict.fromkeys(names, place)}
    for document in random.choices((config, config, index), k=random.randint(0, 3)):
        _change(random, document)
    if random.random() < 0.2:
        config["auto_map"] = {"AutoModel": random.choice(("/elsewhere--m.X", "m.X", "../m.X", 7))}
    # Weights that say more than they hold.
    shape = random.choice(([2, 2], [10**12], [2**62, 4], [-1], []))
    weight = {"dtype": "F32", "shape": shape, "data_offsets": [0, random.choice((16, 0, 10**15))]}
    head = json.dumps({"lm_head.weight": weight}).encode()
    length = struct.pack("<Q", random.choice((len(head), len(head), 2**63, 0, 10**9)))
    files = {"config.json": json.dumps(config).encode(), _INDEX: json.dumps(index).encode()}
    files[_WEIGHTS] = length + head + bytes(16)
    if random.random() < 0.4:
        name = random.choice(list(files))
        files[name] = damaged(random, files[name])
    if random.random() < 0.05:
        files["config.json"] = b'{"a":' * random.choice((100, 10**5)) + b"1"
    return files


def _change(random: Random, value: Any) -> None:
    """One value of a document, at any depth, becomes another."""
    while isinstance(value, dict) and value:
        key = random.choice(list(value))
        if not isinstance(value[key], dict) or random.random() < 0.1:
            value[key] = copy.deepcopy(random.choice(VALUES))  # a later change may go into it
            return
        value = value[key]
