"""The decode policy: greedy, with the n-gram rule of transformers over the whole sequence."""

from collections import defaultdict
from collections.abc import Iterable

from torch import Tensor


class NgramRule:
    """Forbids any token that would repeat an n-gram of the sequence so far, prompt included.

    Kept up to date token by token: a step costs O(1) instead of a walk over the sequence. The rule is
    `NoRepeatNGramLogitsProcessor` of transformers: no window, no exceptions. Size 0 switches it off.
    """

    def __init__(self, size: int, ids: Iterable[int] = ()) -> None:
        if size < 0:
            raise ValueError(f"n-gram size {size} is negative")
        self.size = size
        self._ids: list[int] = []
        self._followers: dict[tuple[int, ...], set[int]] = defaultdict(set)
        for token in ids:
            self.push(token)

    def push(self, token: int) -> None:
        """The sequence grew by one token."""
        self._ids.append(token)
        if 0 < self.size <= len(self._ids):
            self._followers[tuple(self._ids[-self.size : -1])].add(token)

    def banned(self) -> set[int]:
        """Tokens that may not come next."""
        if self.size == 0 or len(self._ids) + 1 < self.size:
            return set()
        return self._followers.get(tuple(self._ids[len(self._ids) - self.size + 1 :]), set())


def greedy(logits: Tensor, banned: set[int]) -> int:
    """The best allowed token of (V,) float32 logits; the lowest id on a tie."""
    if banned:
        logits = logits.clone()
        logits[list(banned)] = float("-inf")
    return int(logits.argmax())
