"""What the engine does before a page's first stage, in words that anyone may ask for meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_words = ""


@contextmanager
def saying() -> Iterator[Callable[[str], None]]:
    """Say within the block what is done, and at its end that nothing is."""
    try:
        yield _say
    finally:
        _say("")


def words() -> str:
    """What is done now; empty for nothing. Of two at a time it is what was said last."""
    return _words


def _say(words: str) -> None:
    global _words
    _words = words
