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
"""Notation of a box: `<|ref|>LABEL<|/ref|><|det|>[[..]]<|/det|>`, or `<|det|>LABEL [..]<|/det|>`."""
CELL_IDS = [128821, 128822]
"""`<td>` and `</td>`, which may be repeated under the n-gram rule of the vendor's vLLM recipes."""


@dataclass(frozen=True)
class Decoding:
    """Prompts by name and the n-gram rule, as published."""

    prompts: Mapping[str, str]
    ngram_size: int
    """Size of a reading that saves files."""
    ngram_size_eval: int
    """Size of a reading that returns text alone."""
    ngram_window: int = 0
    """Tokens on which the rule looks back; 0: all."""
    ngram_window_of_pages: int = 0
    """Window of a prompt with several images."""
    window_over_prompt: bool = False
    """True where the window reaches into the prompt."""
    new_tokens: int | None = 8192
    """Most new tokens; None: as many as the context holds."""
    images: int = 1
    """Most images of one prompt."""


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
    vision: Mapping[Stage, str]
    """Stages in the order they run, before the tokens are put into the prompt, and the attribute of the
    published code's inner model that computes each."""
    taps: tuple[StageTaps, ...]
    """Taps of vision's stages."""
    presets: Mapping[str, Preset]
    preset: str
    """Default preset."""
    newline: bool
    """True where a learned token ends each row of a view, and tiles are woven into rows of the page."""
    decoding: Decoding
    views: tuple[int, ...] = ()
    """Sides in pixels of the only views that it takes; empty: any."""
    exact_rotary: bool = False
    """True where the published loading leaves the rotary frequencies in float32."""
    markup: Markup = "ref"
    served_rule: Mapping[str, Any] | None = None
    """The n-gram rule of its vLLM recipe, where `infer` has a different one; None: the request's."""
    placeholder: tuple[str, ...] = ("sglang",)
    """Flavours of servers whose text has `<image>` in it; the others put it there themselves."""
    published_attentions: tuple[str, ...] = ("eager", "flash_attention_2")
    """Attention of the published decoder."""
    published_arguments: tuple[str, ...] = ()
    """Fields of a request that the published `infer` takes as arguments of these names. It then takes
    `max_length` too, which counts the prompt."""
    published_transformers: str = "4.46.3 or 4.47.1"
    """Versions with which the published code runs."""
    masks_encoder: bool = False
    """True where the published encoder has a mask, which some libraries pass over."""

    @property
    def computed(self) -> tuple[Stage, ...]:
        """Stages with work of the model in them, in the order they run."""
        return (*self.vision, Stage.VISION_FUSION, Stage.PREFILL, Stage.DECODE)

    def published_name(self, name: str) -> str:
        """The published code's name for a module or weight of ours, or the beginning of one."""
        ours, theirs = next(pair for pair in self.prefixes if name.startswith(pair[0]))
        return theirs + name.removeprefix(ours)
