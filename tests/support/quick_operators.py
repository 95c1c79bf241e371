"""Triton's interpreter without its checks of types, where an operator's sides are of one plain type.

It makes a block of every scalar, asks a dozen questions for each sum, and replaces the language's functions
anew for each launch: two thirds of all time. What is computed is the same; anything but the plain cases goes
its way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

NUMBERS, WHOLE, LOGICAL = ("fp32", "int32", "int64"), ("int32", "int64"), ("int1", "int32")
CONSTANTS: dict[str, Any] = {"fp32": np.float32, "int32": np.int32, "int64": np.int64}
OPERATORS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "add": (np.add, NUMBERS), "sub": (np.subtract, NUMBERS), "mul": (np.multiply, NUMBERS),
    "truediv": (np.divide, ("fp32",)), "mod": (np.fmod, WHOLE),
    "floordiv": (lambda a, b: (a - np.fmod(a, b)) // b, WHOLE),  # rounded towards zero, as devices do
    "and": (np.bitwise_and, LOGICAL), "or": (np.bitwise_or, LOGICAL),
}  # fmt: skip
COMPARISONS = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip


@pytest.fixture(autouse=True, scope="session")
def quick_operators(interpreter_as_devices: None) -> None:
    """Beside the corrections, for the folders whose tests run many programs."""
    if not torch.cuda.is_available():
        _Quick().install()


class _Quick:
    """The interpreter's functions and what takes their place."""

    def __init__(self) -> None:
        import triton.language as tl
        import triton.runtime.interpreter as interpreter

        self.tl, self.interpreter, self.semantics = tl, interpreter, tl.semantic.TritonSemantic
        self.tensor, self.block_type = tl.tensor, tl.block_type
        self.types: dict[tuple[str, tuple[int, ...]], Any] = {}

    def made(self, data: np.ndarray, kind: Any, block: bool) -> Any:
        """The tensor of that data: no copy, no check of its size."""
        handle = self.interpreter.TensorHandle.__new__(self.interpreter.TensorHandle)
        handle.data, handle.dtype, handle.attr = data, kind, {}
        if not block:
            return self.tensor(handle, kind)
        if kind.is_ptr():  # another object for each launch
            return self.tensor(handle, self.block_type(kind, data.shape))
        key = kind.name, data.shape
        if (of := self.types.get(key)) is None:
            of = self.types[key] = self.block_type(kind, data.shape)
        return self.tensor(handle, of)

    def is_block(self, *tensors: Any) -> bool:
        return any(type(one.type) is self.block_type for one in tensors)

    def data_of(self, value: Any, kind: Any) -> Any:
        """The tensor's data, the number as one of that kind; None where the interpreter would convert it."""
        if type(value) is self.tensor:
            return value.handle.data if value.dtype is kind else None
        if type(value) is self.tl.constexpr:
            value = value.value
        if type(value) is int and -(2**31) <= value < 2**31 and kind.name in CONSTANTS:
            return CONSTANTS[kind.name](value)
        if type(value) is float and kind is self.tl.float32 and (value == 0 or 1e-37 < abs(value) < 1e38):
            return np.float32(value)
        return None

    def operator(self, slow: Callable[..., Any], operate: Any, kinds: Any, to: Any, turned: bool) -> Any:
        """An operator of tensors; `to` is the result's kind where it is another."""
        tensor, block_type, data_of, made = self.tensor, self.block_type, self.data_of, self.made

        def quick(left: Any, right: Any) -> Any:
            kind = left.dtype
            if kind.name not in kinds or (data := data_of(right, kind)) is None:
                return slow(left, right)
            block = type(left.type) is block_type or (
                type(right) is tensor and type(right.type) is block_type
            )
            mine = left.handle.data
            return made(operate(data, mine) if turned else operate(mine, data), to or kind, block)

        return quick

    def address(self, slow: Callable[..., Any]) -> Any:
        """The sum of numbers, and of a pointer and a number."""

        def add(left: Any, right: Any) -> Any:
            kind = left.dtype
            if not kind.is_ptr() or type(right) is not self.tensor or right.dtype.name not in WHOLE:
                return slow(left, right)
            size = max(1, kind.element_ty.primitive_bitwidth // 8)
            data = left.handle.data + size * right.handle.data.astype(np.uint64)
            return self.made(data, kind, self.is_block(left, right))

        return add

    def item(self, slow: Callable[..., Any]) -> Any:
        def quick(of: Any, index: Any) -> Any:
            if type(index) is not tuple or not self.is_block(of):
                return slow(of, index)
            if any(one is not None and one != slice(None) for one in index):
                return slow(of, index)
            return self.made(of.handle.data[index], of.dtype, True)

        return quick

    def converted(self, given: Any, kind: Any) -> Any:
        """bfloat16 as float32 and back, to nearest, ties to even; None where it is anything else."""
        data, of = given.handle.data, given.dtype
        if of is kind:
            return given
        if of is self.tl.bfloat16 and kind is self.tl.float32:
            data = (data.astype(np.uint32) << 16).view(np.float32)
        elif of is self.tl.float32 and kind is self.tl.bfloat16 and not np.isnan(data).any():
            bits = data.view(np.uint32)
            data = ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16).astype(np.uint16)
        else:
            return None
        return self.made(data, kind, self.is_block(given))

    def install(self) -> None:
        tl, semantics, interpreter = self.tl, self.semantics, self.interpreter
        to_tensor, where, cast, sum_of = semantics.to_tensor, semantics.where, semantics.cast, tl.sum
        patch_tensor, patch_language = interpreter._patch_lang_tensor, interpreter._patch_lang
        semantic = semantics(interpreter.interpreter_builder)

        def quick_where(of: Any, condition: Any, x: Any, y: Any) -> Any:
            parts = [one for one in (x, y) if type(one) is self.tensor]
            kind = parts[0].dtype if parts and condition.dtype is tl.int1 else None
            values = [None if kind is None else self.data_of(one, kind) for one in (x, y)]
            if any(one is None for one in values):
                return where(of, condition, x, y)
            data = np.where(condition.handle.data, *values)
            return self.made(data, kind, self.is_block(condition, *parts))

        def quick_cast(of: Any, given: Any, kind: Any, rounding: Any = None) -> Any:
            found = self.converted(given, kind.scalar) if rounding is None else None
            return cast(of, given, kind, rounding) if found is None else found

        def quick_sum(input: Any, axis: Any = None, keep_dims: bool = False, dtype: Any = None) -> Any:
            if type(axis) is not int or keep_dims or dtype is not None or input.dtype is not tl.float32:
                return sum_of(input, axis, keep_dims, dtype)
            data = input.handle.data.sum(axis=axis)
            return self.made(data if data.ndim else np.array([data]), tl.float32, data.ndim > 0)

        def patch_for_good(function: Any) -> Any:
            patch_language(function)
            return interpreter._LangPatchScope()

        def patch_attribute(of: Any, name: str, member: Any, builder: object, scope: Any) -> None:
            plain = getattr(member, "__wrapped__", member)

            def call(*values: Any, **named: Any) -> Any:
                named["_semantic"] = semantic
                return plain(*values, **named)

            scope.set_attr(of, name, call)

        interpreter._patch_lang, interpreter._patch_attr = patch_for_good, patch_attribute
        interpreter._patch_lang_tensor = lambda of, scope: self.with_operators(patch_tensor, of, scope)
        tl.sum, semantics.where, semantics.cast = quick_sum, quick_where, quick_cast
        semantics.to_tensor = lambda of, x, check=True: (
            x if type(x) is self.tensor else to_tensor(of, x, check)
        )

    def with_operators(self, patch_tensor: Callable[..., None], of: Any, scope: Any) -> None:
        patch_tensor(of, scope)
        if of.__getitem__.__name__ == "quick":
            return

        def put(name: str, make: Callable[..., Any], *how: Any) -> None:
            scope.set_attr(of, f"__{name}__", make(getattr(of, f"__{name}__"), *how))

        put("add", self.address)
        put("getitem", self.item)
        for name, (operate, kinds) in OPERATORS.items():
            put(name, self.operator, operate, kinds, None, False)
        for name in ("add", "sub", "mul"):
            put(f"r{name}", self.operator, *OPERATORS[name], None, True)
        for name, compare in COMPARISONS.items():
            put(name, self.operator, compare, NUMBERS, self.tl.int1, False)
        slow_to = of.to

        def to(given: Any, kind: Any, *how: Any, **named: Any) -> Any:
            found = None if how or named else self.converted(given, kind)
            return slow_to(given, kind, *how, **named) if found is None else found

        scope.set_attr(of, "to", to)
