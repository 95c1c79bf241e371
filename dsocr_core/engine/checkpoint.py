"""A checkpoint that is ready to run: sizes, weights on a device, tokenizer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from dsocr_core.base.errors import DsocrError
from dsocr_core.engine import preparing
from dsocr_core.models.config import DecoderConfig, ModelConfig
from dsocr_core.models.family import load_config
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import load_model, random_model
from dsocr_core.page.tokenizer import Tokenizer

RANDOM_PREFIX = "random:"
_PUBLISHED_IMAGE_ID, _FIRST_BYTE = 128815, 3


class TextCodec(Protocol):
    """Methods of a tokenizer that an engine needs."""

    bos_token_id: int
    eos_token_id: int
    image_token_id: int

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Iterable[int]) -> str: ...


class ByteTokenizer:
    """Tokenizer of random weights: a token a byte, ids 3 to 258. `<image>` has its published or last id."""

    def __init__(self, config: DecoderConfig) -> None:
        self.bos_token_id, self.eos_token_id = config.bos_token_id, config.eos_token_id
        self.image_token_id = min(_PUBLISHED_IMAGE_ID, config.vocab_size - 1)

    def encode(self, text: str) -> list[int]:
        return [_FIRST_BYTE + byte for byte in text.encode()]

    def decode(self, ids: Iterable[int]) -> str:
        raw = bytes(token - _FIRST_BYTE for token in ids if 0 <= token - _FIRST_BYTE < 256)
        return raw.decode(errors="replace")


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint. `source` is its directory, or `random:PATH`."""

    source: str
    config: ModelConfig
    model: OcrModel
    tokenizer: TextCodec


def load_checkpoint(source: str, device: torch.device, dtype: torch.dtype) -> Checkpoint:
    """Load a checkpoint directory, or random weights for `random:PATH/config.json`. Raises DsocrError."""
    if source.startswith(RANDOM_PREFIX):
        path = Path(source.removeprefix(RANDOM_PREFIX))
        config = load_config(path)
        directory = path if path.is_dir() else path.parent
        has_tokenizer = (directory / "tokenizer.json").is_file()
        tokenizer: TextCodec = Tokenizer.load(directory) if has_tokenizer else ByteTokenizer(config.decoder)
        with preparing.saying() as say:
            say("drawing random weights")
            return Checkpoint(source, config, random_model(config, device, dtype), tokenizer)
    directory = Path(source)
    if not directory.is_dir():
        raise DsocrError(f"{directory}: no such checkpoint directory; give one, or random:PATH/config.json")
    config = load_config(directory)
    tokenizer = Tokenizer.load(directory)
    if max(tokenizer.image_token_id, tokenizer.eos_token_id) >= config.decoder.vocab_size:
        raise DsocrError(f"{directory}: tokenizer.json has ids beyond config.json's vocab_size")
    with preparing.saying() as say:

        def loaded(done: int, count: int) -> None:
            say(f"loading weights, {done / 1e9:.1f} of {count / 1e9:.1f} GB")

        model = load_model(config, directory, device, dtype, loaded)
    return Checkpoint(source, config, model, tokenizer)
