"""The settings of a run: one set of dataclasses for the command line, YAML files and the app.

Every field is an option (`--infer.max-new-tokens 512`) and a YAML key of the same name.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from dsocr_core.base.paths import EMBEDDED_CHECKPOINT, HISTORY, PROJECT_ROOT
from dsocr_core.base.specs import (
    ENGINES,
    Attention,
    BackendChoice,
    BackendSpec,
    Dtype,
    Precision,
    Rotary,
    check_values,
    nested,
    parse_backend,
    parse_backends,
    require,
    typed,
)
from dsocr_core.base.specs import SettingsError as SettingsError
from dsocr_core.models.config import ConfigError
from dsocr_core.models.family import FIRST, MODELS, ModelSpec, family_of, preset_named, read_config
from dsocr_core.models.resolution import MAX_TILES, TILE_SIZE, cut
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
    prompt_problem,
)

EngineName = Literal["eager", "fast"]


@dataclass(frozen=True)
class InferSettings:
    """Settings of decoding.

    Args:
        max_new_tokens: a positive integer or inf; 8192 is each model's own limit, inf for Unlimited-OCR
        no_repeat_ngram_size: no n-gram of this size may repeat; 0 is off, left out it is the model's own
        eval_mode: ask the published code for its text alone; it then writes no files
        test_compress: print image size, valid image tokens, text tokens and their ratio of every page
        ngram_window: new tokens that the n-gram rule looks back on; 0 is the model's own
        ngram_whitelist: texts of tokens that the n-gram rule never forbids, like <td> and </td>
        max_tiles: most tiles of a page; 9 is each model's own: 6 for DeepSeek-OCR-2, 32 for Unlimited-OCR
        tile_size: side of a tile in pixels, a multiple of 64; 640 is each model's own: 768 for DeepSeek-OCR-2
        template: plain is as published; no_newline has none after <image>, newline has; roles writes a chat
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
        check_values(self, "infer.")
        most, exempt, side = self.max_new_tokens, len(self.ngram_whitelist), self.tile_size
        tokens = most.strip().lower() == "inf" if isinstance(most, str) else most >= 1 and most is not True
        require(tokens, "infer.max_new_tokens", most, "a positive integer or inf")
        require(exempt <= MOST_EXEMPT, "infer.ngram_whitelist", f"{exempt} tokens", f"at most {MOST_EXEMPT}")
        require(side % 64 == 0, "infer.tile_size", side, "a multiple of 64, as a vision token covers 64 x 64")


@dataclass(frozen=True)
class VendorSettings:
    """The worker process that runs the checkpoint's own code.

    Args:
        interpreter: python of another environment for the worker; empty means this one
        timeout_s: seconds that loading, and then each page, may take before the worker is stopped
        trust_remote_code: directories whose own code may run, as DIR, or DIR@DIGEST after it has changed
    """

    interpreter: str = ""
    timeout_s: float = 900.0
    trust_remote_code: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_values(self, "vendor.")


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    Args:
        checkpoint: checkpoint directory, or random:PATH/config.json for seeded random weights
        preset: tiny, small, base, large or gundam, or another model's; auto is the model's usual one
        prompt: markdown, free_ocr, figure, locate, or a prompt text with one <image>
        infer: how a page is decoded
        engine: eager has the published order of operations; fast replays CUDA graphs on a GPU
        attention: of the decoder; auto is sdpa, and eager where the eager engine is compared
        dtype: auto is bfloat16 on a GPU and float32 on a CPU
        device: auto, cpu, cuda or cuda:N
        rotary: published rounds the rotary frequencies to the weights' dtype as the published loading does
        precision: fp8-kv stores the KV caches of the fast engine in 8 bits
        max_megapixels: largest image that is opened
        pdf_dpi: resolution at which PDF pages are rendered
        vendor: the worker process that runs the checkpoint's own code
        history: where runs are recorded: a path, relative to the project; empty records none
        tolerance: by how much two results may differ and still pass
        draft: a text the fast engine verifies: folder:PATH of texts or a run, or lookup (the page's own text)
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
        check_values(self)
        # A model's own names are checked when a page is asked for: here no file is opened.
        presets = sorted({"auto", *(name for row in MODELS.values() for name in row.presets)})
        require(self.preset.lower() in presets, "preset", self.preset, f"one of {', '.join(presets)}")
        prompts = sorted({name for row in MODELS.values() for name in row.decoding.prompts})
        if self.prompt not in prompts and (problem := prompt_problem(self.prompt)):
            words = f"{problem}: give one of {', '.join(prompts)}, or a text with one"
            raise SettingsError(f"prompt '{self.prompt[:60]}' {words}")
        kind, _, target = self.draft.partition(":")
        draft = self.draft in ("", "lookup") or (kind == "folder" and target != "")
        require(draft, "draft", f"'{self.draft[:60]}'", "folder:PATH or lookup")
        for name in self.backends:
            parse_backend(name, self.backends)
        for side in SIDES:
            self.of_side(side)

    @property
    def is_embedded(self) -> bool:
        """Tell whether the checkpoint is the one the project ships."""
        return Path(self.checkpoint).resolve() == EMBEDDED_CHECKPOINT

    @functools.cached_property
    def family(self) -> ModelSpec:
        """Row of the checkpoint's model; the first one where no config is read. Raises DsocrError."""
        try:
            return family_of(*read_config(Path(self.checkpoint.removeprefix("random:"))))
        except ConfigError:
            return FIRST

    @property
    def preset_name(self) -> str:
        if self.preset == "auto":
            return "small" if self.is_embedded else self.family.preset
        return self.preset.lower()

    @property
    def prompt_text(self) -> str:
        return self.family.decoding.prompts.get(self.prompt, self.prompt)

    @property
    def max_pixels(self) -> int:
        return int(self.max_megapixels * 1_000_000)

    # --- sides --------------------------------------------------------------------------------------

    @functools.cached_property
    def specs(self) -> tuple[BackendSpec, ...]:
        """A and B of a comparison, under names that differ. Raises DsocrError."""
        return parse_backends((self.a or self.engine, self.b or VENDOR), self.backends)

    def spec(self, side: Side) -> BackendSpec:
        return self.specs[SIDES.index(side)]

    def backend(self, side: Side) -> BackendName:
        return self.spec(side).name

    @property
    def side_names(self) -> tuple[BackendName, BackendName]:
        return self.specs[0].name, self.specs[1].name

    def of_side(self, side: Side) -> Settings:
        """These settings with what that side replaces. Raises DsocrError."""
        return self.of_spec(self.spec(side)) if getattr(self, side) is not None else self

    def of_spec(self, spec: BackendSpec) -> Settings:
        """The settings under which a backend reads: its own where it has some. Raises DsocrError."""
        own = typed(Settings, spec.own, spec.name)
        parts = {name: replace(getattr(self, name), **own.pop(name, {})) for name in ("infer", "vendor")}
        engine = spec.kind if spec.kind in ENGINES else self.engine
        return replace(self, **{"a": None, "b": None, "engine": engine, **own, **parts})

    @property
    def own_attention(self) -> str:
        return "sdpa" if self.attention == "auto" else self.attention

    @property
    def vendor_attention(self) -> str:
        """The published decoder has no SDPA variant; SDPA is compared with its eager one."""
        return self.attention if self.attention == "flash_attention_2" else "eager"

    def for_comparison(self) -> Settings:
        """These settings with an attention that both sides can have, unless one was chosen.

        The fast engine keeps its own: it sums in another order whatever the attention.
        """
        kinds = [spec.kind for spec in self.specs]
        if self.attention != "auto" or "eager" not in kinds:
            return self
        if "fast" not in kinds:
            return replace(self, attention="eager")
        choice = getattr(self, side := SIDES[kinds.index("eager")])
        own: dict[str, Any] = {side: choice and {"attention": "eager", **nested(choice)}}
        return replace(self, **own)

    # --- requests -----------------------------------------------------------------------------------

    def request(self, image: Path, source: str = "", more: tuple[Path, ...] | None = None) -> OcrRequest:
        """The request for one page image, `more` of them in a prompt of pages. Raises DsocrError."""
        infer, row, usual = self.infer, self.family, self.family.decoding
        size, window = infer.no_repeat_ngram_size, infer.ngram_window
        if size is None:
            window = window or (usual.ngram_window if more is None else usual.ngram_window_of_pages)
            size = usual.ngram_size_eval if infer.eval_mode else usual.ngram_size
        side = cut(preset_named(self.preset_name, row), infer.max_tiles, infer.tile_size).tile_size
        if row.views and side not in row.views:
            raise SettingsError(f"infer.tile_size is {side}: {row.title} takes views of {row.views} pixels")
        one = self.preset_name, self.prompt_text
        preset, prompt = one if more is None else self._of_pages(1 + len(more))
        most = infer.max_new_tokens if isinstance(infer.max_new_tokens, int) else UNLIMITED
        asked = vars(infer) | {
            "max_new_tokens": usual.new_tokens or UNLIMITED if most == VENDOR_TOKEN_CEILING else most,
            "no_repeat_ngram_size": size, "ngram_window": window,
            "ngram_whitelist": tuple(infer.ngram_whitelist),
        }  # fmt: skip
        return OcrRequest(image, preset, prompt, source=source, more=more or (), model=row.name, **asked)

    def _of_pages(self, count: int) -> tuple[str, str]:
        """Preset, by default the first that does not cut, and prompt text of pages. Raises SettingsError."""
        row = self.family
        most, whole = row.decoding.images, [name for name, each in row.presets.items() if not each.crop_mode]
        if count > most or most == 1:
            raise SettingsError(f"{count} pages: a prompt of {row.title} takes at most {most}; give fewer")
        preset = whole[0] if self.preset == "auto" else self.preset_name
        if preset not in whole:
            raise SettingsError(f"preset '{preset}' cuts its pages: for several in a prompt give {whole}")
        usual = row.decoding.prompts.get("pages", self.prompt_text)
        return preset, usual if self.prompt == "markdown" else self.prompt_text


def settings_of(document: Mapping[str, Any]) -> Settings:
    """Settings from their `asdict`. Raises DsocrError."""
    kinds: dict[str, Any] = {"infer": InferSettings, "vendor": VendorSettings, "tolerance": Tolerance}
    if unknown := sorted(document.keys() - Settings.__dataclass_fields__.keys()):
        raise SettingsError(f"'{unknown[0][:40]}' is no setting of this version")
    return Settings(**{
        name: kinds[name](**typed(kinds[name], value, name)) if name in kinds else value
        for name, value in document.items()
    })  # fmt: skip


def settings_against(settings: Settings, others: Sequence[BackendChoice]) -> list[Settings]:
    """Settings of the comparison of A with each B, all under names that differ. Raises DsocrError."""
    first = settings.a or settings.engine
    specs = parse_backends((first, *others), settings.backends)
    return [
        replace(settings, a=first, b={**nested(other), "name": spec.name}).for_comparison()
        for other, spec in zip(others, specs[1:], strict=True)
    ]


def history_location(settings: Settings) -> str:
    """Place of the history of these settings: a URL as it is, a relative path under the project."""
    return settings.history if "://" in settings.history else str(PROJECT_ROOT / settings.history)
