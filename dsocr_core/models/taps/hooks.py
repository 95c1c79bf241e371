"""Taps on a model's modules by forward hooks.

Letters: h heads, P positions, D head dim, C width, T tokens, N new tokens, k experts a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dsocr_core.models.blocks.moe import MixtureOfExperts
from dsocr_core.models.taps.files import Recorder
from dsocr_core.models.taps.table import Tap


@contextmanager
def tapped(root: nn.Module, taps: Iterable[Tap], recorder: Recorder) -> Iterator[None]:
    """Hook the modules of `root` by path within the block. A tap without its module records nothing."""
    modules = dict(root.named_modules())
    with ExitStack() as hooks:
        for tap in taps:
            if recorder.wants(tap.name) and tap.module in modules:
                _attach(modules[tap.module], tap, recorder, hooks)
        yield


def _attach(module: Any, tap: Tap, recorder: Recorder, hooks: ExitStack) -> None:
    # A published attention has no module for its rotated queries.
    def after(of: Any, call: Callable[..., None]) -> None:
        hooks.callback(of.register_forward_hook(call).remove)

    def take(value: Any) -> None:
        recorder.take(tap.name, value[0] if isinstance(value, tuple) else value, tap.layout)

    if tap.at == "input":
        hooks.callback(module.register_forward_pre_hook(lambda _, inputs: take(inputs)).remove)
    elif tap.at == "output":
        after(module, lambda _, __, output: take(output))
    elif tap.at == "keys":
        after(module, _keys_hook(tap, recorder))
    elif tap.at == "mixture":
        mixture = MixtureTap(tap.name, recorder)
        if isinstance(module, MixtureOfExperts):
            module.observers.append(mixture)
            hooks.callback(module.observers.remove, mixture)
            return
        # As published: a `gate` -> (ids, weights, ...) and a list of `experts`.
        after(module.gate, lambda _, inputs, out: mixture.routed(inputs[0], *out[:2]))
        for number, expert in enumerate(module.experts):
            after(expert, lambda _, inputs, out, number=number: mixture.ran(number, inputs[0], out))
        after(module, lambda *_: mixture.ended())


def _keys_hook(tap: Tap, recorder: Recorder) -> Callable[..., None]:
    """Hook for an attention of transformers, with `layer_idx`, which returns (output, weights, cache)."""
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
    """Rotated keys that a call adds to a cache. A full ring is not in order of time."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._prompt = recorder, 0

    def take(self, name: str, keys: Tensor, count: int) -> None:
        """Record the keys of the `count` newest positions, out of the visible ones (B, h, P, D)."""
        step, last = self._recorder.call, keys.shape[2]
        if step == 0:
            self._prompt = last
        else:
            last = self._prompt + (step - 1) % (last - self._prompt) + 1
        self._recorder.take(name, key_rows(keys[0, :, last - count : last]))


def key_rows(keys: Tensor) -> Tensor:
    """Reshape (h, N, D) -> (N, h*D)"""
    return keys.transpose(0, 1).flatten(1)


class MixtureTap:
    """Tap of one mixture: ids of each token's experts, their weights, or their outputs.

    Ordered by rising expert id, as the order of a token's experts has no meaning. An expert's rows have none
    either (the published code sorts unstably), so rows are identified by their input.
    """

    def __init__(self, name: str, recorder: Recorder) -> None:
        self._name, self._recorder = name, recorder
        self._ids = self._tokens = torch.empty(0)
        self._runs: list[tuple[Tensor, Tensor, Tensor]] = []

    def routed(self, x: Tensor, ids: Tensor, weights: Tensor) -> None:
        """Take tokens (..., C), the ids of their experts and their weights, (T, k) each."""
        self._ids, order = ids.sort(dim=-1)
        if self._name.endswith("ids"):
            self._recorder.take(self._name, self._ids.to(torch.int32))
        elif self._name.endswith("weights"):
            self._recorder.take(self._name, weights.gather(-1, order))
        else:
            self._runs.clear()
            self._tokens = row_marks(x.reshape(-1, x.shape[-1]))

    def ran(self, expert: int, x: Tensor, output: Tensor) -> None:
        """Take input and output of one expert, (n, C) each."""
        if self._name.endswith("experts"):
            marks = row_marks(x)
            self._runs.append((torch.full_like(marks, expert), marks, output.detach()))

    def ended(self) -> None:
        """Outputs of all experts, (T*k, C): by token, then by rising expert id."""
        if not self._runs:
            return
        experts, marks, outputs = (torch.cat(part) for part in zip(*self._runs, strict=True))
        self._runs.clear()
        slots = self._ids.flatten()  # (T*k,) the expert of each
        of_token = self._tokens.repeat_interleave(self._ids.shape[-1])
        each = torch.empty_like(outputs)
        each[_ordered(slots, of_token)] = outputs[_ordered(experts, marks)]
        self._recorder.take(self._name, each)


def row_marks(x: Tensor) -> Tensor:
    """Hash of each row's bits, (T, C) -> (T,) int64. Equal rows have equal hashes."""
    bits = x.detach().contiguous().view(torch.int16 if x.element_size() == 2 else torch.int32).to(torch.int64)
    factors = torch.arange(1, x.shape[1] + 1, device=x.device) * 0x9E3779B97F4A7C1  # odd and even, all large
    return (bits * factors).sum(dim=1)


def _ordered(first: Tensor, second: Tensor) -> Tensor:
    """Indices that sort by `first`, then by `second`."""
    order = second.argsort(stable=True)
    return order[first[order].argsort(stable=True)]
