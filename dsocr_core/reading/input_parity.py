"""Input parity: what went into both models, line by line, and the causes of differences that it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256

from dsocr_core.base.formatting import shortened
from dsocr_core.reading.parity_records import SETTINGS, Cause, Difference, Divergence, InputLine
from dsocr_core.reading.records import ModelInputs, OcrResult

PROMPT, PRESET, PAGE_SIZE, IMAGE = "prompt", "preset", "page size, EXIF applied", "image SHA-256"
PROMPT_IDS, GRID, NGRAM, DTYPE, ROTARY = "prompt ids", "grid", "n-gram size", "dtype", "rotary frequencies"
ATTENTION, LIMIT = "attention", "token limit"
_PIXELS = ("global view SHA-256", "tiles SHA-256")
KNOWN_INPUT = "input: "  # begins the name of a fact of a result's environment that is a line of these
_SHORT = 48  # characters of values that are named in a sentence; longer ones are in the table
Facts = Mapping[str, str | None]


def _by(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape))


def _ids(ids: Sequence[int]) -> str:
    return f"{' '.join(map(str, ids[:8]))} ... (SHA-256 {sha256(str(ids).encode()).hexdigest()[:12]})"


_FACTS: Mapping[str, Callable[[ModelInputs], object]] = {
    "prompt tokens": lambda of: len(of.prompt_ids),
    PROMPT_IDS: lambda of: _ids(of.prompt_ids),
    "image tokens": lambda of: of.image_token_count,
    "image mask": lambda of: (
        ", ".join(f"{start}..{start + count - 1}" for start, count in of.image_mask) or "none"
    ),
    GRID: lambda of: _by(of.grid),
    "global view": lambda of: _by(of.global_shape),
    _PIXELS[0]: lambda of: of.global_sha256,
    "tiles": lambda of: _by(of.tiles_shape),
    _PIXELS[1]: lambda of: of.tiles_sha256,
    NGRAM: lambda of: of.ngram_words,
    DTYPE: lambda of: of.dtype,
    ROTARY: lambda of: of.rotary_dtype,
    ATTENTION: lambda of: of.attention,
    LIMIT: lambda of: of.max_new_tokens,
}
"""The lines about the model's inputs. Attention and limit do not decide: SDPA, our default attention, has no
counterpart in the published decoder, and a limit that is never reached changes nothing.
"""


def input_lines(a: OcrResult, b: OcrResult) -> tuple[InputLine, ...]:
    """Compare what went into both results, one line a fact.

    Another image file decides nothing where the pixels that went into the model are known to be equal.
    """
    model = compare_inputs(a.inputs, b.inputs, a.environment, b.environment)
    same_pixels = all(line.state == "equal" for line in model if line.name in _PIXELS)
    of_a, of_b = _around(a), _around(b)
    around = (InputLine(name, of_a[name], of_b[name], name != IMAGE or not same_pixels) for name in of_a)
    return (*around, *model)


def compare_inputs(
    a: ModelInputs | None,
    b: ModelInputs | None,
    known_a: Mapping[str, str] = {},
    known_b: Mapping[str, str] = {},
) -> tuple[InputLine, ...]:
    """Compare what went into both models; of unknown inputs some lines may be in the environment."""
    return tuple(
        InputLine(
            name,
            str(fact(a)) if a else known_a.get(KNOWN_INPUT + name),
            str(fact(b)) if b else known_b.get(KNOWN_INPUT + name),
            name not in (ATTENTION, LIMIT),
        )
        for name, fact in _FACTS.items()
    )


def _around(result: OcrResult) -> Facts:
    """Facts besides the model's own inputs."""
    request, files = result.request, (result.request.file, *result.request.more_files)
    sizes = ", ".join(f"{width} x {height}" for width, height in result.sizes)
    return {
        PROMPT: request.prompt,
        PRESET: request.preset,
        PAGE_SIZE: sizes if all(result.image_size) else None,
        IMAGE: ", ".join(file.sha256 for file in files if file) if request.file else None,
    }


def inputs_words(lines: Iterable[InputLine]) -> str:
    """Lines in words: "n-gram size (20 and 35), tiles SHA-256"."""
    named = ((line.name, f"{line.a} and {line.b}") for line in lines)
    return ", ".join(f"{name} ({values})" if len(values) <= _SHORT else name for name, values in named)


# --- causes ---------------------------------------------------------------------------------------

_CAUSES: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    PROMPT: ("prompt", "the prompts differ", ()),
    IMAGE: ("image", "the image files differ", ()),
    PRESET: ("preset", "the presets differ", ()),
    GRID: ("grid", "the page was cut into other tiles", (PRESET, IMAGE)),
    PROMPT_IDS: ("prompt", "the prompts became other tokens", (PROMPT, PRESET, IMAGE, GRID)),
    NGRAM: ("ngram", "the n-gram rule differs", ()),
    LIMIT: ("length", "the token limits differ", ()),
    DTYPE: ("dtype", "the number types differ", ()),
    ROTARY: ("rotary", "the rotary frequencies were rounded differently", (DTYPE,)),
    ATTENTION: ("attention", "the attention implementations differ", ()),
}
"""Lines that explain differences, a cause first: its name and words, and lines with which it adds nothing."""


def causes(
    a: OcrResult,
    b: OcrResult,
    differences: Sequence[Difference],
    lines: Sequence[InputLine],
    divergence: Divergence | None,
) -> tuple[Cause, ...]:
    """Settings that differ in what decides, then the token limit, ties and rounding; none of equal outputs.

    Rounding of another number type needs no tie: no margin speaks against it. Where rounding does not explain
    a divergence, another order of sums does not either.
    """
    kinds = {item.kind for item in differences}
    if kinds <= SETTINGS and divergence is None:
        return ()
    differing = {line.name: line for line in lines if line.differs}
    margins = divergence.margins if divergence else None
    if "truncated" not in kinds:
        differing.pop(LIMIT, None)
    if margins is not None and not margins.tie:
        differing.pop(ATTENTION, None)
    found: dict[str, str] = {}
    if a.image_size == b.image_size[::-1] != b.image_size:
        found["exif"] = "the page is turned in one of both: one side did not apply the EXIF orientation"
    for name, (cause, words, follows) in _CAUSES.items():
        if name in differing and differing.keys().isdisjoint(follows):
            sides = (str(side) for side in (differing[name].a, differing[name].b))
            values = " and ".join(shortened(" ".join(side.split()), 80) for side in sides)
            found.setdefault(cause, f"{words}: {values}")
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
