"""The layouts in which checkpoints store quantised weights, by `quantization_config` in config.json.

Known are those whose tensors are plain arrays: FP8, compressed-tensors, GPTQ, AWQ. `models.quantised` reads
them. A module is taken as it is stored, whichever modules the file lists as left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dsocr_core.base.untrusted import Refused

SCALES = (".qweight", ".qzeros", ".weight_packed", ".weight_scale", ".weight_scale_inv", ".SCB")
"""Ends of names that only a quantised weight has: GPTQ and AWQ, compressed-tensors, FP8, bitsandbytes."""
ADVICE = (
    "give one in bfloat16, or serve this one and read it as endpoint:URL (read are fp8, compressed-tensors, "
    "gptq and awq, in the forms of docs/ladder.md)"
)
"""Way out for a checkpoint that is not read."""

_OF_ACTIVATIONS = ("input_scale", "input_zero_point")
"""Tensors that may be there and are not read: activations keep all their bits."""
_LARGEST = 2**24
_FORMS = {"naive-quantized": "", "float-quantized": "float", "int-quantized": "int", "pack-quantized": "int"}
"""Formats of compressed-tensors with the type of their weights, where that is one."""
_AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)


@dataclass(frozen=True)
class Scheme:
    """Layout of the weights of a checkpoint."""

    title: str
    kind: str
    """Type of the stored numbers, by its name in safetensors."""
    bits: int
    block: tuple[int, int] | None
    """Outputs and inputs that share a scale, 0 for all; None: either a tensor's or an output's."""
    needed: tuple[str, ...]
    """Ends of the names of a weight's tensors."""
    optional: tuple[str, ...] = ()
    """Ends of further ones."""
    places: tuple[int, ...] = ()
    """Place of each number in a 32-bit number; none: one by one from the lowest bits."""
    lowered: bool = False
    """Zero points are stored less 1."""

    def of(self, name: str, names: Collection[str]) -> dict[str, str]:
        """Find the tensors of a weight by the ends of their names; none where it is stored as it is."""
        module, ends = name.removesuffix("weight"), (*self.needed, *self.optional, *_OF_ACTIVATIONS)
        found = {end: module + end for end in ends if module + end in names}
        return found if any(f".{end}" in SCALES for end in found) else {}


def scheme_of(data: Any) -> Scheme:
    """Read a `quantization_config`. Raises Refused, which names the scheme."""
    method = data.get("quant_method") if isinstance(data, Mapping) else None
    reader = {"fp8": _fp8, "compressed-tensors": _compressed, "gptq": _gptq, "awq": _awq}.get(str(method))
    if reader is None:
        raise Refused("is of no name" if method is None else f"is {method!r:.40}")
    return reader(data)


def _fp8(data: Mapping[str, Any]) -> Scheme:
    block = data.get("weight_block_size")
    block = None if block is None else _pair(block, "fp8")
    return Scheme("fp8", "F8_E4M3", 8, block, ("weight",), ("weight_scale", "weight_scale_inv"))


def _compressed(data: Mapping[str, Any]) -> Scheme:
    form = str(data.get("format"))
    title = f"compressed-tensors {form!r:.40}"
    if form not in _FORMS:
        raise Refused(f"is {title}")
    sparse, turned = data.get("sparsity_config") or {}, data.get("transform_config") or {}
    if not isinstance(sparse, Mapping) or sparse.get("format", "dense") != "dense" or turned:
        raise Refused(f"is {title} with a sparsity_config or transform_config")
    found = {*_groups(data, title)}
    if len(found) != 1:
        raise Refused(f"is {title} of no, or of several, kinds of weights")
    ((kind, bits, block, more),) = found
    if _FORMS[form] not in ("", kind) or (kind, bits) not in (("float", 8), ("int", 8), ("int", 4)):
        raise Refused(f"is {title} of {kind!r:.20} with {bits} bits")
    title = f"compressed-tensors {form} {kind}{bits}"
    if form == "pack-quantized":
        return Scheme(title, "I32", bits, block, ("weight_packed", "weight_shape", "weight_scale", *more))
    needed, stored = ("weight", "weight_scale", *more), "I8" if kind == "int" else "F8_E4M3"
    # Writers have stored zero points of 0 too.
    return Scheme(title, stored, bits, block, needed, ("weight_zero_point",) if kind == "int" else ())


def _groups(
    data: Mapping[str, Any], title: str
) -> Iterator[tuple[str, int, tuple[int, int], tuple[str, ...]]]:
    """Give type, bits, block and further tensors of the weights of each group of modules."""
    groups = data.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping) or group.get("format") not in (None, data["format"]):
            raise Refused(f"is {title} with a group of modules without weights, or of another format")
        size = weights.get("group_size")
        usual = "tensor" if size is None else "channel" if size == -1 else "group"
        strategy = str(weights.get("strategy") or usual)
        if strategy == "group":
            block = (1, _size(size, title))
        elif strategy == "block":
            block = _pair(weights.get("block_structure"), title)
        elif strategy in ("tensor", "channel"):
            block = (int(strategy == "channel"), 0)
        else:
            raise Refused(f"is {title} with strategy {strategy!r:.40}")
        more = () if weights.get("symmetric", True) is True else ("weight_zero_point",)
        if str(weights.get("actorder")).lower() not in ("none", "false", "weight", "static"):
            more = (*more, "weight_g_idx")
        yield str(weights.get("type", "int")), _size(weights.get("num_bits", 8), title), block, more


def _gptq(data: Mapping[str, Any]) -> Scheme:
    form = data.get("checkpoint_format") or data.get("format") or "gptq"
    if data.get("is_marlin_format"):
        form = "marlin"
    if form not in ("gptq", "gptq_v2"):
        raise Refused(f"is gptq in the format {form!r:.40}")
    block, bits = _by_group("gptq", data, (4, 8))
    needed = ("qweight", "qzeros", "scales", *(("g_idx",) if data.get("desc_act") else ()))
    return Scheme(f"gptq int{bits}", "I32", bits, block, needed, ("g_idx",), lowered=form == "gptq")


def _awq(data: Mapping[str, Any]) -> Scheme:
    form = str(data.get("version") or data.get("checkpoint_format") or data.get("format") or "gemm").lower()
    if form != "gemm" or (maker := data.get("backend", "autoawq")) != "autoawq":
        raise Refused(f"is awq in the format {form if form != 'gemm' else maker!r:.40}")
    block, bits = _by_group("awq", data, (4,))
    return Scheme(f"awq int{bits}", "I32", bits, block, ("qweight", "qzeros", "scales"), places=_AWQ_PLACES)


def _by_group(title: str, data: Mapping[str, Any], known: tuple[int, ...]) -> tuple[tuple[int, int], int]:
    bits, size = data.get("bits"), data.get("group_size", 128)
    if type(bits) is not int or bits not in known:
        raise Refused(f"is {title} with {bits!r:.20} bits")
    return (1, 0 if size == -1 else _size(size, title)), bits


def _size(value: Any, title: str) -> int:
    if type(value) is not int or not 0 < value <= _LARGEST:
        raise Refused(f"is {title} with a size of {value!r:.40}")
    return value


def _pair(value: Any, title: str) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise Refused(f"is {title} with blocks of {value!r:.40}")
    return _size(value[0], title), _size(value[1], title)
