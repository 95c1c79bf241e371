"""Records that travel between the layers: requests, results, timings. Unknown is None."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import name_text
from dsocr_core.models.family import FIRST, MODELS, ModelSpec, family_named, preset_named
from dsocr_core.models.resolution import MAX_TILES, TILE_SIZE, Preset, cut
from dsocr_core.models.stages import TOP_LEVEL, Stage
from dsocr_core.reading.jsonable import from_jsonable
from dsocr_core.reading.markup import Box, Form, Span, page_boxes, page_notes, parse

GROUNDING_PROMPT = FIRST.decoding.prompts["markdown"]
IMAGE_PLACEHOLDER = "<image>"
VENDOR_TOKEN_CEILING = 8192  # `max_new_tokens` of the published `infer`
MOST_EXEMPT = 8  # tokens that the n-gram rule may leave out

Unlimited = Literal["unlimited"]
UNLIMITED: Unlimited = "unlimited"  # a token limit: until EOS or the context limit
Template = Literal["plain", "no_newline", "roles", "newline", "grounding", "newline_grounding"]
BackendName = str
VENDOR: BackendName = "vendor"
Side = Literal["a", "b"]
SIDES: tuple[Side, Side] = ("a", "b")  # of a comparison; B is the reference
FinishReason = Literal["eos", "length"]
POSTPROCESS_ERROR = "postprocess_error"  # in an environment: what the published code raised after its text
CancelToken = threading.Event


def prompt_problem(prompt: str) -> str | None:
    """Why a page cannot be read with that prompt text; None when it can."""
    if (count := prompt.count(IMAGE_PLACEHOLDER)) == 1:
        return None
    return f"needs exactly one {IMAGE_PLACEHOLDER}, where the page goes, and has {count or 'none'}"


@dataclass(frozen=True)
class NgramPolicy:
    """Rule of the tokens that may not come next; the default is none, size alone the published kind.

    A token is forbidden where it would repeat an n-gram of `size` tokens, of the whole sequence, or within
    the last `window` new ones; `over_prompt` lets a window reach into the prompt. Tokens `exempt` never are.
    Raises ValueError.
    """

    size: int = 0
    window: int = 0
    exempt: tuple[int, ...] = ()
    over_prompt: bool = False

    def __post_init__(self) -> None:
        if min(self.size, self.window) < 0:
            raise ValueError(f"n-gram size {self.size} or window {self.window} is negative")
        if len(self.exempt) > MOST_EXEMPT:
            raise ValueError(f"{len(self.exempt)} exempt tokens are more than {MOST_EXEMPT}")

    @classmethod
    def of(cls, policy: NgramPolicy | int) -> NgramPolicy:
        """A policy from a size alone."""
        return policy if isinstance(policy, NgramPolicy) else cls(policy)


@dataclass(frozen=True)
class PageFile:
    """A page's file as it was read: its bytes and their SHA-256 in hex."""

    bytes: int
    sha256: str


class Asked(NamedTuple):
    """Fields of a request that are None where another program does not record them."""

    preset: str
    prompt: str
    max_new_tokens: int | Unlimited
    no_repeat_ngram_size: int


MAY_BE_UNKNOWN = Asked._fields


@dataclass(frozen=True)
class OcrRequest:
    """One page to read. None is what is not known of a page that another program read."""

    image: Path
    preset: str | None = "gundam"
    prompt: str | None = GROUNDING_PROMPT
    max_new_tokens: int | Unlimited | None = VENDOR_TOKEN_CEILING
    no_repeat_ngram_size: int | None = FIRST.decoding.ngram_size
    source: str = ""  # name of the page: a file name, or `paper.pdf#3`; empty is the image's name
    eval_mode: bool = False  # the published code is asked for its text alone: it streams and writes nothing
    test_compress: bool = False  # counts what `page.compression` sums up
    ngram_window: int = 0  # new tokens that the n-gram rule looks back on; 0: the whole sequence
    ngram_whitelist: tuple[str, ...] = ()  # texts of the tokens that the n-gram rule never forbids
    max_tiles: int = MAX_TILES
    tile_size: int = TILE_SIZE
    template: Template = "plain"
    exif: bool = True  # turns the page as its EXIF says
    file: PageFile | None = field(default=None, compare=False)  # None where nobody has looked
    model: str = FIRST.name  # row of `models.family` whose presets these are
    more: tuple[Path, ...] = ()  # images that follow the first one in the same prompt
    more_files: tuple[PageFile, ...] = field(default=(), compare=False)

    @classmethod
    def imported(cls, image: Path, source: str = "", **known: Any) -> OcrRequest:
        """A page that a different program read. Fields left out are not known."""
        unknown: dict[str, Any] = dict.fromkeys(MAY_BE_UNKNOWN)
        return cls(image, source=source, **unknown | known)

    @property
    def required(self) -> Asked:
        """The request with nothing unknown. Raises DsocrError otherwise."""
        values = [getattr(self, name) for name in MAY_BE_UNKNOWN]
        if None in values:
            raise DsocrError(f"{self.name}: with which preset, prompt and limits it was read is not known")
        return Asked(*values)

    @property
    def name(self) -> str:
        return self.source or name_text(self.image.name)

    @property
    def resolution(self) -> Preset:
        """The preset with this request's tiles. Raises DsocrError."""
        return cut(preset_named(self.required.preset, self.family), self.max_tiles, self.tile_size)

    @property
    def family(self) -> ModelSpec:
        """The row of its model. Raises DsocrError."""
        return family_named(self.model)

    @property
    def images(self) -> tuple[Path, ...]:
        return (self.image, *self.more)

    @property
    def together(self) -> bool:
        """Tell whether the model was asked for several pages at once, even if the prompt has one."""
        usual = MODELS.get(self.model, FIRST).decoding
        return usual.images > 1 and (bool(self.more) or self.prompt == usual.prompts.get("pages"))

    @property
    def form(self) -> Form:
        """Form in which its model marks the text up; the first model's for one that is not known."""
        return Form(MODELS.get(self.model, FIRST).markup, len(self.images) if self.together else None)

    @property
    def unpublished(self) -> dict[str, Any]:
        """List what this request asks for that the published `infer` cannot do, by field."""
        asked = {name: getattr(self, name) for name in POLICY_FIELDS}
        return {name: value for name, value in asked.items() if value != getattr(OcrRequest, name)}


POLICY_FIELDS = ("ngram_window", "ngram_whitelist", "max_tiles", "tile_size", "template", "exif")
"""Fields of a request in which other engines differ from the published code."""


@dataclass(frozen=True)
class StageTiming:
    """Time of one stage. `calls` counts how often it ran (decode: forward passes)."""

    stage: Stage
    milliseconds: float
    calls: int = 1


@dataclass(frozen=True)
class ModelInputs:
    """Input of the model. Hashes are SHA-256 of the bf16 bytes, little endian."""

    prompt_ids: tuple[int, ...]
    image_mask: tuple[tuple[int, int], ...]  # runs of image positions in the prompt as (start, length)
    grid: tuple[int, int]  # tiles as (columns, rows); (1, 1) means no tiles
    global_shape: tuple[int, ...]
    global_sha256: str
    tiles_shape: tuple[int, ...]  # of `images_crop`; [1, 3, base, base] of zeros when there are no tiles
    tiles_sha256: str
    no_repeat_ngram_size: int
    max_new_tokens: int
    attention: str
    dtype: str
    rotary_dtype: str  # to which the rotary inverse frequencies were rounded
    ngram_window: int = 0  # 0: the whole sequence
    ngram_whitelist: tuple[str, ...] = ()

    @property
    def ngram_words(self) -> str:
        """The n-gram rule in one line: "20", "30, window 90, except <td> </td>", "off"."""
        if self.no_repeat_ngram_size == 0:
            return "off"
        window = f", window {self.ngram_window}" if self.ngram_window else ""
        exempt = f", except {' '.join(self.ngram_whitelist)}" if self.ngram_whitelist else ""
        return f"{self.no_repeat_ngram_size}{window}{exempt}"

    @property
    def image_token_count(self) -> int:
        return sum(length for _, length in self.image_mask)


@dataclass(frozen=True)
class TopTwo:
    """The two likeliest tokens of one step that the n-gram rule leaves, the chosen one first."""

    ids: tuple[int, int]
    logits: tuple[float, float]

    @property
    def margin(self) -> float:
        """By how much the chosen token won, at least 0."""
        return self.logits[0] - self.logits[1]


@dataclass(frozen=True)
class OcrResult:
    """Reading of one page by one backend. None is what a backend cannot tell; it is never filled in."""

    backend: BackendName
    request: OcrRequest
    image_size: tuple[int, int]  # (width, height) in pixels after EXIF; (0, 0) where it is not known
    text_raw: str  # the decoded new tokens, specials and a trailing end marker included
    token_ids: tuple[int, ...] | None  # the new tokens, the end token included when it was reached
    token_texts: tuple[str, ...]  # each new token decoded on its own; empty when the backend cannot tell
    finish_reason: FinishReason | None
    inputs: ModelInputs | None
    timings: tuple[StageTiming, ...]  # empty when nothing was measured
    environment: dict[str, str] = field(default_factory=dict)  # what is needed to reproduce it
    top_two: tuple[TopTwo, ...] = ()  # one a new token; short where a logit was not finite
    text_tokens: int | None = None  # that `text_raw` encodes to, which may be others than were generated
    more_sizes: tuple[tuple[int, int], ...] = ()  # (width, height) of the pages after the first one
    boxes_known: bool = True  # False for a text that says nothing of boxes, which the page may have

    @functools.cached_property
    def blocks(self) -> tuple[Span, ...]:
        return parse(self.text_raw, self.request.form)

    def parsed(self, blocks: tuple[Span, ...]) -> OcrResult:
        """Set the blocks of the text, so that it is not parsed again. Returns this result."""
        self.__dict__["blocks"] = blocks
        return self

    @functools.cached_property
    def boxes(self) -> tuple[Box, ...]:
        """Every box that `text_raw` puts on its pages, in pixels of each."""
        return page_boxes(self.blocks, *self.sizes)

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """(width, height) of every page of the prompt; one that is not known is as large as the first."""
        known = (self.image_size, *self.more_sizes)
        return (*known, *[self.image_size] * (len(self.request.images) - len(known)))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on pages that are missing, or too many, and on text that stands on none."""
        return page_notes(self.text_raw, self.request.form)

    def milliseconds(self, stage: Stage) -> float | None:
        return next((timing.milliseconds for timing in self.timings if timing.stage == stage), None)

    @property
    def new_tokens(self) -> int | None:
        """Count the tokens that were written, None when the backend cannot tell."""
        return None if self.token_ids is None else len(self.token_ids)

    @property
    def required_tokens(self) -> tuple[int, ...]:
        """The new tokens. Raises DsocrError when the backend cannot tell them."""
        if self.token_ids is None:
            raise DsocrError(f"{self.request.name}: {self.backend} does not tell its tokens")
        return self.token_ids

    @property
    def required_inputs(self) -> ModelInputs:
        """The model's inputs. Raises DsocrError when the backend cannot tell them."""
        if self.inputs is None:
            raise DsocrError(f"{self.request.name}: {self.backend} does not tell its inputs")
        return self.inputs

    @property
    def total_ms(self) -> float:
        """Time of the whole recognition; vision lies inside prefill and is not added to it."""
        return sum(timing.milliseconds for timing in self.timings if timing.stage in TOP_LEVEL)


class Observer:
    """Observer of a reading, which ignores it. Called on the thread that runs the backend; must not block."""

    def stage_started(self, stage: Stage) -> None: ...

    def stage_ended(self, stage: Stage, milliseconds: float) -> None: ...

    def text(self, delta: str) -> None: ...


# --- from JSON ------------------------------------------------------------------------------------


def result_from_jsonable(data: dict[str, Any]) -> OcrResult:
    """The OcrResult that `to_jsonable` wrote. Raises KeyError, TypeError or ValueError on foreign data."""
    steps = data.get("top_two", ())
    ids, logits = ([each for step in steps for each in step[name]] for name in ("ids", "logits"))
    return replace(from_jsonable(OcrResult, data | {"top_two": []}), top_two=top_two_steps(ids, logits))


def top_two_steps(ids: Sequence[int], logits: Sequence[float]) -> tuple[TopTwo, ...]:
    """Steps of ids and logits in turns, up to the first without a finite margin. Raises ValueError."""
    found, largest = [], 3.5e38  # above the largest float32
    for chosen, second, most, less in zip(ids[::2], ids[1::2], logits[::2], logits[1::2], strict=True):
        if not largest > most >= less > -largest:  # nor for what is no number
            break
        found.append(TopTwo((int(chosen), int(second)), (float(most), float(less))))
    return tuple(found)
