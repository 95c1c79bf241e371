"""Prompt text -> token ids with the image's span in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dsocr_core.errors import DsocrError

IMAGE_PLACEHOLDER = "<image>"


class PromptError(DsocrError):
    """A prompt without exactly one `<image>`."""


@dataclass(frozen=True)
class PromptIds:
    """`ids` of the whole prompt; `mask` the runs of image positions in it as (start, length)."""

    ids: tuple[int, ...]
    mask: tuple[tuple[int, int], ...]


def build_prompt(text: str) -> str:
    """The prompt the published `plain` template makes: roles and separators are empty, so it strips."""
    return text.strip()


def prompt_layout(
    encode: Callable[[str], list[int]],
    prompt: str,
    image_token_id: int,
    bos_id: int,
    image_tokens: int,
) -> PromptIds:
    """[bos] + text before the image + the image's span + text after it; no other specials.

    The two texts are encoded apart, as the published code does. Raises PromptError.
    """
    parts = prompt.split(IMAGE_PLACEHOLDER)
    if len(parts) != 2:
        raise PromptError(f"the prompt has {len(parts) - 1} {IMAGE_PLACEHOLDER}; one page takes exactly one")
    before, after = (encode(part) for part in parts)
    start = 1 + len(before)
    ids = (bos_id, *before, *([image_token_id] * image_tokens), *after)
    return PromptIds(ids, ((start, image_tokens),))
