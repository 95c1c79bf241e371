"""Differences between the models, as one record of data a model. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dsocr_core.models.config import ModelConfig, Section
from dsocr_core.models.resolution import Preset
from dsocr_core.models.stages import Stage
from dsocr_core.models.taps.table import StageTaps

Markup = Literal["ref", "det"]
"""Notation of boxes: `<|ref|>LABEL<|/ref|><|det|>[[..]]<|/det|>`, or `<|det|>LABEL [..]<|/det|>`."""
CELL_IDS = [128821, 128822]
"""Ids of `<td>` and `</td>`, which the vendor's vLLM recipes exempt from the n-gram rule."""


@dataclass(frozen=True)
class Decoding:
    """Prompts by name and the n-gram rule, as published."""

    prompts: Mapping[str, str]
    ngram_size: int
    """N-gram size of the published `infer` that saves files."""
    ngram_size_eval: int
    """N-gram size of its `eval_mode`, which returns the text."""
    ngram_window: int = 0
    """Last tokens in which the rule looks for n-grams; 0 for all."""
    ngram_window_of_pages: int = 0
    """Window for a prompt with several images."""
    window_over_prompt: bool = False
    """True where the window may reach into the prompt."""
    new_tokens: int | None = 8192
    """Most new tokens; None for as many as the context holds."""
    images: int = 1
    """Most images of one prompt."""


@dataclass(frozen=True)
class ModelSpec:
    """One model: sizes, parts in the order they run, names. `config` is always the model's own."""

    name: str
    title: str
    architecture: str
    """Name in `architectures` of config.json."""
    parse: Callable[[Section], ModelConfig]
    prefixes: tuple[tuple[str, str], ...]
    """(ours, published) prefixes of weight names; the first that fits counts."""
    vision: Mapping[Stage, str]
    """Stages in the order they run, before the tokens are put into the prompt, and the attribute of the
    published code's inner model that computes each."""
    taps: tuple[StageTaps, ...]
    """Taps of vision's stages."""
    presets: Mapping[str, Preset]
    preset: str
    """Default preset."""
    newline: bool
    """True where a learned token ends each row, and tiles are joined to rows of the page."""
    decoding: Decoding
    views: tuple[int, ...] = ()
    """Sides in pixels of the only views that the model takes; empty for any."""
    exact_rotary: bool = False
    """True where the published code keeps rotary frequencies in float32."""
    markup: Markup = "ref"
    served_rule: Mapping[str, Any] | None = None
    """N-gram rule of its vLLM recipe where `infer` has another; None for the request's."""
    placeholder: tuple[str, ...] = ("sglang",)
    """Flavours of servers that need `<image>` in the text; others add it."""
    published_attentions: tuple[str, ...] = ("eager", "flash_attention_2")
    """Attentions of the published decoder."""
    published_arguments: tuple[str, ...] = ()
    """Fields of a request that the published `infer` takes as arguments of these names. It then takes
    `max_length` too, which counts the prompt."""
    published_transformers: str = "4.46.3 or 4.47.1"
    """Versions of transformers with which the published code runs."""
    masks_encoder: bool = False
    """True where the published encoder needs a mask, which some libraries ignore."""

    @property
    def computed(self) -> tuple[Stage, ...]:
        """Stages with work of the model in them, in the order they run."""
        return (*self.vision, Stage.VISION_FUSION, Stage.PREFILL, Stage.DECODE)

    def published_name(self, name: str) -> str:
        """Published name of a module or weight of ours, or its beginning."""
        ours, theirs = next(pair for pair in self.prefixes if name.startswith(pair[0]))
        return theirs + name.removeprefix(ours)
