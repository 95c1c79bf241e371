"""Differences between the models, as one record of data a model. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dsocr_core.models.config import ModelConfig, Section
from dsocr_core.models.resolution import Preset
from dsocr_core.models.stages import Stage
from dsocr_core.models.taps.table import StageTaps

Markup = Literal["ref", "det"]
"""Notation of a box: `<|ref|>LABEL<|/ref|><|det|>[[..]]<|/det|>`, or `<|det|>LABEL [..]<|/det|>`."""

# --- how other engines read a page otherwise than published ---------------------------------------

Group = Literal["ngram", "prompt", "views", "exif", "dtype", "window", "rotary", "encoder", "pages"]
"""Subject that a hypothesis changes; two of a group exclude each other."""

CELLS = ("<td>", "</td>")
"""Whitelist of the vendor's vLLM scripts."""


@dataclass(frozen=True)
class Hypothesis:
    """One cause. `change` are fields of the request, of the altered model, or `dtype`."""

    name: str
    words: str
    """Words that follow "B is reproduced with"."""
    group: Group
    change: Mapping[str, Any] = field(hash=False)


def ngram_hypothesis(size: int, window: int = 0, whitelist: tuple[str, ...] = ()) -> Hypothesis:
    """B forbids other repetitions."""
    words = f"n-gram {size}" + (f", window {window}" if window else "") if size else "no n-gram rule"
    name = "ngram-off" if size == 0 else f"ngram-{size}" + (f"-{window}" if window else "")
    change = {"no_repeat_ngram_size": size, "ngram_window": window, "ngram_whitelist": whitelist}
    return Hypothesis(name, words, "ngram", change)


ROLES = Hypothesis("roles", "role markers around the prompt", "prompt", {"template": "roles"})
NO_NEWLINE = Hypothesis("no-newline", "no newline after <image>", "prompt", {"template": "no_newline"})

OF_ALL = (
    Hypothesis("no-exif", "no rotation by EXIF", "exif", {"exif": False}),
    Hypothesis("fp16", "float16", "dtype", {"dtype": "float16"}),
    Hypothesis("bf16", "bfloat16", "dtype", {"dtype": "bfloat16"}),
)
"""Those that have nothing to do with a model, the last to be tried."""


# --- a model --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VisionStage:
    """A part of vision, timed by itself. `module` is an attribute of the published code's inner model."""

    name: Stage
    module: str


@dataclass(frozen=True)
class Decoding:
    """Prompts by name and the n-gram rule, as published."""

    prompts: Mapping[str, str]
    ngram_size: int
    """Size of a reading that saves files."""
    ngram_size_eval: int
    """Size of one that asks for the text alone."""
    ngram_window: int = 0
    """Tokens on which the rule looks back; 0: all."""
    ngram_window_of_pages: int = 0
    """The same of a prompt with several images."""
    window_over_prompt: bool = False
    """True where the window reaches into the prompt."""
    new_tokens: int | None = 8192
    """Most new tokens; None: as many as the context holds."""
    images: int = 1
    """Most images of one prompt."""


@dataclass(frozen=True)
class Served:
    """Requests to other engines' servers."""

    rule: Mapping[str, Any] | None = field(
        default_factory=lambda: {"ngram_size": 30, "window_size": 90, "whitelist_token_ids": [128821, 128822]}
    )
    """The n-gram rule of its vLLM recipe, which is not that of `infer`; None: the request's, which is."""
    placeholder: tuple[str, ...] = ("sglang",)
    """Flavours whose text has `<image>` in it; the others put it there themselves."""


@dataclass(frozen=True)
class Published:
    """Peculiarities of the published code, for the worker that runs it."""

    attentions: tuple[str, ...] = ("eager", "flash_attention_2")
    """Attention of its decoder."""
    arguments: tuple[str, ...] = ()
    """Fields of a request that its `infer` takes as arguments of these names; it then takes `max_length`
    too, which counts the prompt."""
    transformers: str = "4.46.3 or 4.47.1"
    """Versions with which it runs."""
    masks_encoder: bool = False
    """True where its encoder has a mask, which some libraries pass over."""


@dataclass(frozen=True)
class ModelSpec:
    """One model: its sizes, its parts in the order they run, its names. `config` is always its own."""

    name: str
    title: str
    architecture: str
    """Name in config.json."""
    parse: Callable[[Section], ModelConfig]
    prefixes: tuple[tuple[str, str], ...]
    """(ours, published) beginnings of the weights' names; the first that fits counts."""
    vision: tuple[VisionStage, ...]
    """In the order they run, before the tokens are put into the prompt."""
    taps: tuple[StageTaps, ...]
    """Those of vision's stages."""
    presets: Mapping[str, Preset]
    preset: str
    """The usual one."""
    newline: bool
    """True where a learned token ends each row of a view, and tiles are woven into rows of the page."""
    decoding: Decoding
    buffers: Callable[[Any], Mapping[str, tuple[int, ...]]] = field(default=lambda config: {})
    """Shapes of what a checkpoint may hold beside its weights, which is not read."""
    views: tuple[int, ...] = ()
    """Sides in pixels of the only views that it takes; empty: any."""
    hypotheses: tuple[Hypothesis, ...] = ()
    """Ways in which other engines read it otherwise, cheap and likely ones first (docs/why.md)."""
    others: Mapping[str, Preset] = field(default_factory=dict)
    """Presets of other engines, which are offered nowhere."""
    served: Served = Served()
    published: Published = Published()
    exact_rotary: bool = False
    """True where the published loading leaves the rotary frequencies in float32."""
    markup: Markup = "ref"

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages of a page, in the order they run."""
        return (Stage.PREPROCESS, Stage.TOKENIZER, *self.computed, Stage.POSTPROCESS)

    @property
    def computed(self) -> tuple[Stage, ...]:
        """Its stages with work of the model in them, in the order they run."""
        return (*(stage.name for stage in self.vision), Stage.VISION_FUSION, Stage.PREFILL, Stage.DECODE)

    def published_name(self, name: str) -> str:
        """The published code's name for a module or weight of ours, or the beginning of one."""
        ours, theirs = next(pair for pair in self.prefixes if name.startswith(pair[0]))
        return theirs + name.removeprefix(ours)
