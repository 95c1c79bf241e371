"""The two best logits of each decoded step."""

import torch
from torch import Tensor


class BestTwo:
    """Recorder of each step's two best logits, which stay on the device until they are read."""

    def __init__(self) -> None:
        self._ids: list[Tensor] = []
        self._logits: list[Tensor] = []

    def add(self, logits: Tensor, chosen: Tensor) -> None:
        """Add a step: logits (V,) with banned tokens at -inf, and the chosen token, ()."""
        place = chosen[None]  # (1,)
        rest = logits.scatter(0, place, float("-inf")).max(dim=0, keepdim=True)
        self._ids += [place, rest.indices]
        self._logits += [logits.gather(0, place), rest.values]

    def pairs(self) -> tuple[list[int], list[float]]:
        """Ids and logits of every step, two of each, copied to the host."""
        ids, logits = (torch.cat(rows).tolist() if rows else [] for rows in (self._ids, self._logits))
        return ids, logits
