"""The eager engine's own taps: forward hooks, and what has no module (router, experts, the attention core).

Inside `tapped_engine` they are on; outside nothing of it is there, so an engine that is not traced pays
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from torch import Tensor

from dsocr_core.models.blocks.attention import AttentionCore
from dsocr_core.models.blocks.decoder import DecoderLayer
from dsocr_core.models.blocks.moe import MixtureOfExperts
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.taps.hooks import MixtureTap, NewKeys, Recorder, key_rows, tapped
from dsocr_core.trace.names import our_taps


@contextmanager
def tapped_model(model: OcrModel, recorder: Recorder) -> Iterator[None]:
    """Record what the model computes inside the block. The attention core is tapped by `tapped_core`."""
    taps = [tap for tap in our_taps(model.config) if tap.at in ("output", "input")]
    mixtures = [
        _MixtureTaps(layer.mlp, f"decoder.layer{number}", recorder)
        for number, layer in enumerate(cast("Iterator[DecoderLayer]", model.decoder.layers))
        if isinstance(layer.mlp, MixtureOfExperts)
    ]
    with tapped(model, taps, recorder):
        try:
            model.decoder.whole_head = True
            for mixture in mixtures:
                mixture.attach()
            yield
        finally:
            model.decoder.whole_head = False
            for mixture in mixtures:
                mixture.detach()


class _MixtureTaps:
    """A mixture's choice and its experts, which are methods of it and not modules."""

    def __init__(self, mixture: MixtureOfExperts, name: str, recorder: Recorder) -> None:
        self._mixture, self._tap = mixture, MixtureTap(name, recorder)
        self._handle: Any = None
        self._before: list[tuple[Any, str, Any]] = []

    def attach(self) -> None:
        """Hide the two methods by ones of the instance."""
        mixture, tap = self._mixture, self._tap
        route, run = mixture.route, mixture.experts.run

        def routed(tokens: Tensor) -> tuple[Tensor, Tensor]:
            ids, weights = route(tokens)
            tap.routed(tokens, ids, weights)
            return ids, weights

        def ran(expert: int, x: Tensor) -> Tensor:
            output = run(expert, x)
            tap.ran(expert, x, output)
            return output

        for owner, name, method in ((mixture, "route", routed), (mixture.experts, "run", ran)):
            self._before.append((owner, name, vars(owner).get(name)))
            setattr(owner, name, method)
        self._handle = mixture.register_forward_hook(lambda *_: tap.ended())

    def detach(self) -> None:
        if self._handle is not None:
            self._handle.remove()
        for owner, name, method in self._before:
            if method is None:
                delattr(owner, name)  # which brings the class's own back
            else:
                setattr(owner, name, method)


def tapped_core(core: AttentionCore, layers: int, recorder: Recorder) -> AttentionCore:
    """A core that records the rotated queries and the new rotated keys of layer after layer."""
    calls, new = 0, NewKeys(recorder)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        nonlocal calls
        name = f"decoder.layer{calls % layers}"
        calls += 1
        recorder.take(f"{name}.queries", key_rows(q[0]))
        new.take(f"{name}.keys", k, q.shape[2])
        return core(q, k, v)

    return attend
