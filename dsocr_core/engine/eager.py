"""The eager engine: the published order of operations, a forward pass a token."""

from dsocr_core.engine.base import Engine


class EagerEngine(Engine):
    """One forward pass a token, its logits read at once; with `top_two` the two best are recorded."""

    name = "eager"
