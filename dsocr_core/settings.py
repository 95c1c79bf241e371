"""The settings of a run: one set of dataclasses for the command line, YAML files and the app.

Every field is an option (`--infer.max-new-tokens 512`) and a YAML key of the same name. Nothing here
imports torch, so that usage errors come at once.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT, HISTORY, PROJECT_ROOT
from dsocr_core.base.sanitise import encodable, name_text
from dsocr_core.base.specs.conversion import SettingRefused, converted
from dsocr_core.base.specs.kinds import BackendSpec, EagerSpec, FastSpec, Precision, VendorSpec
from dsocr_core.base.specs.parsing import BackendChoice, parse_backend, parse_backends
from dsocr_core.models.config import ConfigError
from dsocr_core.models.family import FAMILIES, FIRST, Family, family_of, preset_named, read_config
from dsocr_core.models.resolution import MAX_TILES, MIN_TILES, TILE_SIZE, Preset, UnknownPresetError, cut
from dsocr_core.reading.parity_records import Tolerance
from dsocr_core.reading.records import (
    MOST_EXEMPT,
    SIDES,
    UNLIMITED,
    VENDOR,
    VENDOR_TOKEN_CEILING,
    BackendName,
    OcrRequest,
    Side,
    Template,
    Unlimited,
    prompt_problem,
    published_ngram_size,
)

DRAFT_OF_A = "a"
DRAFTS = ("text-layer", "lookup", DRAFT_OF_A)
DRAFTS_OF = ("run", "folder")
"""Sources of drafts: by themselves, and with what they are of after a colon."""
DRAFT_WORDS = "text-layer, run:ID, folder:PATH, lookup or, in a comparison, a"

_MOST_MEGAPIXELS = 10_000
_MOST_TILES = 64
_TILE_STEP, _LARGEST_TILE = 64, 1280
"""Pixels: a vision token covers 64 x 64."""
Attention = Literal["auto", "sdpa", "eager", "flash_attention_2"]
Dtype = Literal["auto", "bfloat16", "float16", "float32"]
EngineName = Literal["eager", "fast"]
Rotary = Literal["published", "float32"]


class SettingsError(DsocrError):
    """A setting out of its range; names the setting and what it takes."""


def _require_values(settings: Any, without: tuple[str, ...] = ()) -> None:
    """Raises SettingsError for a field without a value: a settings file may have `null` for any."""
    for name, value in vars(settings).items():
        if value is None and name not in without:
            raise SettingsError(f"{name} has no value: give one, or leave the setting out")


@dataclass(frozen=True)
class InferSettings:
    """Settings of decoding.

    Args:
        max_new_tokens: a positive integer, or inf (any case): until the end token or the context limit; 8192
            is each model's own limit, which for Unlimited-OCR is inf
        no_repeat_ngram_size: no n-gram of this size may repeat; 0 switches the rule off. Left out it is the
            published code's own: 20, or 35 with eval_mode and for Unlimited-OCR
        eval_mode: ask the published code for its text alone; it then writes no files
        test_compress: print image size, valid image tokens, text tokens and their ratio of every page
        ngram_window: the n-gram rule looks back on so many new tokens, as the vendor's vLLM scripts do; 0 is
            the whole sequence, prompt included, as published. For Unlimited-OCR 0 without an n-gram size is
            128, and 1024 for several pages
        ngram_whitelist: texts of tokens that the n-gram rule never forbids, like <td> and </td>
        max_tiles: most tiles of a page that is cut: 9 as published, 6 in the vendor's vLLM code, 32
            elsewhere; 9 is each model's own: 6 for DeepSeek-OCR-2, 32 for Unlimited-OCR (gundam-9 cuts to 9)
        tile_size: side of a tile in pixels, a multiple of 64; 640 is each model's own: 768 for DeepSeek-OCR-2
        template: plain is as published; no_newline drops the newline after <image>; roles writes a chat;
            newline, grounding and newline_grounding put that behind <image>
        exif: turn the page as its EXIF says
    """

    max_new_tokens: int | str = VENDOR_TOKEN_CEILING
    no_repeat_ngram_size: int | None = None
    eval_mode: bool = False
    test_compress: bool = False
    ngram_window: int = 0
    ngram_whitelist: list[str] = field(default_factory=list)
    max_tiles: int = MAX_TILES
    tile_size: int = TILE_SIZE
    template: Template = "plain"
    exif: bool = True

    def __post_init__(self) -> None:
        _require_values(self, without=("no_repeat_ngram_size",))
        value = self.max_new_tokens
        if isinstance(value, bool) or not (isinstance(value, int) or value.strip().lower() == "inf"):
            raise SettingsError(f"infer.max_new_tokens is '{value}': give a positive integer or inf")
        if isinstance(value, int) and value < 1:
            raise SettingsError(f"infer.max_new_tokens is {value}: give a positive integer or inf")
        if self.no_repeat_ngram_size is not None and self.no_repeat_ngram_size < 0:
            raise SettingsError(f"infer.no_repeat_ngram_size is {self.no_repeat_ngram_size}: give 0 or more")
        self._check_policies()

    def _check_policies(self) -> None:
        if self.ngram_window < 0:
            raise SettingsError(f"infer.ngram_window is {self.ngram_window}: give 0 or more")
        if len(self.ngram_whitelist) > MOST_EXEMPT:
            raise SettingsError(
                f"infer.ngram_whitelist has {len(self.ngram_whitelist)} tokens: give at most {MOST_EXEMPT}"
            )
        if not MIN_TILES <= self.max_tiles <= _MOST_TILES:
            raise SettingsError(f"infer.max_tiles is {self.max_tiles}: give {MIN_TILES} to {_MOST_TILES}")
        if self.tile_size % _TILE_STEP or not _TILE_STEP * 4 <= self.tile_size <= _LARGEST_TILE:
            raise SettingsError(
                f"infer.tile_size is {self.tile_size}: give a multiple of {_TILE_STEP} from {_TILE_STEP * 4} "
                f"to {_LARGEST_TILE}"
            )

    @property
    def token_limit(self) -> int | Unlimited:
        """A number, or unlimited: until the end token or the context limit."""
        return self.max_new_tokens if isinstance(self.max_new_tokens, int) else UNLIMITED

    @property
    def ngram_size(self) -> int:
        """Give what no_repeat_ngram_size comes to."""
        if self.no_repeat_ngram_size is not None:
            return self.no_repeat_ngram_size
        return published_ngram_size(self.eval_mode)


@dataclass(frozen=True)
class VendorSettings:
    """The worker process that runs the checkpoint's own code.

    Args:
        interpreter: python of another environment for the worker; empty means this one
        timeout_s: seconds that loading, and then each page, may take before the worker is stopped
        trust_remote_code: checkpoint directories whose own code may run, as DIR, or as
            DIR@DIGEST after its code has changed; the embedded one always may
    """

    interpreter: str = ""
    timeout_s: float = 900.0
    trust_remote_code: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        _require_values(self)
        if not self.timeout_s > 0:
            raise SettingsError(f"vendor.timeout_s is {self.timeout_s}: give a positive number of seconds")


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    Args:
        checkpoint: checkpoint directory, or random:PATH/config.json for seeded random weights
        preset: tiny, small, base, large or gundam, or another model's; auto is small on the embedded
            checkpoint, and on a CPU where a page of the usual one takes over a minute; else the usual one
        prompt: markdown, free_ocr, figure, locate, or a prompt text with one <image>
        infer: how a page is decoded
        engine: eager has the published order of operations; fast replays CUDA graphs on a GPU
        attention: attention of the decoder; the published code has eager and flash_attention_2 only. auto is
            eager where the eager engine is compared with it, else sdpa
        dtype: auto is bfloat16 on a GPU and float32 on a CPU; float16 is what some other engines use
        device: auto, cpu, cuda or cuda:N
        rotary: published rounds the rotary frequencies to the weights' dtype as the published loading does
        precision: fp8-kv stores the KV caches of the fast engine in 8 bits; off is none
        max_megapixels: largest image that is opened
        pdf_dpi: resolution at which PDF pages are rendered
        vendor: the worker process that runs the checkpoint's own code
        history: where runs are recorded: a path, relative to the project; empty records none
        tolerance: by how much two results may differ and still pass
        draft: what the fast engine verifies instead of reading token by token, for the same tokens sooner:
            text-layer (of a PDF), run:ID of the history, folder:PATH with texts, lookup (the page's own
            text), a (for B, what A read); empty is no draft
        clean_pages: whether a recorded run has a picture of each page without boxes, at most 3000 pixels long
        a: what reads a page as A, a backend or one of `backends`; left out it is the engine
        b: what reads it as B; left out it is the vendor
        backends: backends by a name of their own, each with its `spec` and settings
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
    precision: Precision = "off"
    max_megapixels: float = 100.0
    pdf_dpi: int = 150
    vendor: VendorSettings = field(default_factory=VendorSettings)
    history: str = HISTORY
    tolerance: Tolerance = field(default_factory=Tolerance)
    clean_pages: bool = True
    draft: str = ""
    a: BackendChoice | None = None
    b: BackendChoice | None = None
    backends: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_values(self, without=("a", "b"))
        # A model's own names are held against its row when a page is asked for: here no file is opened.
        if self.preset != "auto" and not any(
            self.preset.lower() in (*row.presets, *row.others) for row in FAMILIES.values()
        ):
            rows = (f"{', '.join(row.presets)} ({row.title})" for row in FAMILIES.values())
            raise UnknownPresetError(f"unknown preset '{self.preset}': choose one of {'; '.join(rows)}")
        prompts = {name for row in FAMILIES.values() for name in row.decoding.prompts}
        if self.prompt not in prompts and (problem := prompt_problem(self.prompt)) is not None:
            known = ", ".join(sorted(prompts))
            raise SettingsError(
                f"prompt '{self.prompt[:60]}' {problem}: give one of {known}, or a text with one"
            )
        if not 0 < self.max_megapixels <= _MOST_MEGAPIXELS:
            raise SettingsError(
                f"max_megapixels is {self.max_megapixels}: give a number up to {_MOST_MEGAPIXELS}"
            )
        if not 30 <= self.pdf_dpi <= 600:
            raise SettingsError(f"pdf_dpi is {self.pdf_dpi}: give 30 to 600")
        kind, _, target = self.draft.partition(":")
        if self.draft and not (self.draft in DRAFTS or (kind in DRAFTS_OF and target)):
            raise SettingsError(f"draft '{self.draft[:60]}': give {DRAFT_WORDS}")
        for name in self.backends:
            parse_backend(name, self.backends)
        for side in SIDES:
            self.of_side(side)

    @property
    def is_embedded(self) -> bool:
        """Tell whether the checkpoint is the one the project ships."""
        return Path(self.checkpoint).resolve() == EMBEDDED_CHECKPOINT

    @functools.cached_property
    def family(self) -> Family:
        """Row of the checkpoint's model; the first one where no config is read. Raises DsocrError."""
        try:
            return family_of(*read_config(Path(self.checkpoint.removeprefix("random:"))))
        except ConfigError:
            return FIRST

    def of_model(self, family: Family) -> Settings:
        """These settings for a model of which there is no checkpoint."""
        found = replace(self, checkpoint=family.name)
        vars(found)["family"] = family  # in place of what a config.json says
        return found

    @property
    def preset_name(self) -> str:
        if self.preset == "auto":
            return "small" if self.is_embedded else self.family.preset
        return self.preset.lower()

    @property
    def prompt_text(self) -> str:
        return self.family.decoding.prompts.get(self.prompt, self.prompt)

    # --- sides --------------------------------------------------------------------------------------

    @functools.cached_property
    def specs(self) -> tuple[BackendSpec, BackendSpec]:
        """Give what reads a page as A and as B of a comparison, under names that differ. Raises
        DsocrError.
        """
        a, b = parse_backends((self.a or self.engine, self.b or VENDOR), self.backends)
        return a, b

    def spec(self, side: Side) -> BackendSpec:
        """Give what reads a page as that side of a comparison."""
        return self.specs[SIDES.index(side)]

    @property
    def side_names(self) -> tuple[BackendName, BackendName]:
        """The names of A and B."""
        return self.backend("a"), self.backend("b")

    def backend(self, side: Side) -> BackendName:
        """The name of what reads a page as that side of a comparison."""
        return self.spec(side).name

    def names_backend(self, side: Side) -> bool:
        """Tell whether that side's backend was named, and is not what the settings come to without a name."""
        return (self.a, self.b)[SIDES.index(side)] is not None

    def of_side(self, side: Side) -> Settings:
        """These settings with what that side has otherwise. Raises DsocrError."""
        return self.of_spec(self.spec(side)) if self.names_backend(side) else self

    def of_spec(self, spec: BackendSpec) -> Settings:
        """The settings under which a backend reads: its own where it has some. Raises DsocrError."""
        own: dict[str, Any] = {"a": None, "b": None, **spec.overrides}
        if spec.infer:
            try:
                own["infer"] = replace(self.infer, **converted(InferSettings, spec.infer, "infer"))
            except SettingRefused as error:
                raise SettingRefused(f"{spec.name}: {error}") from None
        if isinstance(spec, EagerSpec | FastSpec):
            own["engine"] = spec.kind
        if isinstance(spec, VendorSpec):
            own["vendor"] = replace(
                self.vendor,
                interpreter=self.vendor.interpreter if spec.interpreter is None else spec.interpreter,
                timeout_s=self.vendor.timeout_s if spec.timeout_s is None else spec.timeout_s,
            )
        return replace(self, **own)

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
        if self.attention != "auto":
            return self
        if not any(isinstance(spec, FastSpec) for spec in self.specs):
            eager = any(isinstance(spec, EagerSpec) for spec in self.specs)
            return replace(self, attention="eager") if eager else self
        return replace(self, a=self._eager_attention("a"), b=self._eager_attention("b"))

    def _eager_attention(self, side: Side) -> BackendChoice | None:
        """Give that side's choice, with eager attention where it is the eager engine and says nothing of
        it.
        """
        choice, spec = (self.a, self.b)[SIDES.index(side)], self.spec(side)
        if choice is None or not isinstance(spec, EagerSpec) or spec.attention is not None:
            return choice
        return {**({"spec": choice} if isinstance(choice, str) else choice), "attention": "eager"}

    @property
    def attention_note(self) -> str:
        """Why both sides of a comparison have another attention; empty when they have the same."""
        engine = next((spec for spec in self.specs if isinstance(spec, EagerSpec)), None)
        vendor = next((spec for spec in self.specs if isinstance(spec, VendorSpec)), None)
        if engine is None or vendor is None:
            return ""
        own, published = self.of_spec(engine).own_attention, self.of_spec(vendor).vendor_attention
        if own == published:
            return ""
        return (
            f"attention {own} against {published}: the published decoder has "
            "eager and flash_attention_2 only, and another order of sums can change tokens; eager is on both"
        )

    @property
    def max_pixels(self) -> int:
        return int(self.max_megapixels * 1_000_000)

    def request(self, image: Path, source: str = "", more: tuple[Path, ...] | None = None) -> OcrRequest:
        """The request for one page image under these settings, `more` of them in a prompt of pages.

        Raises DsocrError for a preset that the model does not have, and for pages it does not read together.
        """
        infer, usual = self.infer, self.family.decoding
        size = usual.ngram_size_eval if infer.eval_mode else usual.ngram_size
        window = usual.ngram_window if more is None else usual.ngram_window_of_pages
        given = infer.no_repeat_ngram_size is not None or infer.ngram_window
        limited = infer.max_new_tokens != VENDOR_TOKEN_CEILING
        preset, prompt = self.preset_name, self.prompt_text
        self._check_views(preset_named(preset, self.family))
        if more is not None:
            preset, prompt = self._of_pages(1 + len(more))
        return OcrRequest(
            image=image,
            preset=preset,
            prompt=prompt,
            max_new_tokens=infer.token_limit if limited else usual.new_tokens or UNLIMITED,
            no_repeat_ngram_size=size if infer.no_repeat_ngram_size is None else infer.no_repeat_ngram_size,
            model=self.family.name,
            more=more or (),
            source=source,
            eval_mode=self.infer.eval_mode,
            test_compress=self.infer.test_compress,
            ngram_window=infer.ngram_window if given else window,
            ngram_whitelist=tuple(self.infer.ngram_whitelist),
            max_tiles=self.infer.max_tiles,
            tile_size=self.infer.tile_size,
            template=self.infer.template,
            exif=self.infer.exif,
        )

    def _check_views(self, preset: Preset) -> None:
        """Raises SettingsError for tiles that the model has no way to take."""
        row, side = self.family, cut(preset, self.infer.max_tiles, self.infer.tile_size).tile_size
        if row.views and side not in row.views:
            raise SettingsError(
                f"infer.tile_size is {side}: {row.title} takes views of "
                f"{' and '.join(map(str, row.views))} pixels alone; leave it out"
            )

    def _of_pages(self, count: int) -> tuple[str, str]:
        """Preset and prompt text of so many images in one prompt. Raises SettingsError.

        Left to themselves they are the model's own for pages: the first preset that does not cut, its prompt
        `pages`.
        """
        row = self.family
        most, whole = row.decoding.images, [name for name, each in row.presets.items() if not each.crop_mode]
        if most == 1:
            raise SettingsError(f"{row.title} reads one image a prompt: give its pages one by one")
        if count > most:
            raise SettingsError(f"{count} pages, and a prompt of {row.title} takes {most}: give fewer")
        preset = whole[0] if self.preset == "auto" else self.preset_name
        if preset not in whole:
            raise SettingsError(
                f"preset '{preset}' cuts pages, which those of one prompt are not: give {' or '.join(whole)}"
            )
        usual = row.decoding.prompts.get("pages", self.prompt_text)
        return preset, usual if self.prompt == "markdown" else self.prompt_text


def settings_of(document: Mapping[str, Any]) -> Settings:
    """Settings again from what `asdict` made of them. Raises DsocrError."""
    values, nested = (
        dict(document),
        {"infer": InferSettings, "vendor": VendorSettings, "tolerance": Tolerance},
    )
    for name, kind in nested.items():
        if name in values:
            values[name] = kind(**converted(kind, values[name], name))
    if unknown := sorted(values.keys() - Settings.__dataclass_fields__.keys()):
        raise SettingsError(f"'{unknown[0][:40]}' is no setting of this version")
    return Settings(**values)


def settings_against(settings: Settings, others: Sequence[BackendChoice]) -> list[Settings]:
    """For each B the settings of its comparison with A, all under names that differ. Raises DsocrError."""
    first = settings.a or settings.engine
    specs = parse_backends((first, *others), settings.backends)
    found = []
    for other, spec in zip(others, specs[1:], strict=True):
        choice = other if isinstance(other, dict) else {"spec": other}
        found.append(replace(settings, a=first, b={**choice, "name": spec.name}).for_comparison())
    return found


def history_location(settings: Settings) -> str:
    """Find the history of these settings: a URL as it is, a relative path under the project.

    Raises SettingsError for a name that is not UTF-8: DuckDB takes no other.
    """
    if not settings.history.isascii() and encodable(settings.history) != settings.history:
        raise SettingsError(
            f"history: {name_text(settings.history)} is not a name in UTF-8; give another with --history or "
            "DSOCR_RUNS"
        )
    return settings.history if "://" in settings.history else str(PROJECT_ROOT / settings.history)
