"""The prompt as the model sees it: text ids around the places of the image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dsocr_core.errors import DsocrError

IMAGE_PLACEHOLDER = "<image>"


class PromptError(DsocrError):
    """A prompt that cannot be laid out; says what it needs."""


@dataclass(frozen=True)
class PromptIds:
    """`mask` are the runs of image positions in `ids`, as (start, length)."""

    ids: tuple[int, ...]
    mask: tuple[tuple[int, int], ...]


def build_prompt(prompt_text: str) -> str:
    """The text under the published conversation template `plain`, which only strips it."""
    return prompt_text.strip()


def prompt_problem(prompt: str) -> str | None:
    """Why a page cannot be read with that prompt text; None when it can.

    The published code reads both kinds and gives them another meaning: without the placeholder it puts the
    text twice, before and after the page, and saves nothing; of two it drops the second with the text
    between them.
    """
    count = prompt.count(IMAGE_PLACEHOLDER)
    if count == 1:
        return None
    needs = f"needs exactly one {IMAGE_PLACEHOLDER}, where the page goes, and has {count or 'none'}"
    if count == 0:
        return f"{needs}; the published code would put its text before the page and after it again"
    return f"{needs}; the published code would leave out the text between the first and the last"


def prompt_layout(
    encode: Callable[[str], list[int]],
    prompt: str,
    image_token_id: int,
    bos_id: int,
    image_tokens: int,
) -> PromptIds:
    """`[bos] + text + image_tokens x <image> + text`, each piece of text encoded on its own.

    Raises PromptError unless the prompt has exactly one `<image>`: a page is one image.
    """
    if (problem := prompt_problem(prompt)) is not None:
        raise PromptError(f"prompt {prompt[:60]!r}: {problem}")
    pieces = prompt.split(IMAGE_PLACEHOLDER)
    before, after = (encode(piece) if piece else [] for piece in pieces)
    ids = [bos_id, *before, *[image_token_id] * image_tokens, *after]
    return PromptIds(tuple(ids), ((1 + len(before), image_tokens),))
