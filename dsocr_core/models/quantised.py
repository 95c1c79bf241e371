"""Weights that a checkpoint stores in fewer bits, by its `quantization_config`: their values as float32.

Read are those whose tensors are plain arrays: FP8, compressed-tensors, GPTQ, AWQ. A module is read as it is
stored, whichever modules the file lists as left alone. Of activations nothing is read: they keep all bits.

Letters: M outputs, K inputs, G groups of inputs that share a scale.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from torch import Tensor

from dsocr_core.base.untrusted import Refused

SCALES = (".qweight", ".qzeros", ".weight_packed", ".weight_scale", ".weight_scale_inv", ".SCB")
"""Ends of names that only a quantised weight has: GPTQ and AWQ, compressed-tensors, FP8, bitsandbytes."""

ADVICE = (
    "give one in bfloat16, or serve this one and read it as endpoint:URL (read are fp8, compressed-tensors, "
    "gptq and awq, in the forms of docs/ladder.md)"
)
"""Way out for a checkpoint that is not read."""

_FLOATS = ("F32", "F16", "BF16", "F64")
_OPTIONAL = ("weight_zero_point", "weight_g_idx", "g_idx", "weight_scale", "weight_scale_inv")
_UNREAD = ("input_scale", "input_zero_point")
_SPREAD = {"tensor": (0, 0), "channel": (1, 0)}
_LARGEST = 2**24
_FORMS = {"naive-quantized": "", "float-quantized": "float", "int-quantized": "int", "pack-quantized": "int"}
"""Formats of compressed-tensors with the type of their weights, where that is one."""
_AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""Place in a 32-bit number of each of eight outputs in turn."""

Take = Callable[[str, tuple[str, ...], tuple[tuple[int, ...], ...]], Tensor]
"""Reads a tensor of that name in one of the types and one of the shapes. Raises DsocrError."""


@dataclass(frozen=True)
class Scheme:
    """Layout of the weights of a checkpoint."""

    title: str
    parts: tuple[str, ...]
    """Ends of the names of a weight's tensors; those of `_OPTIONAL` need not be there."""
    kind: str
    """Type of the stored numbers, by its name in safetensors."""
    bits: int
    block: tuple[int, int] | None
    """Outputs and inputs that share a scale, 0 for all; None: either a tensor's or an output's."""
    places: tuple[int, ...] = ()
    """Place of each number among those of a 32-bit number; none: one by one from the lowest bits."""
    lowered: bool = False
    """Zero points are stored less 1."""

    def of(self, name: str, names: Collection[str]) -> dict[str, str]:
        """Find the tensors of a weight by the ends of their names; none where it is stored as it is."""
        module = name.removesuffix("weight")
        found = {end: module + end for end in (*self.parts, *_UNREAD) if module + end in names}
        return found if any(f".{end}" in SCALES for end in found) else {}

    def values(self, shape: tuple[int, ...], parts: Mapping[str, str], take: Take) -> Tensor:
        """Work out a weight (M, K) in float32, of the parts that it has. Raises Refused."""
        if len(shape) != 2:
            raise Refused(f"is {list(shape)}; a quantised weight has two dimensions")
        if lacking := [end for end in self.parts if end not in parts and end not in _OPTIONAL]:
            raise Refused(f"is there without its {', '.join(lacking)}")
        read = self._by_inputs if "qweight" in parts else self._by_outputs
        numbers, scales, zeros, order = read(shape, parts, take)
        block, groups = self.block or (1 if len(scales) > 1 else 0, 0), scales.shape[1]
        columns = torch.arange(shape[1]) // (block[1] or shape[1])  # (K,)
        if order is not None:
            if int(order.min()) < 0 or int(order.max()) >= groups:
                raise Refused(f"has a g_idx beyond its {groups} groups")
            columns = order.long()
        values = numbers.float()  # (M, K)
        values -= _spread(zeros, block[0], columns, shape[0])
        values *= _spread(scales, block[0], columns, shape[0])
        return values

    def _by_outputs(
        self, shape: tuple[int, ...], parts: Mapping[str, str], take: Take
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Read numbers (M, K), scales and zero points by block, and the group of each input if it is told."""
        scale = next((end for end in ("weight_scale", "weight_scale_inv") if end in parts), "")
        if not scale or {"weight_scale", "weight_scale_inv"} <= {*parts}:
            raise Refused("has no scale, or two")
        (outputs, inputs), size = shape, (1, 1)
        if self.block is not None:
            size = (ceil(outputs / (self.block[0] or outputs)), ceil(inputs / (self.block[1] or inputs)))
        if self.block and self.block[0] == 1 and size[1] > 1 and inputs % self.block[1]:
            raise Refused(f"has {inputs} inputs; not a multiple of group_size {self.block[1]}")
        shapes: tuple[tuple[int, ...], ...] = ((), (1,), size) if size == (1, 1) else (size,)
        if self.block is None:
            shapes = (*shapes, (outputs, 1))
        scales = take(parts[scale], _FLOATS, shapes)
        size = tuple(scales.shape) if scales.ndim == 2 else (1, 1)
        zeros = torch.zeros(size)
        pack = 32 // self.bits
        if self.kind == "I32":
            if (told := take(parts["weight_shape"], ("I64", "I32"), ((2,),)).tolist()) != [*shape]:
                raise Refused(f"is {told} by its weight_shape, config says {[*shape]}")
            packed = take(parts["weight_packed"], ("I32",), ((outputs, ceil(inputs / pack)),))
            numbers = self._unpack(packed)[:, :inputs]
            zeros += 2 ** (self.bits - 1)
            if "weight_zero_point" in parts:
                zeros = take(parts["weight_zero_point"], ("I32",), ((ceil(size[0] / pack), size[1]),))
                zeros = self._unpack(zeros.T).T[: size[0]]
        else:
            numbers = take(parts["weight"], (self.kind,), (shape,))
            if "weight_zero_point" in parts:
                zeros = take(parts["weight_zero_point"], ("I8",), (tuple(scales.shape),)).view(size)
        order = None
        if "weight_g_idx" in parts:
            order = take(parts["weight_g_idx"], ("I32", "I64"), ((inputs,),))
            if not torch.equal(order.sort().values, torch.arange(inputs).to(order) // (inputs // size[1])):
                raise Refused(f"has a weight_g_idx that is not {size[1]} groups of one size")
        return numbers, scales.float().view(size), zeros, order

    def _by_inputs(
        self, shape: tuple[int, ...], parts: Mapping[str, str], take: Take
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Read the same of GPTQ and AWQ, which hold numbers as (K, M)."""
        (outputs, inputs), pack, (_, size) = shape, 32 // self.bits, self.block or (1, 0)
        groups = ceil(inputs / (size or inputs))
        along = outputs if self.places else inputs
        if outputs % pack or along % pack or (self.places and groups > 1 and inputs % size):
            raise Refused(f"is {[*shape]}; {self.title} stores {pack} numbers together, in whole groups")
        if self.places:
            numbers = self._unpack(take(parts["qweight"], ("I32",), ((inputs, outputs // pack),))).T
        else:
            numbers = self._unpack(take(parts["qweight"], ("I32",), ((inputs // pack, outputs),)).T)
        zeros = self._unpack(take(parts["qzeros"], ("I32",), ((groups, outputs // pack),))).T
        if self.lowered and int(zeros.max()) == 2**self.bits - 1:
            # Its writers let 0 - 1 run over into the zero points beside it, and readers disagree.
            raise Refused("has a zero point of 0, which GPTQ's first format cannot store; give gptq_v2")
        scales = take(parts["scales"], _FLOATS, ((groups, outputs),)).float().T
        order = take(parts["g_idx"], ("I32", "I64"), ((inputs,),)) if "g_idx" in parts else None
        return numbers, scales, zeros + int(self.lowered), order

    def _unpack(self, packed: Tensor) -> Tensor:
        """Take apart 32-bit numbers (R, C) into (R, C x pack), none negative."""
        places = torch.tensor(self.places or range(32 // self.bits), dtype=torch.int32)
        return ((packed[..., None] >> places * self.bits) & (2**self.bits - 1)).flatten(-2)


def _spread(blocks: Tensor, height: int, columns: Tensor, outputs: int) -> Tensor:
    """Give every number (M, K) what its block has."""
    wide = blocks.float()[:, columns]
    return wide if height == 1 else wide.repeat_interleave(height or outputs, dim=0)[:outputs]


# --- config.json ----------------------------------------------------------------------------------


def scheme_of(data: Any) -> Scheme:
    """Read a `quantization_config`. Raises Refused, which names the scheme."""
    method = data.get("quant_method") if isinstance(data, Mapping) else None
    reader = {"fp8": _fp8, "compressed-tensors": _compressed, "gptq": _gptq, "awq": _awq}.get(str(method))
    if reader is None:
        raise Refused("is of no name" if method is None else f"is {method!r:.40}")
    return reader(data)


def _fp8(data: Mapping[str, Any]) -> Scheme:
    block = data.get("weight_block_size")
    parts = ("weight", "weight_scale", "weight_scale_inv")
    return Scheme("fp8", parts, "F8_E4M3", 8, None if block is None else _pair(block, "fp8"))


def _compressed(data: Mapping[str, Any]) -> Scheme:
    form = str(data.get("format"))
    title = f"compressed-tensors {form!r:.40}"
    known = {
        "naive-quantized": "",
        "float-quantized": "float",
        "int-quantized": "int",
        "pack-quantized": "int",
    }
    if form not in known:
        raise Refused(f"is {title}")
    sparse, turned = data.get("sparsity_config") or {}, data.get("transform_config") or {}
    if not isinstance(sparse, Mapping) or sparse.get("format", "dense") != "dense" or turned:
        raise Refused(f"is {title} with a sparsity_config or transform_config")
    found = {*_groups(data, title)}
    if len(found) != 1:
        raise Refused(f"is {title} of no, or of several, kinds of weights")
    ((kind, bits, block),) = found
    if _FORMS[form] not in ("", kind) or (kind, bits) not in (("float", 8), ("int", 8), ("int", 4)):
        raise Refused(f"is {title} of {kind!r:.20} with {bits} bits")
    title = f"compressed-tensors {form}"
    if form == "pack-quantized":
        parts = ("weight_packed", "weight_shape", "weight_scale", "weight_zero_point", "weight_g_idx")
        return Scheme(f"{title} int{bits}", parts, "I32", bits, block)
    parts = ("weight", "weight_scale", *(("weight_zero_point", "weight_g_idx") if kind == "int" else ()))
    return Scheme(f"{title} {kind}{bits}", parts, "I8" if kind == "int" else "F8_E4M3", bits, block)


def _groups(data: Mapping[str, Any], title: str) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Give type, bits and block of the weights of each group of modules."""
    groups = data.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping) or group.get("format") not in (None, data["format"]):
            raise Refused(f"is {title} with a group of modules without weights, or of another format")
        size = weights.get("group_size")
        usual = {None: "tensor", -1: "channel"}.get(size, "group") if isinstance(size, int | None) else ""
        strategy = str(weights.get("strategy") or usual)
        if strategy == "group":
            block = (1, _size(size, title))
        elif strategy == "block":
            block = _pair(weights.get("block_structure"), title)
        elif strategy in _SPREAD:
            block = _SPREAD[strategy]
        else:
            raise Refused(f"is {title} with strategy {strategy!r:.40}")
        yield str(weights.get("type", "int")), _size(weights.get("num_bits", 8), title), block


def _gptq(data: Mapping[str, Any]) -> Scheme:
    form = data.get("checkpoint_format") or data.get("format") or "gptq"
    if form not in ("gptq", "gptq_v2") or data.get("is_marlin_format"):
        raise Refused(f"is gptq in the format {'marlin' if data.get('is_marlin_format') else form!r:.40}")
    return _by_group("gptq", data, (4, 8), ("qweight", "qzeros", "scales", "g_idx"), lowered=form == "gptq")


def _awq(data: Mapping[str, Any]) -> Scheme:
    form = str(data.get("version") or data.get("checkpoint_format") or data.get("format") or "gemm").lower()
    if form != "gemm" or (maker := data.get("backend", "autoawq")) != "autoawq":
        raise Refused(f"is awq in the format {form if form != 'gemm' else maker!r:.40}")
    return _by_group("awq", data, (4,), ("qweight", "qzeros", "scales"), places=_AWQ_PLACES)


def _by_group(
    name: str, data: Mapping[str, Any], known: tuple[int, ...], parts: tuple[str, ...], **more: Any
) -> Scheme:
    bits, size = data.get("bits"), data.get("group_size", 128)
    if type(bits) is not int or bits not in known:
        raise Refused(f"is {name} with {bits!r:.20} bits")
    return Scheme(
        f"{name} int{bits}", parts, "I32", bits, (1, 0 if size == -1 else _size(size, name)), **more
    )


def _size(value: Any, title: str) -> int:
    if type(value) is not int or not 0 < value <= _LARGEST:
        raise Refused(f"is {title} with a size of {value!r:.40}")
    return value


def _pair(value: Any, title: str) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise Refused(f"is {title} with blocks of {value!r:.40}")
    return _size(value[0], title), _size(value[1], title)
