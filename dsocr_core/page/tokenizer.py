"""A checkpoint's tokenizer without transformers, and text as a stream of tokens makes it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from dsocr_core.base.bounded_json import InvalidFile, Missing, parse_json, read_bytes
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.reading.records import IMAGE_PLACEHOLDER

TOKENIZER_FILE = "tokenizer.json"
SPECIALS_FILES = ("tokenizer_config.json", "special_tokens_map.json")
MARKUP_TOKENS = ("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<|grounding|>")

_FILE_LIMIT = 64 * 1024 * 1024
"""Bytes; the published tokenizer has 10 MB."""

REPLACEMENT = "\ufffd"
"""Character that a decoder writes for bytes that are no UTF-8, an unfinished character's among them."""


class TokenizerError(DsocrError):
    """A tokenizer that is missing, broken or not DeepSeek-OCR's; names the file."""


class Tokenizer:
    """Text to ids and back, as transformers' fast tokenizer of the same directory does it.

    Special ids are found by the tokens' text, since checkpoints number them differently.
    """

    def __init__(self, backend: Any, source: str, specials: dict[str, str]) -> None:
        """`backend` is a `tokenizers.Tokenizer`, `specials` the texts of bos_token, eos_token, pad_token.

        Raises TokenizerError.
        """
        self._backend, self._source = backend, source
        names = (specials[f"{name}_token"] for name in ("bos", "eos", "pad"))
        self.image_token_id, *_ = map(self._id, (IMAGE_PLACEHOLDER, *MARKUP_TOKENS))
        self.bos_token_id, self.eos_token_id, self.pad_token_id = map(self._id, names)

    @classmethod
    def load(cls, directory: Path) -> Tokenizer:
        """The tokenizer of a checkpoint directory. Raises TokenizerError."""
        import tokenizers  # type: ignore[import-untyped]  # heavy: only who reads text pays for it

        file = directory / TOKENIZER_FILE
        try:
            content = read_bytes(file, _FILE_LIMIT, follow_links=True)
            backend = tokenizers.Tokenizer.from_str(content.decode("utf-8"))
        except Missing:
            raise TokenizerError(f"{file}: missing; is this a DeepSeek-OCR checkpoint?") from None
        except InvalidFile as error:
            raise TokenizerError(f"{file}: {error}") from error
        except Exception as error:  # the library raises Exception itself for every damage
            raise TokenizerError(f"{file}: not a tokenizer ({one_line(error, 200)})") from error
        return cls(backend, str(file), _special_texts(directory))

    def encode(self, text: str) -> list[int]:
        """Ids of a text, specials recognised by their text and none added."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids, specials included; bytes that are no UTF-8 become U+FFFD."""
        return str(self._backend.decode(list(ids), skip_special_tokens=False))

    @property
    def special_texts(self) -> tuple[str, ...]:
        """Tokens that `skip_special_tokens` leaves out of a text."""
        added = self._backend.get_added_tokens_decoder().values()
        return tuple(str(token.content) for token in added if token.special)

    def _id(self, token: str) -> int:
        number = self._backend.token_to_id(token)
        if number is None:
            raise TokenizerError(f"{self._source}: has no token {token}; is this a DeepSeek-OCR tokenizer?")
        return int(number)


def _special_texts(directory: Path) -> dict[str, str]:
    """bos, eos and pad by name, from whichever file has them. Raises TokenizerError."""
    texts: dict[str, str] = {}
    for file in (directory / name for name in SPECIALS_FILES):
        try:
            data: Any = parse_json(read_bytes(file, _FILE_LIMIT, follow_links=True), any_number=True)
        except Missing:
            continue
        except InvalidFile as error:
            raise TokenizerError(f"{file}: {error}") from error
        for key in ("bos_token", "eos_token", "pad_token"):
            value = data.get(key)
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str):
                texts.setdefault(key, text)
    if missing := [key for key in ("bos_token", "eos_token") if key not in texts]:
        named = f"names no {missing[0]}, nor does {SPECIALS_FILES[1]}"
        raise TokenizerError(f"{directory / SPECIALS_FILES[0]}: {named}")
    return {"pad_token": texts["eos_token"], **texts}


class Decodes(Protocol):
    """Part of a tokenizer that a stream needs."""

    def decode(self, ids: Iterable[int]) -> str: ...


class StreamDecoder:
    """Text deltas of a growing list of tokens, whose sum is the decoded whole, at linear cost.

    A token may end inside a character. Its unfinished bytes decode to one U+FFFD at the end, which waits
    until a later token completes it; everything before it is final.
    """

    _WINDOW = 16
    """Most tokens that are decoded again; a character is at most four."""

    def __init__(self, tokenizer: Decodes) -> None:
        self._decode = tokenizer.decode
        self._pending: list[int] = []
        self._emitted = 0
        """Characters of the pending tokens' text that have been returned."""

    def push(self, token: int) -> str:
        """The text that is certain now and was not before."""
        self._pending.append(token)
        text = self._decode(self._pending)
        if not text.endswith(REPLACEMENT):
            return self._all_of(text)
        delta = text[self._emitted : -1]
        self._emitted = max(self._emitted, len(text) - 1)
        # Beyond the window tokens before the last boundary between two characters go; a split inside a
        # character shows as one more U+FFFD in the texts of the halves.
        for count in range(1, len(self._pending)) if len(self._pending) > self._WINDOW else ():
            head = self._decode(self._pending[:-count])
            if head + self._decode(self._pending[-count:]) == text:
                self._pending = self._pending[-count:]
                self._emitted = max(0, self._emitted - len(head))
                break
        return delta

    def flush(self) -> str:
        """The rest, once no token follows."""
        return self._all_of(self._decode(self._pending))

    def _all_of(self, text: str) -> str:
        delta, self._pending, self._emitted = text[self._emitted :], [], 0
        return delta
