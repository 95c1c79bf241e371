"""What the engine does before a page's first stage, in words that anyone may ask for meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_words = ""


@contextmanager
def preparing(sentence: str) -> Iterator[Callable[[float, float], None]]:
    """Within the block say how far work is: `sentence` takes what is done, and all of it."""

    def say(words: str) -> None:
        global _words
        _words = words

    try:
        yield lambda done, count: say(sentence.format(done, count))
    finally:
        say("")


def words() -> str:
    """What is done now; empty for nothing."""
    return _words
