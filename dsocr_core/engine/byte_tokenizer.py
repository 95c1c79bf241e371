"""Tokenizer for `random:` checkpoints without a tokenizer.json, whose text has no meaning."""

from collections.abc import Iterable

from dsocr_core.models.config import DecoderConfig

_PUBLISHED_IMAGE_ID = 128815
_FIRST_BYTE = 3


class ByteTokenizer:
    """Tokenizer with one token a UTF-8 byte, ids 3..258. `<image>` has its published id, or the last one."""

    def __init__(self, config: DecoderConfig) -> None:
        self.bos_token_id = config.bos_token_id
        self.eos_token_id = config.eos_token_id
        self.image_token_id = min(_PUBLISHED_IMAGE_ID, config.vocab_size - 1)

    def encode(self, text: str) -> list[int]:
        return [_FIRST_BYTE + byte for byte in text.encode()]

    def decode(self, ids: Iterable[int]) -> str:
        raw = bytes(token - _FIRST_BYTE for token in ids if 0 <= token - _FIRST_BYTE < 256)
        return raw.decode(errors="replace")
