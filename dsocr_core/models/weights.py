"""Weights by their published names: from safetensors, or seeded random ones for benchmarks.

Our modules follow the published names but for a few prefixes and the routed experts, which are stacked in one
tensor a projection. Only `published_parameters` knows both spellings.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dsocr_core.base.bounded_json import InvalidFile, parse_json, read_bytes
from dsocr_core.base.errors import DsocrError
from dsocr_core.models.config import QUANTISED_ADVICE, ModelConfig
from dsocr_core.models.devices import Gpu
from dsocr_core.models.ocr_model import OcrModel

INDEX_NAME, SINGLE_NAME = "model.safetensors.index.json", "model.safetensors"
log = logging.getLogger(__name__)
_SHOWN = 5
_READ = ("BF16", "F16", "F32", "F64")
"""Types in which weights may be stored. Other types need a scale to mean anything."""
_INDEX_LIMIT = 64 * 1024 * 1024  # bytes
WIDE = ("q_proj.weight", "k_proj.weight")  # ends of the names of random weights that are wider
_GAIN, _WIDE_GAIN = 1.1, 2.2


def published_parameters(model: OcrModel) -> Iterator[tuple[str, Tensor]]:
    """Every weight of the checkpoint format as (published name, the tensor it is stored in)."""
    for name, parameter in model.named_parameters():
        name = model.family.published_name(name)
        module, _, leaf = name.rpartition(".")
        if module.endswith(".experts"):
            for expert in range(parameter.shape[0]):
                yield f"{module}.{expert}.{leaf}.weight", parameter.detach()[expert]
        else:
            yield name, parameter.detach()


def load_model(
    config: ModelConfig, directory: Path, device: torch.device, dtype: torch.dtype,
    on_bytes: Callable[[int, int], object] = lambda done, count: None,
) -> OcrModel:  # fmt: skip
    """Model of a checkpoint directory, its weights copied straight to `device` in `dtype`.

    `on_bytes` hears how many are there, and of how many. Strict: raises DsocrError that lists the first
    missing, unexpected or misshapen weights.
    """
    shards = _shards(directory)
    model = _allocate(config, device, dtype)
    expected = dict(published_parameters(model))
    count, done = sum(tensor.nbytes for tensor in expected.values()), 0
    shapes = {name: tuple(tensor.shape) for name, tensor in expected.items()}
    if config.clip is not None:  # 0, 1, ...: fine-tuned checkpoints have them; they are not read
        shapes["model.vision_model.embeddings.position_ids"] = 1, config.clip.positions
    missing, unexpected, misshapen = dict.fromkeys(expected), list[str](), list[str]()
    for shard in shards:
        try:
            tensors: Any = safe_open(shard, framework="pt")
        except (OSError, SafetensorError) as error:
            raise DsocrError(f"{shard}: cannot be read as safetensors ({error})") from error
        for name in tensors.keys():  # noqa: SIM118
            weight, _ = tensors.get_slice(name), missing.pop(name, None)
            if (wanted := shapes.get(name)) is None:
                unexpected.append(name)
            elif (shape := tuple(weight.get_shape())) != wanted:
                misshapen.append(f"{name} is {list(shape)}, config says {list(wanted)}")
            elif name in expected:
                if (kind := weight.get_dtype()) not in _READ:
                    stored = f"{name} is stored as {kind} without a scale"
                    raise DsocrError(f"{shard}: {stored}; {QUANTISED_ADVICE}")
                expected[name].copy_(tensors.get_tensor(name))
                on_bytes(done := done + expected[name].nbytes, count)
    faults = {"missing": [*missing], "unexpected": unexpected, "misshapen": misshapen}
    problems = [
        f"{len(names)} {kind} ({', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''})"
        for kind, names in faults.items()
        if names
    ]
    if problems:
        raise DsocrError(f"{directory}: weights do not fit config.json: {'; '.join(problems)}")
    return model


def random_model(config: ModelConfig, device: torch.device, dtype: torch.dtype, seed: int = 0) -> OcrModel:
    """Model of that size with seeded random weights, equal on devices of the same kind.

    Matrices are scaled by fan-in and norms lie near 1, so activations stay in a real model's range. Queries
    and keys are wider, so that tokens differ and a prompt reaches most experts.
    """
    model = _allocate(config, device, dtype)
    generator = torch.Generator(device)
    for name, tensor in published_parameters(model):
        generator.manual_seed(seed ^ crc32(name.encode()))
        tensor.normal_(generator=generator)
        if "pos_embed" in name or "rel_pos" in name or "position_embedding" in name:
            tensor.mul_(0.05)
        elif tensor.ndim == 1 and name.endswith("weight"):
            tensor.mul_(0.08).add_(1.0)
        elif tensor.ndim == 1:
            tensor.mul_(0.07)
        elif "embed_tokens" in name:
            tensor.mul_(0.5)
        else:
            tensor.mul_((_WIDE_GAIN if name.endswith(WIDE) else _GAIN) * tensor[0].numel() ** -0.5)
    return model


def _allocate(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> OcrModel:
    """Modules with uninitialised memory on the device, and none on the host."""
    model = empty_model(config, dtype)
    needed = sum(parameter.nbytes for parameter in model.parameters())
    if device.type == "cuda":
        _require_gpu(Gpu.of(device), needed)
    elif needed > (memory := os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")):
        raise DsocrError(
            f"config.json describes weights of {needed / 1e9:,.1f} GB; {device} has {memory / 1e9:,.1f} GB"
        )
    # Not `to_empty`, which imports symbolic algebra for the strides of such tensors.
    for module in model.modules():
        for name, shape in [(name, weight.shape) for name, weight in module.named_parameters(recurse=False)]:
            storage = torch.empty(shape, dtype=dtype, device=device)
            setattr(module, name, nn.Parameter(storage, requires_grad=False))
    return model.eval()


def weight_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
    """Bytes of a model's weights."""
    return sum(parameter.nbytes for parameter in empty_model(config, dtype).parameters())


def empty_model(config: ModelConfig, dtype: torch.dtype) -> OcrModel:
    """Modules of a model of those sizes without memory, on the meta device."""
    with torch.device("meta"), _Unfilled():
        return OcrModel(config).to(dtype)


def _require_gpu(gpu: Gpu, needed: int) -> None:
    """Log the GPU's facts. Raises DsocrError where it cannot run anything, or the weights do not fit."""
    takes = f"the weights take {needed / 1e9:,.1f} GB"
    if not gpu.has_kernels:
        raise DsocrError(gpu.lacks)
    if needed > gpu.free_bytes:
        has = f"has {gpu.free_bytes / 1e9:,.1f} of {gpu.total_bytes / 1e9:,.1f} GB free"
        raise DsocrError(f"{takes} and {gpu.title}, {has}: end what else runs there, or give --device cpu")
    log.info("%s; %s", gpu, takes)
    if gpu.lacks:
        log.warning("%s", gpu.lacks)


class _Unfilled(TorchFunctionMode):
    """Mode in which modules leave new weights unset: they are written afterwards.

    Random numbers for tensors without memory would import torch's compiler first.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def read_index(index: Path) -> tuple[dict[str, str], int | None]:
    """Shard of each weight, and bytes of all; None where the index does not tell. Raises DsocrError."""
    try:
        document = parse_json(read_bytes(index, _INDEX_LIMIT, follow_links=True))
        size = document.get("metadata", {}).get("total_size")
        return {name: str(shard) for name, shard in document["weight_map"].items()}, size
    except (InvalidFile, KeyError, TypeError, AttributeError) as error:
        raise DsocrError(f"{index}: not a safetensors index ({error})") from error


def _shards(directory: Path) -> list[Path]:
    """Files with the weights of a checkpoint directory. Raises DsocrError."""
    index, single = directory / INDEX_NAME, directory / SINGLE_NAME
    if not index.is_file():
        if single.is_file():
            return [single]
        raise DsocrError(
            f"{directory}: neither {INDEX_NAME} nor {SINGLE_NAME} is here; "
            "give a DeepSeek-OCR checkpoint directory, or random:PATH/config.json"
        )
    shard_of, _ = read_index(index)
    names = sorted(set(shard_of.values()))
    present = {file.name for file in directory.iterdir() if file.is_file()}
    for name in names:
        if name not in present:
            raise DsocrError(f"{index}: shard {name!r:.60} is no file beside it; download it")
    return [directory / name for name in names]
