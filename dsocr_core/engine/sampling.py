"""The decode policy: greedy, with an n-gram rule: the published one, or that of another engine."""

import torch
from torch import Tensor

from dsocr_core.reading.ngram_rule import NgramRule
from dsocr_core.reading.records import TopTwo, top_two_steps

__all__ = ["BestTwo", "NgramRule", "best_allowed", "greedy"]


class BestTwo:
    """The two best logits of every step, on the device until they are read: no step waits for them."""

    def __init__(self) -> None:
        self._ids: list[Tensor] = []
        self._logits: list[Tensor] = []

    def add(self, logits: Tensor, chosen: Tensor) -> None:
        """A step's (V,) logits without the forbidden ones, and the token chosen of them, ()."""
        place = chosen[None]  # (1,)
        rest = logits.scatter(0, place, float("-inf")).max(dim=0, keepdim=True)
        self._ids += [place, rest.indices]
        self._logits += [logits.gather(0, place), rest.values]

    def steps(self) -> tuple[TopTwo, ...]:
        """One a step; copied to the host in two pieces."""
        if not self._ids:
            return ()
        return top_two_steps(torch.cat(self._ids).tolist(), torch.cat(self._logits).tolist())


def greedy(logits: Tensor, banned: set[int], best: BestTwo | None = None) -> int:
    """`best_allowed` on the host, which waits for it."""
    return int(best_allowed(logits, banned, best))


def best_allowed(logits: Tensor, banned: set[int], best: BestTwo | None = None) -> Tensor:
    """The best allowed token of (V,) float32 logits, (); the lowest id on a tie. `best` has the two best."""
    if banned:
        logits = logits.clone()
        logits[list(banned)] = float("-inf")
    chosen = logits.argmax()  # ()
    if best is not None:
        best.add(logits, chosen)
    return chosen
