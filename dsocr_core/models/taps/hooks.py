"""Taps on a model's modules by forward hooks: what goes into a dump.

Letters: B views or sequences, N tokens, H rows, W columns, C width, h heads, D head dim, T tokens, k experts
a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dsocr_core.models.taps.files import DumpWriter, fingerprint
from dsocr_core.models.taps.table import Layout, Tap


class Recorder:
    """Takes tensors by name, call after call. `only` are the names to take, whole or up to a dot; none: all.

    `check` is called at every tap and may raise to end the run.
    """

    def __init__(
        self,
        writer: DumpWriter,
        only: Iterable[str] = (),
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._writer, self._only, self._check = writer, tuple(only), check
        self._passes: dict[str, int] = {}

    @property
    def call(self) -> int:
        return self._writer.call

    def begin_call(self) -> None:
        self._check()
        self._passes.clear()
        self._writer.begin_call()

    def wants(self, name: str) -> bool:
        """Tell whether the tap's tensor is recorded."""
        return not self._only or any(name == part or name.startswith(f"{part}.") for part in self._only)

    def take(self, name: str, value: Tensor, layout: Layout = "as is") -> None:
        """Record a tensor."""
        self._check()
        number = self._passes.get(name, 0)
        self._passes[name] = number + 1
        key = f"{name}@{number}" if number else name
        if self.wants(name):
            self._writer.add(key, stored(value, layout))

    def write(self, key: str, value: Tensor) -> None:
        """Record a tensor whose key is known, already in its stored layout."""
        if self.wants(key.partition("@")[0]):
            self._writer.add(key, value)


def stored(value: Tensor, layout: Layout) -> Tensor:
    """A tensor in the layout of a dump."""
    if layout == "channels first":
        return value.permute(0, 2, 3, 1)
    if layout == "as is":
        return value
    rows = value.reshape(-1, value.shape[-1])
    return rows[-1:] if layout == "last row" else rows


@contextmanager
def tapped(root: nn.Module, taps: Iterable[Tap], recorder: Recorder) -> Iterator[list[str]]:
    """Hooks on the modules of `root` by path, inside the block; yields names whose module is not there."""
    handles: list[Any] = []
    absent: list[str] = []
    try:
        for tap in taps:
            if tap.at != "mixture" and not recorder.wants(tap.name):
                continue
            try:
                module = root.get_submodule(tap.module)
            except AttributeError:
                absent.append(tap.name)
                continue
            handles += _attached(module, tap, recorder)
        yield absent
    finally:
        for handle in handles:
            handle.remove()


def _attached(module: nn.Module, tap: Tap, recorder: Recorder) -> list[Any]:
    if tap.at == "keys":
        return [module.register_forward_hook(_keys_hook(tap, recorder))]
    if tap.at == "mixture":  # one hook for its three taps
        prefix = tap.name.removesuffix(".router.ids")
        return [] if prefix == tap.name else _mixture_hooks(module, prefix, recorder)
    if tap.at == "queries":  # inside a published attention nothing calls a hook for them
        return []
    if tap.at == "input":

        def before(_module: Any, inputs: tuple[Any, ...]) -> None:
            recorder.take(tap.name, inputs[0], tap.layout)

        return [module.register_forward_pre_hook(before)]

    def after(_module: Any, _inputs: Any, output: Any) -> None:
        recorder.take(tap.name, output[0] if isinstance(output, tuple) else output, tap.layout)

    return [module.register_forward_hook(after)]


def _keys_hook(tap: Tap, recorder: Recorder) -> Callable[..., None]:
    """Hook a transformers attention: (output, weights, cache) out, the layer's number in `layer_idx`."""
    new = NewKeys(recorder)

    def after(module: Any, _inputs: Any, output: Any) -> None:
        for part in output[1:]:
            layer = module.layer_idx
            if layers := getattr(part, "layers", None):  # of transformers 4.54 and later
                new.take(tap.name, layers[layer].keys, output[0].shape[1])
            elif (keys := getattr(part, "key_cache", None)) is not None:
                new.take(tap.name, keys[layer], output[0].shape[1])

    return after


class NewKeys:
    """The rotated keys that a call adds to a cache; a ring, once it is full, is not in the order of time."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._prompt = recorder, 0

    def take(self, name: str, keys: Tensor, count: int) -> None:
        """Record the last written of the keys seen, (B, h, P, D), of `count` new positions."""
        step, seen = self._recorder.call, keys.shape[2]
        if step == 0:
            self._prompt = seen
            last = seen
        else:
            last = self._prompt + (step - 1) % (seen - self._prompt) + 1
        self._recorder.take(name, key_rows(keys[0, :, last - count : last]))


def key_rows(keys: Tensor) -> Tensor:
    """(h, N, D) -> (N, h*D)"""
    return keys.transpose(0, 1).flatten(1)


class MixtureTap:
    """Choice of one mixture for each token and its experts' outputs, collected while it runs.

    The order of a token's experts means nothing, so it is recorded by rising expert id. Nor does the order of
    an expert's rows, which the published code sorts without keeping equal ones in order: rows are found again
    by what went in.
    """

    def __init__(self, prefix: str, recorder: Recorder) -> None:
        self._prefix, self._recorder = prefix, recorder
        self._ids = self._tokens = torch.empty(0)
        self._runs: list[tuple[int, Tensor, Tensor]] = []

    def routed(self, x: Tensor, ids: Tensor, weights: Tensor) -> None:
        """Tokens (..., C), the ids of their experts and their weights, (T, k) each."""
        self._ids, order = ids.sort(dim=-1)
        self._runs.clear()
        if self._recorder.wants(f"{self._prefix}.experts"):
            self._tokens = row_marks(x.reshape(-1, x.shape[-1]))
        self._recorder.take(f"{self._prefix}.router.ids", self._ids.to(torch.int32))
        self._recorder.take(f"{self._prefix}.router.weights", weights.gather(-1, order))

    def ran(self, expert: int, x: Tensor, output: Tensor) -> None:
        """One expert on its tokens: (n, C) in and out."""
        if self._recorder.wants(f"{self._prefix}.experts"):
            self._runs.append((expert, row_marks(x), output.detach()))

    def ended(self) -> None:
        """All experts have run: each token's outputs, (T*k, C), by rising expert id."""
        if not self._runs:
            return
        outputs = torch.cat([output for _, _, output in self._runs])
        experts = torch.cat([torch.full_like(marks, expert) for expert, marks, _ in self._runs])
        marks = torch.cat([marks for _, marks, _ in self._runs])
        self._runs.clear()
        slots = self._ids.flatten()  # (T*k,) the expert of each
        of_token = self._tokens.repeat_interleave(self._ids.shape[-1])
        each = torch.empty_like(outputs)
        each[_ordered(slots, of_token)] = outputs[_ordered(experts, marks)]
        self._recorder.take(f"{self._prefix}.experts", each)


def row_marks(x: Tensor) -> Tensor:
    """A number for each row's bits, (T, C) -> (T,) int64; equal rows have equal ones."""
    bits = x.detach().contiguous().view(torch.int16 if x.element_size() == 2 else torch.int32).to(torch.int64)
    factors = torch.arange(1, x.shape[1] + 1, device=x.device) * 0x9E3779B97F4A7C1  # odd and even, all large
    return (bits * factors).sum(dim=1)


def _ordered(first: Tensor, second: Tensor) -> Tensor:
    """Indices that sort by `first`, then by `second`."""
    order = second.argsort(stable=True)
    return order[first[order].argsort(stable=True)]


def _mixture_hooks(module: Any, prefix: str, recorder: Recorder) -> list[Any]:
    """Hook a mixture with `gate` -> (ids, weights, ...) and a list of `experts`, as the published code
    has.
    """
    if not any(recorder.wants(f"{prefix}.{part}") for part in ("router.ids", "router.weights", "experts")):
        return []
    tap = MixtureTap(prefix, recorder)

    def of_expert(number: int) -> Callable[..., None]:
        return lambda _module, inputs, output: tap.ran(number, inputs[0], output)

    handles = [module.gate.register_forward_hook(lambda _m, inputs, out: tap.routed(inputs[0], *out[:2]))]
    handles += [
        expert.register_forward_hook(of_expert(number)) for number, expert in enumerate(module.experts)
    ]
    return [*handles, module.register_forward_hook(lambda *_: tap.ended())]


def weight_prints(parameters: Iterable[tuple[str, Tensor]]) -> Mapping[str, str]:
    """A fingerprint of every weight by its published name."""
    return {name: fingerprint(tensor) for name, tensor in parameters}
