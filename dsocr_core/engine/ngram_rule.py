"""The n-gram rule: which tokens may not come next. No torch, so that records can be examined with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from dsocr_core.reading.records import NgramPolicy


class NgramRule:
    """Forbids any token that would repeat an n-gram, as a policy says; a step costs O(1).

    A size alone is `NoRepeatNGramLogitsProcessor` of transformers over `prompt_ids` and all that comes.
    """

    def __init__(self, policy: NgramPolicy | int, prompt_ids: Iterable[int] = ()) -> None:
        self.policy = NgramPolicy.of(policy)
        self._exempt = frozenset(self.policy.exempt)
        self._ids: list[int] = []
        # Of each n-gram without its last token: what followed, and where it began the last time.
        self._followers: dict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
        counts = self.policy.size and (self.policy.over_prompt or not self.policy.window)
        # Taken in when the rule is first asked, so that a device that reads the prompt need not wait for it.
        self._prompt: Iterable[int] = prompt_ids if counts else ()

    def _take_prompt(self) -> None:
        prompt, self._prompt = self._prompt, ()
        for token in prompt:
            self.push(token)

    def push(self, token: int) -> None:
        """The sequence grew by one token."""
        self._take_prompt()
        self._ids.append(token)
        size = self.policy.size
        if 0 < size <= len(self._ids):
            self._followers[tuple(self._ids[-size:-1])][token] = len(self._ids) - size

    def banned(self) -> set[int]:
        """Tokens that may not come next."""
        self._take_prompt()
        size, window = self.policy.size, self.policy.window
        if size == 0 or len(self._ids) + 1 < size:
            return set()
        began = self._followers.get(tuple(self._ids[len(self._ids) - size + 1 :]), {})
        first = max(0, len(self._ids) - window) if window else 0
        return {token for token, start in began.items() if start >= first} - self._exempt


def forbidden_steps(policy: NgramPolicy | int, tokens: Sequence[int]) -> tuple[int, ...]:
    """The numbers of the new tokens that a policy would not have let through, had it been asked."""
    banned = _banned_before(policy, tokens)
    return tuple(step for step, (token, sets) in enumerate(zip(tokens, banned, strict=True)) if token in sets)


def same_choices(
    a: NgramPolicy | int, b: NgramPolicy | int, tokens: Sequence[int], prompt_ids: Sequence[int] = ()
) -> bool:
    """Tell whether two policies forbid the same before each new token: then decoding writes the same."""
    both = (_banned_before(policy, tokens, prompt_ids) for policy in (a, b))
    return all(of_a == of_b for of_a, of_b in zip(*both, strict=True))


def _banned_before(
    policy: NgramPolicy | int, tokens: Sequence[int], prompt_ids: Sequence[int] = ()
) -> Iterator[set[int]]:
    rule = NgramRule(policy, prompt_ids)
    for token in tokens:
        yield rule.banned()
        rule.push(token)
