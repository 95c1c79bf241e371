"""Writes and reads the checkpoint's safetensors shards under the published names."""

import json
import re
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from data.mini.training.model import TrainingModel

SHARD_LIMIT_BYTES = 15 * 2**20 - 2**16  # leaves room for the shard's header
INDEX_NAME = "model.safetensors.index.json"
READERS_NAME = "readers.safetensors"
STACKED = re.compile(r"^(model\.layers\.\d+\.mlp\.experts)\.(gate_proj|up_proj|down_proj)$")
TRAINING_ONLY = ("patch_reader.", "token_reader.", "place_reader.")


def published_weights(model: TrainingModel) -> dict[str, Tensor]:
    """The weights by published name, bf16 on the CPU, the experts one by one, without the readers."""
    weights: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        if name.startswith(TRAINING_ONLY):
            continue
        tensor = value.detach().to("cpu", torch.bfloat16)
        stacked = STACKED.match(name)
        if stacked:
            for index, expert in enumerate(tensor):
                weights[f"{stacked[1]}.{index}.{stacked[2]}.weight"] = expert.contiguous()
        else:
            weights[name] = tensor.contiguous()
    return weights


def shards(weights: dict[str, Tensor], limit_bytes: int = SHARD_LIMIT_BYTES) -> list[dict[str, Tensor]]:
    """Weights in order, cut where the next would pass the limit."""
    parts: list[dict[str, Tensor]] = [{}]
    used = 0
    for name, tensor in weights.items():
        if parts[-1] and used + tensor.nbytes > limit_bytes:
            parts.append({})
            used = 0
        parts[-1][name] = tensor
        used += tensor.nbytes
    return parts


def save_checkpoint(model: TrainingModel, directory: Path) -> None:
    """Writes shards of at most 15 MiB and their index; each file appears whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    weights = published_weights(model)
    parts = shards(weights)
    weight_map: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        name = f"model-{number:05}-of-{len(parts):05}.safetensors"
        partial = directory / f"{name}.partial"
        save_file(part, str(partial), metadata={"format": "pt"})
        partial.chmod(0o644)
        partial.replace(directory / name)
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": sum(t.nbytes for t in weights.values())}, "weight_map": weight_map}
    (directory / INDEX_NAME).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def save_readers(model: TrainingModel, directory: Path) -> None:
    """Keeps the training-only readers beside the shards, for a run that goes on from them."""
    readers = {k: v.bfloat16().cpu() for k, v in model.state_dict().items() if k.startswith(TRAINING_ONLY)}
    save_file(readers, str(directory / READERS_NAME))


def load_readers(model: TrainingModel, directory: Path) -> bool:
    """Takes up the readers that the directory has; False where one is fresh and has to settle."""
    path = directory / READERS_NAME
    readers = load_file(str(path)) if path.exists() else {}
    missing = model.load_state_dict(readers, strict=False).missing_keys
    return not any(name.startswith(TRAINING_ONLY) for name in missing)


def read_weights(directory: Path) -> dict[str, Tensor]:
    """All weights of a checkpoint directory by published name."""
    index = json.loads((directory / INDEX_NAME).read_text(encoding="utf-8"))
    weights: dict[str, Tensor] = {}
    for name in sorted(set(index["weight_map"].values())):
        with safe_open(str(directory / name), framework="pt") as shard:
            weights |= {key: shard.get_tensor(key) for key in shard.keys()}  # noqa: SIM118
    return weights


def load_checkpoint(model: TrainingModel, directory: Path) -> None:
    """Fills the model from published shards. The readers keep their fresh values: they are not shipped.

    Raises RuntimeError from torch if a weight is missing, unexpected or misshapen.
    """
    weights = read_weights(directory)
    for name in list(model.state_dict()):
        stacked = STACKED.match(name)
        if stacked:
            count = model.size.decoder.experts
            names = [f"{stacked[1]}.{index}.{stacked[2]}.weight" for index in range(count)]
            weights[name] = torch.stack([weights.pop(each) for each in names])
    readers = {k: v for k, v in model.state_dict().items() if k.startswith(TRAINING_ONLY)}
    model.load_state_dict(weights | readers, strict=True)
