"""The checkpoint's tokenizer, read from `tokenizer.json`; special tokens are found by their text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from dsocr_core.errors import DsocrError
from dsocr_core.inputs.prompt import IMAGE_PLACEHOLDER

_MAX_BYTES = 256 * 1024 * 1024
_LONGEST_CHARACTER = 4
"""Bytes of the longest UTF-8 character: a byte-level token holds at least one of them."""


class TokenizerError(DsocrError):
    """A tokenizer that is missing, broken, or lacks the special tokens; names the file."""


class Tokenizer:
    """Text to ids and back, equal to transformers' fast tokenizer without added specials."""

    def __init__(self, backend: Any, bos_token_id: int, eos_token_id: int, image_token_id: int) -> None:
        self._backend = backend
        self.bos_token_id = bos_token_id
        self.eos_token_id = eos_token_id
        self.image_token_id = image_token_id

    @classmethod
    def load(cls, directory: Path) -> Tokenizer:
        """The tokenizer of a checkpoint directory. Raises TokenizerError."""
        from tokenizers import Tokenizer as Backend

        file = directory / "tokenizer.json"
        if not file.is_file():
            raise TokenizerError(f"{file}: not here; give a whole DeepSeek-OCR checkpoint directory")
        if file.stat().st_size > _MAX_BYTES:
            raise TokenizerError(f"{file}: larger than {_MAX_BYTES >> 20} MiB; this is no tokenizer")
        try:
            backend = Backend.from_file(str(file))
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise TokenizerError(f"{file}: not a tokenizer ({reason})") from error

        def id_of(text: str, role: str) -> int:
            found = backend.token_to_id(text)
            if found is None:
                raise TokenizerError(
                    f"{file}: has no {role} token '{text}'; is this a DeepSeek-OCR tokenizer?"
                )
            return int(found)

        texts = _special_texts(directory)
        return cls(
            backend,
            id_of(texts["bos_token"], "bos"),
            id_of(texts["eos_token"], "eos"),
            id_of(IMAGE_PLACEHOLDER, "image"),
        )

    def encode(self, text: str) -> list[int]:
        """Ids of a text; the markup tokens in it become their own ids, nothing is added."""
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, special tokens included."""
        text: str = self._backend.decode(list(ids), skip_special_tokens=False)
        return text


class _Decodes(Protocol):
    def decode(self, ids: Iterable[int]) -> str: ...


class StreamDecoder:
    """Text of a growing token sequence, piece by piece, at a cost that does not grow with it.

    A character that spans tokens is held back until it is whole.
    """

    def __init__(self, tokenizer: _Decodes) -> None:
        self._tokenizer = tokenizer
        self._pending: list[int] = []

    def push(self, token: int) -> str:
        """The text that this token completes; empty while a character is unfinished."""
        self._pending.append(token)
        text = self._tokenizer.decode(self._pending)
        if text.endswith("\ufffd") and len(self._pending) < _LONGEST_CHARACTER:
            return ""
        self._pending.clear()
        return text


def _special_texts(directory: Path) -> dict[str, str]:
    """Texts of the bos and eos tokens from the checkpoint's tokenizer files."""
    found: dict[str, str] = {}
    tried = []
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        file = directory / name
        if not file.is_file():
            continue
        tried.append(name)
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            for role in ("bos_token", "eos_token"):
                value = data.get(role)
                text = value.get("content") if isinstance(value, dict) else value
                if isinstance(text, str):
                    found.setdefault(role, text)
        except (OSError, ValueError, AttributeError) as error:
            raise TokenizerError(f"{file}: cannot be read as JSON ({error})") from error
    for role in ("bos_token", "eos_token"):
        if role not in found:
            where = " and ".join(tried) or "tokenizer_config.json (missing)"
            raise TokenizerError(f"{directory}: {where} names no {role}; give a whole checkpoint directory")
    return found
