"""Tokenizer of a checkpoint without transformers, and the text of a growing list of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, Missing, read_bytes
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.reading.records import IMAGE_PLACEHOLDER

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
MARKUP_TOKENS = ("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<|grounding|>")
REPLACEMENT = "\ufffd"
"""Character that a decoder writes for bytes that are not UTF-8, or an incomplete character."""

_FILE_LIMIT = 64 * 1024 * 1024  # bytes; the published tokenizer has 10 MB


class Tokenizer:
    """Text to ids and back, like transformers' fast tokenizer of the same directory.

    Special ids are found by the tokens' text: checkpoints number them differently.
    """

    def __init__(self, backend: Any, source: str) -> None:
        """`backend` is a `tokenizers.Tokenizer`. Raises DsocrError."""
        self._backend = backend
        special = (BOS, EOS, IMAGE_PLACEHOLDER, *MARKUP_TOKENS)
        ids = [backend.token_to_id(token) for token in special]
        if None in ids:
            absent = special[ids.index(None)]
            raise DsocrError(f"{source}: has no token {absent}; is this a DeepSeek-OCR tokenizer?")
        self.bos_token_id, self.eos_token_id, self.image_token_id = map(int, ids[:3])

    @classmethod
    def load(cls, directory: Path) -> Tokenizer:
        """Load the tokenizer of a checkpoint directory. Raises DsocrError."""
        import tokenizers  # type: ignore[import-untyped]  # heavy: only who reads text pays for it

        file = directory / "tokenizer.json"
        try:
            content = read_bytes(file, _FILE_LIMIT, follow_links=True)
            backend = tokenizers.Tokenizer.from_str(content.decode("utf-8"))
        except Missing:
            raise DsocrError(f"{file}: missing; is this a DeepSeek-OCR checkpoint?") from None
        except InvalidFile as error:
            raise DsocrError(f"{file}: {error}") from error
        except Exception as error:  # the library raises plain Exception for every damage
            raise DsocrError(f"{file}: not a tokenizer ({one_line(error, 200)})") from error
        return cls(backend, str(file))

    def encode(self, text: str) -> list[int]:
        """Ids of a text. Special tokens are recognised by their text; none are added."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids, special tokens included. Bytes that are not UTF-8 become U+FFFD."""
        return str(self._backend.decode(list(ids), skip_special_tokens=False))

    @property
    def special_texts(self) -> tuple[str, ...]:
        """Texts of the tokens that `skip_special_tokens` leaves out."""
        added = self._backend.get_added_tokens_decoder().values()
        return tuple(str(token.content) for token in added if token.special)


class StreamDecoder:
    """Text of a growing list of tokens in pieces, whose sum is the decoded whole, at linear cost.

    A token may end inside a character. Its bytes then decode to one U+FFFD at the end, which is held back
    until a later token completes it. All text before it is final.
    """

    _WINDOW = 16
    """Most tokens that are decoded again. A character has at most four."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._pending: list[int] = []
        self._emitted = 0
        """Characters of the pending tokens' text that were returned already."""

    def push(self, token: int) -> str:
        """Add a token. Returns the text that has become final."""
        self._pending.append(token)
        text = self._decode(self._pending)
        if not text.endswith(REPLACEMENT):
            return self._all_of(text)
        delta = text[self._emitted : -1]
        self._emitted = max(self._emitted, len(text) - 1)
        # Beyond the window, tokens before the last character boundary are dropped. A split inside a
        # character would show as one more U+FFFD in the halves.
        for count in range(1, len(self._pending)) if len(self._pending) > self._WINDOW else ():
            head = self._decode(self._pending[:-count])
            if head + self._decode(self._pending[-count:]) == text:
                self._pending = self._pending[-count:]
                self._emitted = max(0, self._emitted - len(head))
                break
        return delta

    def flush(self) -> str:
        """The rest of the text after the last token."""
        return self._all_of(self._decode(self._pending))

    def _all_of(self, text: str) -> str:
        delta, self._pending, self._emitted = text[self._emitted :], [], 0
        return delta
