"""Base class of our engines: one page through the stages, marked in NVTX and timed, without `infer`."""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Iterator, Mapping, Sized
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from PIL import Image
from torch import Tensor

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.base.specs import Precision
from dsocr_core.engine.checkpoint import Checkpoint
from dsocr_core.engine.device import current, decode_threads
from dsocr_core.engine.generate import NO_TOKEN, Sequence, finish_reason, generate, token_limit
from dsocr_core.engine.ngram_rule import NgramRule
from dsocr_core.engine.page import Background, PageInputs, Pixels, PreparedPage, open_page
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.engine.views import Views, staged, together, uploaded, views_of
from dsocr_core.models.blocks.attention import attention_core
from dsocr_core.models.blocks.decoder import BestTwo
from dsocr_core.models.devices import device_name
from dsocr_core.models.stages import Stage
from dsocr_core.page.documents import DEFAULT_MAX_PIXELS, load_image
from dsocr_core.page.preprocess import NORMALISED, PreparedImage, prepare, stacked, tensor_sha256
from dsocr_core.page.prompt import PromptIds, build_prompt, prompt_layout
from dsocr_core.page.tiling import image_token_count
from dsocr_core.page.tokenizer import StreamDecoder
from dsocr_core.reading.markup import parse
from dsocr_core.reading.records import (
    CancelToken,
    FinishReason,
    ModelInputs,
    NgramPolicy,
    Observer,
    OcrRequest,
    OcrResult,
    top_two_steps,
)


class Drafts(Protocol):
    """Protocol of a source of drafts."""

    name: str
    own_text: bool
    """True where the draft is the text that the page has had so far."""

    def tokens(self, request: OcrRequest, encode: Callable[[str], list[int]]) -> tuple[int, ...]:
        """Tokens that the page's text probably has; empty without a draft. `encode` makes a text's tokens."""
        ...


ToPrefill = tuple[PromptIds, Pixels, Sequence]
"""A page's prompt and views, and the empty sequence that its prefill fills."""


@dataclass(frozen=True)
class EngineOptions:
    """Options of an engine, the same for all pages."""

    attention: str = "sdpa"
    rotary_dtype: torch.dtype | None = None
    """Dtype to which inverse rotary frequencies are rounded. None is the weights' dtype, as published."""
    max_pixels: int = DEFAULT_MAX_PIXELS
    ignore_eos: bool = False
    """True decodes on to the token limit."""
    marks: Marks = Marks.TIMED
    drafts: Drafts | None = None
    precision: Precision = "off"
    """Precision of the batch's KV cache; the weights keep the checkpoint's."""
    top_two: bool = True
    """True records each step's top-2 logits, if the engine has the logits of single steps."""


@dataclass(frozen=True)
class Prefilled:
    """A page after its prefill, valid until the engine's next page. Its `logits` are (V,) float32."""

    page: PageInputs
    sequence: Sequence
    logits: Tensor


class Engine:
    """Reader of one page at a time, by the modules in the published order. Hold the device's lock."""

    name: ClassVar[str]

    def __init__(self, checkpoint: Checkpoint, options: EngineOptions | None = None) -> None:
        options = options or EngineOptions()
        self.checkpoint, self.options = checkpoint, options
        self.marks = options.marks
        """Kind of marks that stages make."""
        model = checkpoint.model
        self._device_name = device_name(model.device)
        self.core = attention_core(options.attention, model.device, model.dtype)
        usual = torch.float32 if model.family.exact_rotary else model.dtype
        self.rotary_dtype = options.rotary_dtype or usual
        # Table of 256 values that turns bytes into normalised bf16.
        rounded = torch.float16 if model.dtype == torch.float16 else torch.bfloat16
        self._normalised = torch.from_numpy(NORMALISED).to(model.device, rounded).to(model.dtype)
        # Texts of tokens, kept: most come again, and a result has a thousand.
        self._text_of = functools.cache(lambda token: checkpoint.tokenizer.decode([token]))

    @contextmanager
    def unmarked(self) -> Iterator[None]:
        """Turn marks off within the block, for a warm-up under a profiler."""
        self.marks = Marks.NONE
        try:
            yield
        finally:
            self.marks = self.options.marks

    @property
    def end_token(self) -> int:
        """Id at which decoding ends; an id that no token has where the end token is ignored."""
        return NO_TOKEN if self.options.ignore_eos else self.checkpoint.tokenizer.eos_token_id

    def ngram_policy(self, request: OcrRequest) -> NgramPolicy:
        """The request's n-gram rule in ids. Raises DsocrError where a whitelisted text is not one token."""
        encode, exempt = self.checkpoint.tokenizer.encode, []
        for text in request.ngram_whitelist:
            ids = encode(text)
            if len(ids) != 1:
                raise DsocrError(
                    f"infer.ngram_whitelist: '{text[:40]}' is {len(ids)} tokens of this checkpoint; "
                    "give the text of one token, like <td>"
                )
            exempt += ids
        over = self.checkpoint.model.family.decoding.window_over_prompt
        return NgramPolicy(request.required.no_repeat_ngram_size, request.ngram_window, tuple(exempt), over)

    def prepare(self, request: OcrRequest, opened: PreparedPage | None = None) -> PreparedPage:
        """Preprocess a page before its turn, on any thread. Opens it unless `opened`. Raises DsocrError."""
        preset = request.resolution
        if opened is None or opened.exif != request.exif:
            opened = open_page(request, self.options.max_pixels, self.marks)
        timer = StageTimer(torch.device("cpu"), marks=self.marks)
        with timer.stage(Stage.PREPROCESS):
            image = prepare(opened.picture, preset)
            if request.more:
                image = stacked(
                    [image, *(prepare(self._load(path, request), preset) for path in request.more)]
                )
        times = [timing.milliseconds for timing in timer.timings()]
        milliseconds = times[0] + (opened.milliseconds or 0.0) if times else None
        hashes = _view_hashes(image, preset.base_size)
        early = (drafts := self.options.drafts) is not None and not drafts.own_text
        draft = self.draft_of(request, None) if early else None
        held = staged(image, self.checkpoint.model.device)
        return replace(
            opened, milliseconds=milliseconds, image=image, staged=held, hashes=hashes, draft=draft
        )

    def draft_of(self, request: OcrRequest, prepared: PreparedPage | None) -> tuple[int, ...]:
        """Tokens that the page's text probably has; empty without a draft."""
        if prepared is not None and prepared.draft is not None:
            return prepared.draft
        drafts = self.options.drafts
        return () if drafts is None else drafts.tokens(request, self.checkpoint.tokenizer.encode)

    def draft_environment(self, counts: Mapping[str, str] | None = None) -> dict[str, str]:
        """Entries of a result's environment: the source of its draft, and how much was accepted."""
        if self.options.drafts is None:
            return {}
        found = {f"draft_{name}": value for name, value in (counts or {}).items()}
        return {"draft": self.options.drafts.name} | found

    def recognize(
        self,
        request: OcrRequest,
        observer: Observer | None = None,
        cancel: CancelToken | None = None,
        prepared: PreparedPage | None = None,
    ) -> OcrResult:
        """Read one page, opened here unless `prepared`. Raises DsocrError, and Cancelled by `cancel`."""
        observer = observer or Observer()
        model, tokenizer = self.checkpoint.model, self.checkpoint.tokenizer
        timer = StageTimer(model.device, observer, self.marks)

        with self.modes():
            page, pixels = self.take_in(request, prepared, timer)
            self.make_ready(page, pixels)
            with timer.stage(Stage.PREFILL):
                sequence = self.start(page, self.ngram_policy(request))
                logits = self.prefill(page.prompt, pixels, sequence, timer, cancel)  # (V,)
            # Needed only at the end: made while the device computes.
            page.hashes.start()
            stream, tokens = StreamDecoder(tokenizer.decode), list[int]()
            with timer.stage(Stage.DECODE), decode_threads(model):
                for token in self.tokens(sequence, page.prompt.ids, logits, page.limit):
                    if cancel is not None and cancel.is_set():
                        raise Cancelled
                    tokens.append(token)
                    observer.text(stream.push(token))
            timer.count(Stage.DECODE, len(tokens) - 1)  # the prefill gives the first token
        reason = finish_reason(tokens, self.end_token)
        return self.result(page, tokens, reason, timer, sequence.best, self.draft_environment())

    def prefilled(self, request: OcrRequest, cancel: CancelToken | None = None) -> Prefilled:
        """Run vision and prompt once, to decode the page several times. Raises DsocrError and Cancelled."""
        timer = StageTimer(self.checkpoint.model.device, marks=Marks.NONE)
        with self.modes():
            page, pixels = self.take_in(request, None, timer)
            sequence = self.start(page, self.ngram_policy(request))
            sequence.best = None
            logits = self.prefill(page.prompt, pixels, sequence, timer, cancel).clone()
        return Prefilled(page, sequence, logits)

    @contextmanager
    def decoding_again(
        self, prefilled: Prefilled, request: OcrRequest, limit: int
    ) -> Iterator[Iterator[int]]:
        """Decode a prefilled page, each time under another n-gram rule, as an iterator. Raises DsocrError."""
        if limit > prefilled.page.limit:
            raise DsocrError(f"{limit} new tokens do not fit the {prefilled.page.limit} of the prefill")
        prompt = prefilled.page.prompt.ids
        prefilled.sequence.cache.length = len(prompt)
        sequence = replace(prefilled.sequence, rule=NgramRule(self.ngram_policy(request), prompt))
        with self.modes(), decode_threads(self.checkpoint.model):
            yield self.tokens(sequence, prompt, prefilled.logits, limit)

    def make_ready(self, page: PageInputs, pixels: Pixels, step: Any = None, at_once: int = 1) -> None:
        """Compile all that such a page needs before its stages are timed, also a batch's `step`."""

    def start(self, page: PageInputs, ngram: NgramPolicy | int) -> Sequence:
        """Make an empty sequence for a page's prompt."""
        model, prompt_ids = self.checkpoint.model, page.prompt.ids
        sequence = Sequence.start(model, prompt_ids, page.limit, ngram, self.core, self.rotary_dtype)
        sequence.best = BestTwo() if self.options.top_two else None
        return sequence

    def tokens(
        self, sequence: Sequence, prompt_ids: tuple[int, ...], logits: Tensor, limit: int
    ) -> Iterator[int]:
        """Yield the new tokens after the prefill's `logits` (V,), the end token included."""
        following = sequence.next_logits(self.checkpoint.model)
        return generate(following, logits, sequence.rule, limit, self.end_token, sequence.best)

    @contextmanager
    def modes(self) -> Iterator[None]:
        """Set torch's modes for reading: the device, no gradients, the published autocast."""
        model = self.checkpoint.model
        half = model.dtype in (torch.bfloat16, torch.float16)
        dtype = model.dtype if half else torch.bfloat16
        autocast = torch.autocast(model.device.type, dtype, enabled=half)
        with current(model.device), torch.inference_mode(), autocast:
            yield

    def take_in(
        self, request: OcrRequest, prepared: PreparedPage | None, timer: StageTimer
    ) -> tuple[PageInputs, Pixels]:
        """The page's prompt and token limit, and its views on the device. Raises DsocrError."""
        model, tokenizer, preset = self.checkpoint.model, self.checkpoint.tokenizer, request.resolution
        if prepared is not None and prepared.exif != request.exif:
            prepared = None
        with timer.stage(Stage.PREPROCESS):
            if len(request.images) > (allowed := model.family.decoding.images):
                raise DsocrError(
                    f"{request.name}: {len(request.images)} images, and a prompt takes {allowed}"
                )
            if prepared is not None and prepared.image is not None:
                views = uploaded(prepared.image, model.device, prepared.staged)
            else:
                views = self._views_of(request, prepared)
            if prepared is not None:
                timer.add(Stage.PREPROCESS, prepared.milliseconds or 0.0)
            tiles = self._pixels(views.tiles) if len(views.tiles) else None
            pixels = Pixels(tiles, views.grid, self._pixels(views.global_view))
        with timer.stage(Stage.TOKENIZER, on_host=True):
            prompt = prompt_layout(
                tokenizer.encode,
                build_prompt(request.required.prompt, request.template),
                tokenizer.image_token_id,
                tokenizer.bos_token_id,
                len(request.images) * image_token_count(preset, views.grid, model.family.newline),
            )
            limit = token_limit(request.required.max_new_tokens, len(prompt.ids), model.config.decoder)
        known = None if prepared is None else prepared.hashes
        hashes = Background(lambda: _view_hashes(views.on_host(), preset.base_size), known)
        side = views.global_view.shape[1]
        recorded = ModelInputs(
            prompt_ids=prompt.ids,
            image_mask=prompt.mask,
            grid=views.grid,
            global_shape=(len(views.global_view), 3, side, side),
            global_sha256="",
            tiles_shape=_tiles_shape(views.tiles, views.tiles.shape[1], preset.base_size),
            tiles_sha256="",
            no_repeat_ngram_size=request.required.no_repeat_ngram_size,
            max_new_tokens=limit,
            attention=self.options.attention,
            dtype=_dtype_name(model.dtype),
            rotary_dtype=_dtype_name(self.rotary_dtype),
            ngram_window=request.ngram_window,
            ngram_whitelist=request.ngram_whitelist,
        )
        sizes = (views.image_size, *views.more_sizes)
        return PageInputs(request, sizes, prompt, limit, recorded, hashes, known is not None), pixels

    def _views_of(self, request: OcrRequest, opened: PreparedPage | None) -> Views:
        """Views of all images of a prompt; the first may have been opened before. Raises DsocrError."""
        made = []
        for number, path in enumerate(request.images):
            held = opened.picture if opened is not None and number == 0 else self._load(path, request)
            made.append(views_of(held, request.resolution, self.checkpoint.model.device))
        return together(made) if request.more else made[0]

    def _load(self, path: Path, request: OcrRequest) -> Image.Image:
        return load_image(path, self.options.max_pixels, request.exif)

    def prefill(
        self,
        prompt: PromptIds,
        pixels: Pixels,
        sequence: Sequence,
        timer: StageTimer,
        cancel: CancelToken | None,
    ) -> Tensor:
        """Run vision and prompt into the empty `sequence`. Returns logits (V,) float32."""
        embeddings = self._embed(prompt, pixels, timer, cancel)
        return self._prefill(sequence, embeddings)

    def pages_a_pass(self, page: PageInputs) -> int:
        """Pages of this one's shape that `prefill_pages` takes at once. It depends on the page alone."""
        return 1

    def prefill_pages(
        self, pages: Seq[ToPrefill], at_once: int, timer: StageTimer, cancel: CancelToken | None
    ) -> list[Tensor]:
        """`prefill` for pages of one shape, with the bits of a pass of `at_once`. Logits are copies."""
        return [self.prefill(*page, timer, cancel).clone() for page in pages]

    def result(
        self,
        page: PageInputs,
        tokens: list[int],
        reason: FinishReason,
        timer: StageTimer,
        best: BestTwo | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> OcrResult:
        """Make the result of a page from its new tokens, on any thread."""
        tokenizer = self.checkpoint.tokenizer
        with timer.stage(Stage.POSTPROCESS, on_host=True):
            text = tokenizer.decode(tokens)
            blocks = parse(text, page.request.form)
        around = {"overlapped": "preprocess"} if page.overlapped else {}
        return OcrResult(
            backend=self.name,
            request=page.request,
            image_size=page.sizes[0],
            more_sizes=page.sizes[1:],
            text_raw=text,
            token_ids=tuple(tokens),
            token_texts=tuple(map(self._text_of, tokens)),
            finish_reason=reason,
            inputs=page.recorded,
            timings=timer.timings(),
            environment=self._environment() | around | dict(environment or {}),
            top_two=top_two_steps(*best.pairs()) if best else (),
            text_tokens=len(tokenizer.encode(text)) if page.request.test_compress else None,
        ).parsed(blocks)

    def _pixels(self, views: Tensor) -> Tensor:
        """Normalise bytes (V, S, S, 3) to (V, 3, S, S), rounded through bf16 as published."""
        # Transposed while a pixel is still a byte.
        planes = views.permute(0, 3, 1, 2).contiguous()
        return self._normalised[planes.int()]

    def _embed(
        self, prompt: PromptIds, pixels: Pixels, timer: StageTimer, cancel: CancelToken | None
    ) -> Tensor:
        """Run vision on every view and put its tokens into the prompt's embeddings: (1, N, C)"""
        model = self.checkpoint.model
        features: list[Tensor] = []  # (T, q*q, C) of each pass
        for views in pixels.passes:
            if cancel is not None and cancel.is_set():
                raise Cancelled
            outputs = [views]
            for stage, part in zip(model.family.vision, model.parts, strict=True):
                with timer.stage(stage):
                    outputs.append(part(*outputs))
            features.append(outputs[-1])
        with timer.stage(Stage.VISION_FUSION):
            ids = torch.tensor([prompt.ids], device=model.device)  # (1, N)
            mask = torch.zeros(ids.shape, dtype=torch.bool, device=model.device)
            for start, length in prompt.mask:
                mask[:, start : start + length] = True
            return model.fuse(ids, mask, pixels.fused(features))

    def _prefill(self, sequence: Sequence, embeddings: Tensor) -> Tensor:
        """Run the prompt's embeddings (1, N, C) through the language model. Returns logits (V,)."""
        return sequence.forward(self.checkpoint.model, embeddings)

    def _environment(self) -> dict[str, str]:
        precision = self.options.precision
        return {
            "engine": self.name, "checkpoint": self.checkpoint.source,
            "device": str(self.checkpoint.model.device), "device_name": self._device_name,
            "torch": torch.__version__, "python": platform.python_version(),
            **({} if precision == "off" else {"precision": precision}),
        }  # fmt: skip


class EagerEngine(Engine):
    """Engine with one forward pass a token, in the published order. The host reads each step's logits."""

    name = "eager"


def _tiles_shape(tiles: Sized, side: int, base_size: int) -> tuple[int, ...]:
    """Shape of the published `images_crop` for tiles of that side."""
    return (len(tiles), 3, side, side) if len(tiles) else (1, 3, base_size, base_size)


def _view_hashes(image: PreparedImage, base_size: int) -> tuple[str, str]:
    tiles = image.tiles if len(image.tiles) else None
    return tensor_sha256(image.global_view[None]), tensor_sha256(
        tiles, _tiles_shape(image.tiles, image.tiles.shape[1], base_size)
    )


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
