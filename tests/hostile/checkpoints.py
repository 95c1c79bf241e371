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
from tests.hostile.damage import damaged

_INDEX, _WEIGHTS = "model.safetensors.index.json", "model-00001-of-00001.safetensors"
_VALUES: tuple[Any, ...] = (
    0, -1, 1, 2, 10**6, 10**9, 10**12, 10**30, 10**400, -(10**18), 1.5, 1e308, float("nan"),
    float("inf"), True, None,
    "x", "../x", "/dev/zero", "a\0b", "x" * 5000, [], {}, [1] * 10_000, [[]], {"a": {}},
)  # fmt: skip


def checkpoints(random: Random, folder: Path) -> str | None:
    """One directory, loaded as an engine loads it. Raises DsocrError when it is refused."""
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    for name, content in _files(random).items():
        (checkpoint / name).write_bytes(content)
    if random.random() < 0.1:
        _replace(random, checkpoint / random.choice(("config.json", _INDEX, _WEIGHTS, "tokenizer.json")))
    remote_code(checkpoint)
    load_checkpoint(str(checkpoint), torch.device("cpu"), torch.float32)
    return "a checkpoint without the weights it names was loaded"


def _files(random: Random) -> dict[str, bytes]:
    config = json.loads((EMBEDDED_CHECKPOINT / "config.json").read_text(encoding="utf-8"))
    names = ["model.embed_tokens.weight", "lm_head.weight", "x" * random.choice((1, 5000)), "a/../b"]
    place = random.choice((_WEIGHTS, "../x", "/etc/passwd", "n" * 5000))
    index: Any = {"weight_map": dict.fromkeys(names, place)}
    for _ in range(random.randint(0, 3)):
        _change(random, config)
    if random.random() < 0.3:
        _change(random, index)
    if random.random() < 0.2:
        config["auto_map"] = {"AutoModel": random.choice(("/elsewhere--m.X", "m.X", "../m.X", 7))}
    if random.random() < 0.1:
        config["configuration_files"] = random.choice((["config.4.json"], {}, "x", None))
    files = {"config.json": json.dumps(config).encode(), _INDEX: json.dumps(index).encode()}
    files[_WEIGHTS] = _weights(random)
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
            value[key] = copy.deepcopy(random.choice(_VALUES))  # a later change may go into it
            return
        value = value[key]


def _weights(random: Random) -> bytes:
    """A safetensors file that says more than it holds."""
    shape = random.choice(([2, 2], [10**12], [2**62, 4], [-1], []))
    weight = {"dtype": "F32", "shape": shape, "data_offsets": [0, random.choice((16, 0, 10**15))]}
    text = json.dumps({"lm_head.weight": weight}).encode()
    length = random.choice((len(text), len(text), 2**63, 0, 10**9))
    return struct.pack("<Q", length) + text + bytes(16)


def _replace(random: Random, path: Path) -> None:
    path.unlink(missing_ok=True)
    target = random.choice((None, "/dev/zero", path))
    path.symlink_to(target) if target else os.mkfifo(path)
