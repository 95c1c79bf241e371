"""`inputs`: what a model gets of pages, without reading them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from dsocr_core.base.console import FAILED, OK, Name, page_table, print_json
from dsocr_core.engine.byte_tokenizer import ByteTokenizer
from dsocr_core.models.family import family_named, family_of, load_config, read_config
from dsocr_core.page.tokenizer import Tokenizer, TokenizerError
from dsocr_core.settings import Settings, SettingsError

if TYPE_CHECKING:
    from dsocr_core.page.documents import Pages
    from dsocr_core.page.inputs import Encode

RANDOM = "random:"
_DIGITS = 12
"""Of a hash in the table; --json has all of them."""


def inputs(
    settings: Settings,
    page: tuple[str, ...],
    *,
    model: str = "",
    pages: str | None = None,
    recursive: bool = False,
    pages_together: bool = False,
    json: bool = False,
    console: Console,
) -> int:
    """Say what a model gets of pages: tiles, counts of tokens, hashes of the views. Reads nothing, and needs
    no weights: of --checkpoint the config.json and the tokenizer, of --model nothing.

    Args:
        page: images, folders or PDF files
        model: name of a model in place of a checkpoint, like unlimited_ocr or DeepseekOCR2ForCausalLM
        pages: pages of PDF files, like 1-3,7
        recursive: take the folders below given ones too
        pages_together: all pages in one prompt, for a model that takes several
    """
    if model and settings.checkpoint != Settings.checkpoint:
        raise SettingsError("--model is for pages without a checkpoint: leave it or --checkpoint out")
    if model:
        settings, encode = settings.of_model(family_named(model)), None
    else:
        family_of(*read_config(Path(settings.checkpoint.removeprefix(RANDOM))))  # says what is missing
        encode = _encoder(settings.checkpoint)
    from dsocr_core.page.documents import expand

    limits = settings.pdf_dpi, settings.max_pixels
    found = expand(map(Path, page), pages, None, *limits, recursive=recursive)
    rows = list((_together if pages_together else _rows)(settings, found, encode))
    if json:
        print_json({"pages": rows})
    else:
        _print(rows, console)
    return FAILED if any("error" in row for row in rows) else OK


def _encoder(checkpoint: str) -> Encode | None:
    """The tokenizer with which that checkpoint is read; None where it has none. Raises ConfigError."""
    path = Path(checkpoint.removeprefix(RANDOM))
    try:
        return Tokenizer.load(path if path.is_dir() else path.parent).encode
    except TokenizerError:
        return ByteTokenizer(load_config(path).decoder).encode if checkpoint.startswith(RANDOM) else None


def _rows(settings: Settings, found: Pages, encode: Encode | None) -> Iterator[dict[str, Any]]:
    """A prompt a page; one that cannot be opened is named with its error."""
    from dsocr_core.page.documents import DocumentError
    from dsocr_core.page.inputs import prompt_inputs

    for index in range(len(found)):
        try:
            page = found[index]
            request = settings.request(page.path, page.source)
            yield prompt_inputs(request, encode, settings.max_pixels).document()
        except DocumentError as error:
            yield {"image": found.name(index), "error": str(error)}


def _together(settings: Settings, found: Pages, encode: Encode | None) -> Iterator[dict[str, Any]]:
    """All pages as one prompt. Raises DsocrError."""
    from dsocr_core.page.inputs import prompt_inputs

    names = [found.name(index) for index in range(len(found))]
    request = settings.request(
        Path(names[0]), more=tuple(map(Path, names[1:]))
    )  # refused before any is drawn
    first, *others = (each.path for each in found)
    request = replace(request, image=first, more=tuple(others))
    seen = prompt_inputs(request, encode, settings.max_pixels, names)
    document = seen.document()
    del document["image"]
    yield {"images": names, "sizes": [list(size) for size in seen.sizes], **document}


def _print(rows: list[dict[str, Any]], console: Console) -> None:
    """A line a prompt, then what is to say of each."""
    table = page_table(
        "Page", "Size", "Grid", "Tiles", "Image tokens", "Prompt tokens", "Global view", "Tiles' view"
    )
    for row in rows:
        name = row["image"] if "image" in row else f"{len(row['images'])} pages"
        if "error" in row:
            table.add_row(Name(name), *["-"] * 7)
            continue
        hashes = {view["name"]: view["sha256"][:_DIGITS] for view in row["views"]}
        table.add_row(
            Name(name),
            "various" if row["width"] is None else f"{row['width']} x {row['height']}",
            "{} x {}".format(*row["grid"]),
            f"{row['tiles']}",
            f"{row['image_tokens']:,}",
            "not known" if row["prompt_tokens"] is None else f"{row['prompt_tokens']:,}",
            hashes["global"],
            hashes.get("tiles", "none"),
        )
    there = next((row for row in rows if "error" not in row), None)
    if there is not None:
        console.print(f"{there['model']}, preset {there['preset']}", markup=False)
    console.print(table)
    said: dict[str, list[str]] = {}
    for row in rows:
        for note in [row["error"]] if "error" in row else row["notes"]:
            said.setdefault(note, []).append(row.get("image", ""))
    for note, (name, *others) in said.items():
        more = f" and {len(others)} more" if others else ""
        console.print(f"{name}{more}{': ' if name else ''}{note}", markup=False, highlight=False)
