"""Values of the weights that a checkpoint stores in fewer bits, each by its scheme's definition, in float32.

Letters: M outputs, K inputs, G groups of inputs that share a scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil

import torch
from torch import Tensor

from dsocr_core.base.untrusted import Refused
from dsocr_core.models.scheme import Scheme

_FLOATS = ("F32", "F16", "BF16", "F64")
_INDEXES = ("I32", "I64")
_SCALES = {"weight_scale", "weight_scale_inv"}

Shape = tuple[int, ...]
Take = Callable[[str, tuple[str, ...], tuple[Shape, ...]], Tensor]
"""Reads the tensor of that name, in one of the types and one of the shapes. Raises DsocrError."""
Stored = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""Numbers (M, K), scales and zero points by block, and the group of each input where that is told."""


def values_of(scheme: Scheme, shape: Shape, parts: Mapping[str, str], take: Take) -> Tensor:
    """Work out a weight (M, K) of its parts, named by the ends of their names. Raises Refused."""
    if len(shape) != 2:
        raise Refused(f"is {[*shape]}; a quantised weight has two dimensions")
    if lacking := [end for end in scheme.needed if end not in parts]:
        raise Refused(f"is there without its {', '.join(lacking)}")
    read = _by_inputs if "qweight" in parts else _by_outputs
    numbers, scales, zeros, order = read(scheme, (shape[0], shape[1]), parts, take)
    height, width = scheme.block or (int(len(scales) > 1), 0)
    columns = torch.arange(shape[1]) // (width or shape[1]) if order is None else order.long()  # (K,)
    if int(columns.min()) < 0 or int(columns.max()) >= scales.shape[1]:
        raise Refused(f"has a g_idx beyond its {scales.shape[1]} groups")
    values = numbers.float()  # (M, K)
    values -= _spread(zeros, height, columns, shape[0])
    values *= _spread(scales, height, columns, shape[0])
    return values


def _spread(blocks: Tensor, height: int, columns: Tensor, outputs: int) -> Tensor:
    """Give every number (M, K) what its block has."""
    wide = blocks.float()[:, columns]
    return wide if height == 1 else wide.repeat_interleave(height or outputs, dim=0)[:outputs]


def _by_outputs(scheme: Scheme, shape: tuple[int, int], parts: Mapping[str, str], take: Take) -> Stored:
    """Read FP8 and compressed-tensors."""
    if len(found := [end for end in parts if end in _SCALES]) != 1:
        raise Refused("has no scale, or two")
    (outputs, inputs), pack = shape, 32 // scheme.bits
    height, width = scheme.block or (0, 0)
    size = (ceil(outputs / (height or outputs)), ceil(inputs / (width or inputs)))
    if height == 1 and size[1] > 1 and inputs % width:
        raise Refused(f"has {inputs} inputs, no multiple of group_size {width}")
    shapes: tuple[Shape, ...] = ((), (1,), size) if size == (1, 1) else (size,)
    scales = take(parts[found[0]], _FLOATS, shapes if scheme.block else (*shapes, (outputs, 1)))
    size = (scales.shape[0], scales.shape[1]) if scales.ndim == 2 else (1, 1)
    zeros = torch.zeros(size)
    if scheme.kind == "I32":
        if (told := take(parts["weight_shape"], _INDEXES, ((2,),)).tolist()) != [*shape]:
            raise Refused(f"is {told} by its weight_shape, config says {[*shape]}")
        packed = take(parts["weight_packed"], ("I32",), ((outputs, ceil(inputs / pack)),))
        numbers = _unpack(scheme, packed)[:, :inputs]
        zeros += 2 ** (scheme.bits - 1)
        if "weight_zero_point" in parts:
            zeros = take(parts["weight_zero_point"], ("I32",), ((ceil(size[0] / pack), size[1]),))
            zeros = _unpack(scheme, zeros.T).T[: size[0]]
    else:
        numbers = take(parts["weight"], (scheme.kind,), (shape,))
        if "weight_zero_point" in parts:
            zeros = take(parts["weight_zero_point"], ("I8",), (tuple(scales.shape),)).view(size)
    order = take(parts["weight_g_idx"], _INDEXES, ((inputs,),)) if "weight_g_idx" in parts else None
    even = torch.arange(inputs) // (inputs // size[1])
    if order is not None and not torch.equal(order.long().sort().values, even):
        raise Refused(f"has a weight_g_idx that is not {size[1]} groups of one size")
    return numbers, scales.view(size), zeros, order


def _by_inputs(scheme: Scheme, shape: tuple[int, int], parts: Mapping[str, str], take: Take) -> Stored:
    """Read GPTQ, which packs along the inputs, and AWQ, along the outputs; both hold (K, M)."""
    (outputs, inputs), pack, (_, size) = shape, 32 // scheme.bits, scheme.block or (1, 0)
    groups, awq = ceil(inputs / (size or inputs)), bool(scheme.places)
    if outputs % pack or (inputs % (size or inputs) if awq else inputs % pack):
        raise Refused(f"is {[*shape]}; {scheme.title} stores {pack} numbers together, in whole groups")
    held = (inputs, outputs // pack) if awq else (inputs // pack, outputs)
    packed = take(parts["qweight"], ("I32",), (held,))
    numbers = _unpack(scheme, packed).T if awq else _unpack(scheme, packed.T)
    zeros = _unpack(scheme, take(parts["qzeros"], ("I32",), ((groups, outputs // pack),))).T
    if scheme.lowered and int(zeros.max()) == 2**scheme.bits - 1:
        # Its writers let 0 - 1 run over into the zero points beside it, and readers disagree.
        raise Refused("has a zero point of 0, which GPTQ's first format cannot store; give gptq_v2")
    scales = take(parts["scales"], _FLOATS, ((groups, outputs),)).T
    order = take(parts["g_idx"], _INDEXES, ((inputs,),)) if "g_idx" in parts else None
    return numbers, scales, zeros + int(scheme.lowered), order


def _unpack(scheme: Scheme, packed: Tensor) -> Tensor:
    """Take apart 32-bit numbers (R, C) into (R, C x pack), none negative."""
    places = torch.tensor(scheme.places or range(32 // scheme.bits), dtype=torch.int32)
    parted = packed[..., None].bitwise_right_shift(places * scheme.bits)
    return parted.bitwise_and_(2**scheme.bits - 1).flatten(-2)
