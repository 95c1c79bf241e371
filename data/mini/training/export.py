"""Writes the checkpoint's safetensors shards under the published names; the core reads them."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from data.mini.training.model import TrainingModel
from dsocr_core.models.weights import INDEX_NAME, load_model, published_parameters

SHARD_LIMIT_BYTES = 15 * 2**20 - 2**16  # leaves room for the shard's header
READERS_NAME = "readers.safetensors"
READERS = ("patch_reader.", "token_reader.", "place_reader.")


def published_weights(model: TrainingModel) -> dict[str, Tensor]:
    """The weights by published name, bf16 on the CPU, the experts one by one, without the readers."""
    weights = published_parameters(model.model)
    return {name: tensor.to("cpu", torch.bfloat16).contiguous() for name, tensor in weights}


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
    readers = {k: v.bfloat16().cpu() for k, v in model.state_dict().items() if k.startswith(READERS)}
    save_file(readers, str(directory / READERS_NAME))


def load_readers(model: TrainingModel, directory: Path) -> bool:
    """Takes up the readers that the directory has; False where one is fresh and has to settle."""
    path = directory / READERS_NAME
    readers = load_file(str(path)) if path.exists() else {}
    missing = model.load_state_dict(readers, strict=False).missing_keys
    return not any(name.startswith(READERS) for name in missing)


def load_checkpoint(model: TrainingModel, directory: Path) -> None:
    """Fills the model from published shards. The readers keep their fresh values: they are not shipped.

    Raises DsocrError if a weight is missing, unexpected or misshapen.
    """
    loaded = load_model(model.config, directory, torch.device("cpu"), torch.float32)
    model.model.load_state_dict(loaded.state_dict())
