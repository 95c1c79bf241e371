"""`run --inputs`: what a model gets of pages, without reading them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from dsocr_core.base.console import FAILED, OK, Name, PageTable
from dsocr_core.cli.answers import Answer
from dsocr_core.cli.read import PageOptions
from dsocr_core.engine.byte_tokenizer import ByteTokenizer
from dsocr_core.models.family import family_of, load_config, read_config
from dsocr_core.page.tokenizer import Tokenizer, TokenizerError
from dsocr_core.settings import Settings

if TYPE_CHECKING:
    from dsocr_core.page.documents import Pages
    from dsocr_core.page.inputs import Encode

_RANDOM = "random:"
_DIGITS = 12
"""Digits of a hash in the table; --json has all of them."""


def inputs(chosen: PageOptions, settings: Settings) -> Answer:
    """List tiles, counts of tokens and hashes of the views; no weights are needed. Raises DsocrError."""
    family_of(*read_config(Path(settings.checkpoint.removeprefix(_RANDOM))))  # says what is missing
    encode = _encoder(settings.checkpoint)
    found = chosen.expanded(settings)
    if chosen.pages_together is not None:
        for index in range(len(found)):  # what cannot be read together is refused before anything is drawn
            settings.request(Path(), more=(Path(),) * (len(found.names(index)) - 1))
    rows = [_row(settings, found, index, encode) for index in range(len(found))]
    return Answer({"pages": rows}, (*_shown(rows),), FAILED if any("error" in row for row in rows) else OK)


def _encoder(checkpoint: str) -> Encode | None:
    """The tokenizer with which that checkpoint is read; None where it has none. Raises ConfigError."""
    path = Path(checkpoint.removeprefix(_RANDOM))
    try:
        return Tokenizer.load(path if path.is_dir() else path.parent).encode
    except TokenizerError:
        return ByteTokenizer(load_config(path).decoder).encode if checkpoint.startswith(_RANDOM) else None


def _row(settings: Settings, found: Pages, index: int, encode: Encode | None) -> dict[str, Any]:
    """A prompt; one whose page cannot be opened has its error. Raises DsocrError for what concerns all."""
    from dsocr_core.page.documents import DocumentError
    from dsocr_core.page.inputs import prompt_inputs

    try:
        page = found[index]
        names = None if page.more is None else found.names(index)
        request = settings.request(page.path, page.source, page.more)
        return prompt_inputs(request, encode, settings.max_pixels, names)
    except DocumentError as error:
        return {"image": found.name(index), "error": str(error)}


def _shown(rows: list[dict[str, Any]]) -> list[RenderableType]:
    """A line a prompt, then errors and notes."""
    table = PageTable("Page", "Size", "Grid", "Tiles", "Tokens", "of the image", "Global view", "Tiles' view")
    heads, notes = [f"{row['model']}, preset {row['preset']}" for row in rows if "error" not in row], []
    for row in rows:
        first, *others = row["images"] if "images" in row else [row["image"]]
        name = f"{first} +{len(others)}" if others else first
        notes += [f"{name}: {note}" for note in ([row["error"]] if "error" in row else row["notes"])]
        if "error" in row:
            table.add_row(Name(name), *["-"] * 7)
            continue
        hashes = {view["name"]: view["sha256"][:_DIGITS] for view in row["views"]}
        size = "various" if row["width"] is None else f"{row['width']} x {row['height']}"
        tokens = "not known" if row["prompt_tokens"] is None else f"{row['prompt_tokens']:,}"
        counts = "{} x {}".format(*row["grid"]), str(row["tiles"]), tokens, f"{row['image_tokens']:,}"
        table.add_row(Name(name), size, *counts, hashes["global"], hashes.get("tiles", "none"))
    return [*heads[:1], table, *notes]
