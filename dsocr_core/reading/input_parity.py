"""Input parity: what went into both models, line by line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest

from dsocr_core.reading.parity_records import InputLine, InputState, input_line
from dsocr_core.reading.records import ModelInputs, OcrResult

PROMPT, PRESET, PAGE_SIZE, IMAGE = "prompt", "preset", "page size, EXIF applied", "image SHA-256"
GRID, NGRAM, DTYPE, ROTARY, ATTENTION, LIMIT = (
    "grid", "n-gram size", "dtype", "rotary frequencies", "attention", "token limit",
)  # fmt: skip
PROMPT_TOKENS, PROMPT_IDS, IMAGE_TOKENS, IMAGE_MASK = (
    "prompt tokens", "prompt ids", "image tokens", "image mask",
)  # fmt: skip
GLOBAL, GLOBAL_HASH, TILES, TILES_HASH = "global view", "global view SHA-256", "tiles", "tiles SHA-256"

MODEL_LINES: Mapping[str, bool] = {
    PROMPT_TOKENS: True, PROMPT_IDS: True, IMAGE_TOKENS: True, IMAGE_MASK: True, GRID: True, GLOBAL: True,
    GLOBAL_HASH: True, TILES: True, TILES_HASH: True, NGRAM: True, DTYPE: True, ROTARY: True,
    ATTENTION: False, LIMIT: False,
}  # fmt: skip
"""The lines about the model's inputs, and whether each decides.

Attention and the token limit are shown and do not decide: SDPA, our default attention, has no counterpart in
the published decoder, and a limit that is never reached changes nothing.
"""

KNOWN_INPUT = "input: "
"""Begins the name of a fact of a result's environment that is a line of these, known without its inputs."""

_SHORT = 24
"""Characters of a value that is named in a sentence; a longer one is in the table."""


def input_facts(inputs: ModelInputs) -> dict[str, str]:
    """The model's inputs as texts, by line; the prompt's ids are all of them."""

    def shape(values: tuple[int, ...]) -> str:
        return " x ".join(map(str, values))

    runs = (f"{start}..{start + length - 1}" for start, length in inputs.image_mask)
    return {
        PROMPT_TOKENS: str(len(inputs.prompt_ids)),
        PROMPT_IDS: " ".join(map(str, inputs.prompt_ids)),
        IMAGE_TOKENS: str(inputs.image_token_count),
        IMAGE_MASK: ", ".join(runs) or "none",
        GRID: shape(inputs.grid),
        GLOBAL: shape(inputs.global_shape),
        GLOBAL_HASH: inputs.global_sha256,
        TILES: shape(inputs.tiles_shape),
        TILES_HASH: inputs.tiles_sha256,
        NGRAM: inputs.ngram_words if inputs.no_repeat_ngram_size else "0",
        DTYPE: inputs.dtype,
        ROTARY: inputs.rotary_dtype,
        ATTENTION: inputs.attention,
        LIMIT: str(inputs.max_new_tokens),
    }


def input_lines(a: OcrResult, b: OcrResult) -> tuple[InputLine, ...]:
    """Compare what went into both results, one line a fact, as far as both know it.

    Another image file decides nothing where the pixels that went into the model are known to be equal.
    """
    model = compare_facts(_known_facts(a), _known_facts(b))
    same = same_pixels({line.name: line.state for line in model})
    of_a, of_b = _around(a), _around(b)
    around = (input_line(name, of_a[name], of_b[name], name != IMAGE or not same) for name in of_a)
    return (*around, *model)


def same_pixels(state: Mapping[str, InputState]) -> bool:
    """Tell whether the pixels that went into the model are known to be equal, by the states of lines."""
    return state[GLOBAL_HASH] == state[TILES_HASH] == "equal"


def _around(result: OcrResult) -> dict[str, str | None]:
    """Facts beside the model's own inputs."""
    request, files = result.request, (result.request.file, *result.request.more_files)
    return {
        PROMPT: request.prompt,
        PRESET: request.preset,
        PAGE_SIZE: ", ".join(f"{width} x {height}" for width, height in result.sizes)
        if all(result.image_size)
        else None,
        IMAGE: ", ".join(file.sha256 for file in files if file) if request.file else None,
    }


def _known_facts(result: OcrResult) -> Mapping[str, str | None]:
    if result.inputs is not None:
        return input_facts(result.inputs)
    return {name: result.environment.get(f"{KNOWN_INPUT}{name}") for name in MODEL_LINES}


def compare_inputs(a: ModelInputs | None, b: ModelInputs | None) -> tuple[InputLine, ...]:
    """Compare what went into both models, one line for each of `MODEL_LINES`."""
    return compare_facts(input_facts(a) if a else {}, input_facts(b) if b else {})


def compare_facts(a: Mapping[str, str | None], b: Mapping[str, str | None]) -> tuple[InputLine, ...]:
    """The same of facts by line, as far as they are known."""
    return tuple(
        _ids_line(a.get(name), b.get(name))
        if name == PROMPT_IDS
        else input_line(name, a.get(name), b.get(name), decides)
        for name, decides in MODEL_LINES.items()
    )


def _ids_line(a: str | None, b: str | None) -> InputLine:
    """The first ids where both are equal, else those around the first difference."""
    ids = ([] if a is None else a.split(), [] if b is None else b.split())
    both = a is not None and b is not None
    first = next((i for i, (x, y) in enumerate(zip_longest(*ids)) if x != y), 0) if both and a != b else 0
    start = max(0, first - 3)
    prefix = f"from {start}: " if start else ""
    shown = [f"{prefix}{' '.join(side[start : first + 8])} ..." for side in ids]
    state: InputState = "not known" if not both else "equal" if a == b else "differs"
    return InputLine(PROMPT_IDS, None if a is None else shown[0], None if b is None else shown[1], state)


def inputs_words(lines: Iterable[InputLine]) -> str:
    """Lines in words: "n-gram size (20 and 35), tiles SHA-256"."""

    def named(line: InputLine) -> str:
        short = all(value and len(value) <= _SHORT for value in (line.a, line.b))
        return f"{line.name} ({line.a} and {line.b})" if short else line.name

    return ", ".join(map(named, lines))
