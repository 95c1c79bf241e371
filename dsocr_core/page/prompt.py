"""The prompt as ids: text tokens around the positions of the image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dsocr_core.base.errors import DsocrError
from dsocr_core.page.tiling import image_token_count, page_grid
from dsocr_core.reading.records import IMAGE_PLACEHOLDER, OcrRequest, Template, prompt_problem

Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class PromptIds:
    """Ids of a prompt. `mask` lists the runs of image positions as (start, length)."""

    ids: tuple[int, ...]
    mask: tuple[tuple[int, int], ...]


def build_prompt(prompt_text: str, template: Template = "plain") -> str:
    """Put the text into a conversation template: the published `plain`, or one that other engines use."""
    text = prompt_text.strip()
    if template == "no_newline":
        return text.replace(f"{IMAGE_PLACEHOLDER}\n", IMAGE_PLACEHOLDER)
    if template == "roles":
        return f"<|User|>: {text}\n\n<|Assistant|>:"
    if template != "plain":
        behind = IMAGE_PLACEHOLDER + _BEHIND[template]
        return text if behind in text else text.replace(IMAGE_PLACEHOLDER, behind)
    return text


_BEHIND = {"newline": "\n", "grounding": "<|grounding|>", "newline_grounding": "\n<|grounding|>"}


def prompt_layout(
    encode: Encode, prompt: str, image_token_id: int, bos_id: int, image_tokens: int
) -> PromptIds:
    """Lay out `[bos] + text + image_tokens x <image> + text`; each piece of text is encoded alone.

    Raises DsocrError unless the prompt has exactly one `<image>`.
    """
    if (problem := prompt_problem(prompt)) is not None:
        raise DsocrError(f"prompt {prompt[:60]!r}: {problem}")
    pieces = prompt.split(IMAGE_PLACEHOLDER)
    before, after = (encode(piece) if piece else [] for piece in pieces)
    ids = [bos_id, *before, *[image_token_id] * image_tokens, *after]
    return PromptIds(tuple(ids), ((1 + len(before), image_tokens),))


def longest_prompt(request: OcrRequest, size: tuple[int, int], encode: Encode) -> int:
    """Most tokens of a prompt with an image of `size` (width, height), under its preset or the model's
    default one. Raises DsocrError.
    """
    family, text = request.family, build_prompt(request.required.prompt, request.template)
    presets = [each.resolution for each in (request, replace(request, preset=family.preset))]
    image = max(image_token_count(each, page_grid(*size, each), family.newline) for each in presets)
    return image + len(prompt_layout(encode, text, 0, 0, 0).ids)
