"""Kernels on this machine: compiled where there is a GPU, else in Triton's interpreter.

A folder with tests of kernels imports both fixtures in its `conftest.py`.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

HAS_TRITON = find_spec("triton") is not None


@pytest.fixture(autouse=True, scope="session")
def interpreter_as_devices() -> None:
    """Triton's interpreter, where that runs the kernels: corrected, and with less work."""
    if HAS_TRITON and not torch.cuda.is_available():
        _correct_numbers()
        _patch_the_language_once()
        _make_shapes_once()


def _correct_numbers() -> None:
    """What the interpreter computes otherwise than any device."""
    import triton.language as tl
    import triton.runtime.interpreter as interpreter

    convert: Callable[..., np.ndarray] = interpreter._convert_float
    patch_tensor: Callable[..., None] = interpreter._patch_lang_tensor

    def round_to_nearest(data: np.ndarray, source: tl.dtype, target: tl.dtype, mode: object) -> np.ndarray:
        # It cuts float32 to bfloat16; every device rounds to nearest, ties to even.
        if (source, target) != (tl.float32, tl.bfloat16):
            return convert(data, source, target, mode)
        rounded = torch.from_numpy(np.ascontiguousarray(data).view(np.float32)).to(torch.bfloat16)
        return rounded.view(torch.int16).numpy().view(np.uint16).reshape(data.shape)

    def with_index(tensor: type, scope: Any) -> None:
        # Its scalars are arrays of one element, which numpy 2.4 no longer takes for an integer.
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def dot(self: Any, a: Any, b: Any, total: Any, *_: object) -> Any:
        # It multiplies the bits of bfloat16 as whole numbers.
        a_data, b_data = (
            x.data if x.dtype != tl.bfloat16 else (x.data.astype(np.uint32) << 16).view(np.float32)
            for x in (a, b)
        )
        product = np.matmul(a_data, b_data, dtype=total.data.dtype)
        return interpreter.TensorHandle(product + total.data, total.dtype.scalar)

    interpreter._convert_float = round_to_nearest
    interpreter.InterpreterBuilder.create_dot = dot
    interpreter._patch_lang_tensor = with_index


def _patch_the_language_once() -> None:
    """It replaces the language's functions anew for every call inside a kernel: half of all time."""
    import triton.language as tl
    import triton.runtime.interpreter as interpreter

    patch_language: Callable[..., Any] = interpreter._patch_lang
    patched: set[int] = set()

    @cache
    def languages(function: Callable[..., object]) -> frozenset[int]:
        values = function.__globals__.values()
        return frozenset(id(value) for value in values if value is tl or value is tl.core)

    def patch_once(function: Callable[..., object]) -> Any:
        modules = languages(function)
        if modules and modules <= patched:
            return interpreter._LangPatchScope()
        scope, new = patch_language(function), modules - patched
        patched.update(new)
        restore = scope.restore

        def restore_and_forget() -> None:
            patched.difference_update(new)
            restore()

        scope.restore = restore_and_forget
        return scope

    interpreter._patch_lang = patch_once


def _make_shapes_once() -> None:
    """It makes the type and the shape of every tensor anew, and compares them so, too: 30% of all time."""
    import triton.language as tl
    import triton.runtime.interpreter as interpreter

    core, semantics = tl.core, tl.semantic.TritonSemantic
    make: Callable[..., None] = core.block_type.__init__
    broadcast: Callable[..., Any] = semantics.broadcast_impl_value
    cast: Callable[..., Any] = semantics.cast
    types: dict[object, Any] = {}  # by the element, which each of them has, and the sizes

    def type_of(cls: type, element: Any, shape: Any) -> Any:
        sizes = tuple(size.value if type(size) is core.constexpr else size for size in shape)
        return types.setdefault((id(element), sizes), object.__new__(cls))

    def make_once(self: Any, element: Any, shape: Any) -> None:
        if not hasattr(self, "constants"):
            make(self, element, shape)
            self.constants = core.constexpr(self.numel), core.tuple(map(core.constexpr, self.shape))

    def new_tensor(self: Any, handle: Any, kind: Any) -> None:
        self.handle, self.type, self.dtype = handle, kind, kind.scalar
        self.numel, self.shape = kind.constants if kind.is_block() else (core.constexpr(1), core.tuple(()))

    def of_one_shape(self: Any, lhs: Any, rhs: Any) -> Any:
        return (lhs, rhs) if lhs.type is rhs.type else broadcast(self, lhs, rhs)

    def cast_to(self: Any, given: Any, kind: Any, rounding: Any = None) -> Any:
        return given if given.type.scalar is kind.scalar else cast(self, given, kind, rounding)

    core.block_type.__new__, core.block_type.__init__, core.tensor.__init__ = type_of, make_once, new_tensor
    semantics.broadcast_impl_value, semantics.cast = of_one_shape, cast_to
    # It computes whether a sum overflows, asks afterwards whether to assert that, and never does.
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
