"""Input parity: what went into both models, line by line, and the causes of differences that it shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from dsocr_core.base.formatting import shortened
from dsocr_core.reading.parity_records import (
    NOT_KNOWN,
    SETTINGS,
    Cause,
    CauseName,
    Difference,
    Divergence,
    InputLine,
)
from dsocr_core.reading.records import ModelInputs, OcrResult

PROMPT, PRESET, PAGE_SIZE, IMAGE = "prompt", "preset", "page size, EXIF applied", "image SHA-256"
MODEL_LINES = (
    PROMPT_TOKENS, PROMPT_IDS, IMAGE_TOKENS, IMAGE_MASK, GRID, GLOBAL, GLOBAL_HASH, TILES, TILES_HASH, NGRAM,
    DTYPE, ROTARY, ATTENTION, LIMIT,
) = (
    "prompt tokens", "prompt ids", "image tokens", "image mask", "grid", "global view", "global view SHA-256",
    "tiles", "tiles SHA-256", "n-gram size", "dtype", "rotary frequencies", "attention", "token limit",
)  # fmt: skip
"""The lines about the model's inputs."""
_SHOWN_ONLY = (ATTENTION, LIMIT)
"""Lines that do not decide: SDPA, our default attention, has no counterpart in the published decoder, and a
limit that is never reached changes nothing.
"""
KNOWN_INPUT = "input: "
"""Begins the name of a fact of a result's environment that is a line of these, known without its inputs."""
_SHORT = 24
"""Characters of a value that is named in a sentence; a longer one is in the table."""
Facts = Mapping[str, str | None]


def input_facts(inputs: ModelInputs | None) -> Facts:
    """The model's inputs as texts, by line; the prompt's ids are all of them."""
    if inputs is None:
        return dict.fromkeys(MODEL_LINES)
    runs = (f"{start}..{start + length - 1}" for start, length in inputs.image_mask)
    grid, view, tiles = (
        " x ".join(map(str, shape)) for shape in (inputs.grid, inputs.global_shape, inputs.tiles_shape)
    )
    values = (
        str(len(inputs.prompt_ids)), " ".join(map(str, inputs.prompt_ids)), str(inputs.image_token_count),
        ", ".join(runs) or "none", grid, view, inputs.global_sha256, tiles, inputs.tiles_sha256,
        inputs.ngram_words if inputs.no_repeat_ngram_size else "0", inputs.dtype, inputs.rotary_dtype,
        inputs.attention, str(inputs.max_new_tokens),
    )  # fmt: skip
    return dict(zip(MODEL_LINES, values, strict=True))


def input_lines(a: OcrResult, b: OcrResult) -> tuple[InputLine, ...]:
    """Compare what went into both results, one line a fact, as far as both know it.

    Another image file decides nothing where the pixels that went into the model are known to be equal.
    """
    model = _compared(*(_known_facts(result) for result in (a, b)))
    pixels = {line.state for line in model if line.name in (GLOBAL_HASH, TILES_HASH)}
    of_a, of_b = _around(a), _around(b)
    around = (InputLine(name, of_a[name], of_b[name], name != IMAGE or pixels != {"equal"}) for name in of_a)
    return (*around, *model)


def compare_inputs(a: ModelInputs | None, b: ModelInputs | None) -> tuple[InputLine, ...]:
    """Compare what went into both models, one line for each of `MODEL_LINES`."""
    return _compared(input_facts(a), input_facts(b))


def _compared(a: Facts, b: Facts) -> tuple[InputLine, ...]:
    lines = (InputLine(name, a[name], b[name], name not in _SHOWN_ONLY) for name in MODEL_LINES)
    return tuple(_short_ids(line) if line.name == PROMPT_IDS else line for line in lines)


def _around(result: OcrResult) -> Facts:
    """Facts besides the model's own inputs."""
    request, files = result.request, (result.request.file, *result.request.more_files)
    sizes = ", ".join(f"{width} x {height}" for width, height in result.sizes)
    hashes = ", ".join(file.sha256 for file in files if file)
    return {
        PROMPT: request.prompt, PRESET: request.preset, PAGE_SIZE: sizes if all(result.image_size) else None,
        IMAGE: hashes if request.file else None,
    }  # fmt: skip


def _known_facts(result: OcrResult) -> Facts:
    if result.inputs is not None:
        return input_facts(result.inputs)
    return {name: result.environment.get(f"{KNOWN_INPUT}{name}") for name in MODEL_LINES}


def _short_ids(line: InputLine) -> InputLine:
    """The first ids where both are equal, else those around the first difference."""
    ids = [(text or "").split() for text in (line.a, line.b)]
    first = next(i for i, (x, y) in enumerate(zip_longest(*ids)) if x != y) if line.differs else 0
    start = max(0, first - 3)
    prefix = f"from {start}: " if start else ""
    a, b = (f"{prefix}{' '.join(side[start : first + 8])} ..." for side in ids)
    return InputLine(line.name, line.a and a, line.b and b)


def inputs_words(lines: Iterable[InputLine]) -> str:
    """Lines in words: "n-gram size (20 and 35), tiles SHA-256"."""

    def named(line: InputLine) -> str:
        short = all(value and len(value) <= _SHORT for value in (line.a, line.b))
        return f"{line.name} ({line.a} and {line.b})" if short else line.name

    return ", ".join(map(named, lines))


# --- causes ---------------------------------------------------------------------------------------

_CAUSES: Mapping[str, tuple[CauseName, str, tuple[str, ...]]] = {
    PROMPT: ("prompt", "the prompts differ: {a} and {b}", ()),
    IMAGE: ("image", "the image files differ, so nothing after them can agree", ()),
    PRESET: ("preset", "the presets differ: {a} and {b}", ()),
    GRID: ("grid", "the page was cut into other tiles: {a} and {b}", (PRESET, IMAGE)),
    PROMPT_IDS: ("prompt", "the prompts became other tokens", (PROMPT, PRESET, IMAGE, GRID)),
    NGRAM: (
        "ngram", "the n-gram rule differs: size {a} and {b}; repeated phrases are cut differently", (),
    ),
    LIMIT: ("length", "the token limits differ: {a} and {b}", ()),
    DTYPE: ("dtype", "the number types differ: {a} and {b}; near ties of logits fall differently", ()),
    ROTARY: ("rotary", "the rotary frequencies were rounded differently: {a} and {b}", (DTYPE,)),
    ATTENTION: (
        "attention", "the attention implementations differ: {a} and {b}; near ties may fall differently", (),
    ),
}  # fmt: skip
"""Lines that explain differences, a cause before what follows from it: its name and words, and the lines
beside which it says nothing more.
"""


def causes(
    a: OcrResult,
    b: OcrResult,
    differences: Sequence[Difference],
    lines: Sequence[InputLine],
    divergence: Divergence | None,
) -> tuple[Cause, ...]:
    """Settings that differ in what decides, then the token limit, ties and rounding.

    None where the outputs are equal.

    Rounding of another number type is no tie and needs none: no margin speaks against it. Where rounding
    does not explain a divergence, another order of sums does not either.
    """
    kinds = {item.kind for item in differences}
    if kinds <= SETTINGS and divergence is None:
        return ()
    differing = {line.name: line for line in lines if line.differs}
    if "truncated" not in kinds:
        differing.pop(LIMIT, None)
    margins = divergence.margins if divergence else None
    if margins is not None and not margins.tie:
        differing.pop(ATTENTION, None)
    found: dict[CauseName, str] = {}
    (width, height), other = a.image_size, b.image_size
    if (height, width) == other and width != height:
        found["exif"] = (
            f"the page is {width} x {height} in A and {height} x {width} in B: "
            "one side did not apply the EXIF orientation"
        )
    for name, (cause, words, follows) in _CAUSES.items():
        if name in differing and differing.keys().isdisjoint(follows):
            line = differing[name]
            of_a, of_b = (shortened(" ".join((text or NOT_KNOWN).split()), 80) for text in (line.a, line.b))
            found.setdefault(cause, words.format(a=of_a, b=of_b))
    for item in differences:
        if item.kind == "truncated":
            found.setdefault("length", item.words)
    if divergence is not None and margins is not None:
        what = f"the tokens diverge at step {divergence.index:,}, {margins.words}"
        if margins.tie:
            found["tie"] = f"{what}: rounding can explain it"
        elif differing.keys().isdisjoint((DTYPE, ROTARY)):
            found["not a tie"] = f"{what}: rounding does not explain it"
    return tuple(Cause(cause, words) for cause, words in found.items())
