"""The settings of a run: one set of dataclasses for the command line, YAML files and the app.

Every field is an option (`--infer.max_new_tokens 512`) and a YAML key of the same name. Nothing here
imports torch, so that usage errors come at once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from dsocr_core.errors import DsocrError
from dsocr_core.parity_records import Tolerance
from dsocr_core.records import (
    PROMPTS,
    SIDES,
    VENDOR,
    VENDOR_TOKEN_CEILING,
    BackendName,
    OcrRequest,
    Side,
    prompt_problem,
    published_ngram_size,
)
from dsocr_core.resolution import preset_named

PROJECT_ROOT = Path(__file__).resolve().parents[1]
RUNS_DIRECTORY = Path(os.environ.get("DSOCR_RUNS") or PROJECT_ROOT / "data" / "runs")
"""Where run directories, cached results, uploads and rendered pages lie."""

EMBEDDED_CHECKPOINT = PROJECT_ROOT / "data" / "mini"

Attention = Literal["auto", "sdpa", "eager", "flash_attention_2"]
Dtype = Literal["auto", "bfloat16", "float32"]
EngineName = Literal["eager", "fast"]
Rotary = Literal["published", "float32"]


class SettingsError(DsocrError):
    """A setting out of its range; names the setting and what it takes."""


@dataclass(frozen=True)
class InferSettings:
    """How a page is decoded.

    Args:
        max_new_tokens: a positive integer, or inf (any case): until the end token or the context limit
        no_repeat_ngram_size: no n-gram of this size may repeat; 0 switches the rule off. Left out it is the
            published code's own: 20, or 35 with eval_mode
        eval_mode: ask the published code for its text alone; it then writes no files
        test_compress: print image size, valid image tokens, text tokens and their ratio of every page
    """

    max_new_tokens: int | str = VENDOR_TOKEN_CEILING
    no_repeat_ngram_size: int | None = None
    eval_mode: bool = False
    test_compress: bool = False

    def __post_init__(self) -> None:
        value = self.max_new_tokens
        if isinstance(value, bool) or not (isinstance(value, int) or value.strip().lower() == "inf"):
            raise SettingsError(f"infer.max_new_tokens is '{value}': give a positive integer or inf")
        if isinstance(value, int) and value < 1:
            raise SettingsError(f"infer.max_new_tokens is {value}: give a positive integer or inf")
        if self.no_repeat_ngram_size is not None and self.no_repeat_ngram_size < 0:
            raise SettingsError(f"infer.no_repeat_ngram_size is {self.no_repeat_ngram_size}: give 0 or more")

    @property
    def token_limit(self) -> int | None:
        """None means until the end token or the context limit."""
        return self.max_new_tokens if isinstance(self.max_new_tokens, int) else None

    @property
    def ngram_size(self) -> int:
        """What no_repeat_ngram_size comes to."""
        if self.no_repeat_ngram_size is not None:
            return self.no_repeat_ngram_size
        return published_ngram_size(self.eval_mode)


@dataclass(frozen=True)
class VendorSettings:
    """The worker process that runs the checkpoint's own code.

    Args:
        interpreter: python of another environment for the worker; empty means this one
        timeout_s: seconds a page may take before the worker is stopped
        trust_remote_code: checkpoint directories whose own code may run; the embedded one always may
    """

    interpreter: str = ""
    timeout_s: float = 900.0
    trust_remote_code: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.timeout_s > 0:
            raise SettingsError(f"vendor.timeout_s is {self.timeout_s}: give a positive number of seconds")


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    Args:
        checkpoint: checkpoint directory, or random:PATH/config.json for seeded random weights
        preset: tiny, small, base, large or gundam; auto is small on the embedded checkpoint, else gundam
        prompt: markdown, free_ocr, figure, locate, or a prompt text with one <image>
        infer: how a page is decoded
        engine: eager has the published order of operations; fast replays CUDA graphs on a GPU
        attention: attention of the decoder; the published code has eager and flash_attention_2 only. auto is
            eager where the eager engine is compared with it, else sdpa
        dtype: auto is bfloat16 on a GPU and float32 on a CPU
        device: auto, cpu, cuda or cuda:N
        rotary: published rounds the rotary frequencies to the weights' dtype as the published loading does
        max_megapixels: largest image that is opened
        pdf_dpi: resolution at which PDF pages are rendered
        vendor: the worker process that runs the checkpoint's own code
        history: where runs are recorded: a path, relative to the project, or a URL; empty records none
        tolerance: by how much two results may differ and still pass
        clean_pages: whether a recorded run has a picture of each page without boxes, at most 3000 pixels long
    """

    checkpoint: str = str(EMBEDDED_CHECKPOINT)
    preset: str = "auto"
    prompt: str = "markdown"
    infer: InferSettings = field(default_factory=InferSettings)
    engine: EngineName = "eager"
    attention: Attention = "auto"
    dtype: Dtype = "auto"
    device: str = "auto"
    rotary: Rotary = "published"
    max_megapixels: float = 100.0
    pdf_dpi: int = 150
    vendor: VendorSettings = field(default_factory=VendorSettings)
    history: str = "data/runs/history"
    tolerance: Tolerance = field(default_factory=Tolerance)
    clean_pages: bool = True

    def __post_init__(self) -> None:
        if self.preset != "auto":
            preset_named(self.preset)
        if self.prompt not in PROMPTS and (problem := prompt_problem(self.prompt)) is not None:
            raise SettingsError(
                f"prompt '{self.prompt[:60]}' {problem}: give one of {', '.join(PROMPTS)}, or a text with one"
            )
        if not self.max_megapixels > 0:
            raise SettingsError(f"max_megapixels is {self.max_megapixels}: give a positive number")
        if not 30 <= self.pdf_dpi <= 600:
            raise SettingsError(f"pdf_dpi is {self.pdf_dpi}: give 30 to 600")

    @property
    def is_embedded(self) -> bool:
        """Whether the checkpoint is the one the project ships."""
        return Path(self.checkpoint).resolve() == EMBEDDED_CHECKPOINT

    @property
    def preset_name(self) -> str:
        if self.preset == "auto":
            return "small" if self.is_embedded else "gundam"
        return self.preset.lower()

    @property
    def prompt_text(self) -> str:
        return PROMPTS.get(self.prompt, self.prompt)

    @property
    def backends(self) -> tuple[BackendName, BackendName]:
        """What reads a page as A and as B of a comparison."""
        return self.engine, VENDOR

    def backend(self, side: Side) -> BackendName:
        """What reads a page as that side of a comparison."""
        return self.backends[SIDES.index(side)]

    @property
    def own_attention(self) -> str:
        """The attention of our engine's decoder."""
        return "sdpa" if self.attention == "auto" else self.attention

    @property
    def vendor_attention(self) -> str:
        """The published decoder has no SDPA variant; SDPA is compared with its eager one."""
        return self.attention if self.attention == "flash_attention_2" else "eager"

    def for_comparison(self) -> Settings:
        """These settings with an attention that both sides can have, unless one was chosen.

        The fast engine keeps its own: it sums in another order whatever the attention.
        """
        if self.attention != "auto" or self.engine != "eager":
            return self
        return replace(self, attention="eager")

    @property
    def attention_note(self) -> str:
        """Why both sides of a comparison have another attention; empty when they have the same."""
        if self.engine != "eager" or self.own_attention == self.vendor_attention:
            return ""
        return (
            f"attention {self.own_attention} against {self.vendor_attention}: the published decoder has "
            "eager and flash_attention_2 only, and another order of sums can change tokens; eager is on both"
        )

    @property
    def max_pixels(self) -> int:
        return int(self.max_megapixels * 1_000_000)

    def request(self, image: Path, source: str = "") -> OcrRequest:
        """The request for one page image under these settings."""
        return OcrRequest(
            image=image,
            preset=self.preset_name,
            prompt=self.prompt_text,
            max_new_tokens=self.infer.token_limit,
            no_repeat_ngram_size=self.infer.ngram_size,
            source=source,
            eval_mode=self.infer.eval_mode,
            test_compress=self.infer.test_compress,
        )


def history_location(settings: Settings) -> str:
    """Where the history of these settings is: a URL as it is, a relative path under the project."""
    return settings.history if "://" in settings.history else str(PROJECT_ROOT / settings.history)
