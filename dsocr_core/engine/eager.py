"""The eager engine: operations in the published order, one forward pass a token."""

from dsocr_core.engine.base import Engine


class EagerEngine(Engine):
    """Engine with one forward pass a token. The host reads each step's logits."""

    name = "eager"
