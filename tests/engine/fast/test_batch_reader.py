"""Pages through the batch end to end, on the plain form of the kernels: as the eager engine reads each."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from PIL import Image, ImageDraw

import dsocr_core.engine.base as base
import dsocr_core.engine.fast.engine as fast_engine
import dsocr_core.runs.result_cache as results
from dsocr_core.backends.backend import Opening
from dsocr_core.backends.on_device import EngineBackend
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.engine.base import EagerEngine, Engine, EngineOptions
from dsocr_core.engine.checkpoint import Checkpoint, load_checkpoint
from dsocr_core.engine.fast.batch import (
    MOST_WAITING,
    BatchReader,
    Slots,
    _Loaded,
    _Run,
    slots_in,
)
from dsocr_core.engine.fast.engine import FastEngine
from dsocr_core.engine.generate import Sequence
from dsocr_core.engine.page import most_image_tokens
from dsocr_core.engine.stage_timer import StageTimer
from dsocr_core.kernels.launch import PLAIN
from dsocr_core.models.blocks.token_step import TokenStep
from dsocr_core.models.deepseek_ocr2 import DEEPSEEK_OCR2
from dsocr_core.models.family import preset_named
from dsocr_core.models.stages import Stage
from dsocr_core.models.unlimited_ocr import UNLIMITED_OCR
from dsocr_core.read.plan import RunPlan
from dsocr_core.read.report import Report
from dsocr_core.read.run import read_run, slots_for
from dsocr_core.read.session import Session
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.settings import InferSettings, Settings
from tests.engine.fast.read_batch import Listed, read
from tests.support.seeded_weights import (
    tiny_config,
    tiny_unlimited_config,
    with_changes,
    write_seeded_checkpoint,
)

LIMITS = (9, 1, 4, 17, 2, 9)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = with_changes(tiny_config(), num_hidden_layers=2)
    return write_seeded_checkpoint(config, tmp_path_factory.mktemp("batch") / "tiny_batch", torch.float32)


@pytest.fixture(scope="module")
def checkpoint(directory: Path) -> Checkpoint:
    return load_checkpoint(str(directory), CPU, torch.float32)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pages")
    paths = []
    for number in range(len(LIMITS)):
        picture = Image.new("RGB", (200 + 40 * number, 300 - 30 * number), "white")
        ImageDraw.Draw(picture).text((10, 10 + 20 * number), f"Page {number * 77}", fill="black")
        paths.append(folder / f"page{number}.png")
        picture.save(paths[-1])
    return paths


@pytest.fixture(scope="module")
def requests(pages: list[Path]) -> list[OcrRequest]:
    return [OcrRequest(page, "tiny", max_new_tokens=limit) for page, limit in zip(pages, LIMITS, strict=True)]


@pytest.fixture(scope="module")
def alone(checkpoint: Checkpoint, requests: list[OcrRequest]) -> list[OcrResult]:
    engine = EagerEngine(checkpoint, EngineOptions(ignore_eos=True))
    return [engine.recognize(request) for request in requests]


@pytest.fixture
def engine(checkpoint: Checkpoint) -> EagerEngine:
    return EagerEngine(checkpoint, EngineOptions(ignore_eos=True))


def view_of(engine: Engine, request: OcrRequest) -> torch.Tensor:
    """The page's global view: by it a prefill's page is known."""
    with engine.modes():
        return engine.take_in(request, engine.prepare(request), StageTimer(CPU))[1].global_view


@pytest.fixture
def together(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> FastEngine:
    """Two pages a pass of prefill; `passes` has the pages of each."""
    monkeypatch.setattr(fast_engine, "PAGES_A_PASS", 2)
    engine = FastEngine(checkpoint, EngineOptions(ignore_eos=True))
    given, engine.passes = engine.prefill_pages, []  # type: ignore[attr-defined]

    def counted(pages, *of_pass):
        engine.passes.append(len(pages))
        return given(pages, *of_pass)

    monkeypatch.setattr(engine, "prefill_pages", counted)
    return engine


EACH_ALONE = [1] * len(LIMITS)


@pytest.mark.parametrize(
    ("slots", "late", "presets", "passes"),
    [
        (1, 0, ("tiny",), EACH_ALONE), (2, 3, ("tiny",), EACH_ALONE), (7, 0, ("tiny",), EACH_ALONE),
        (8, 0, ("tiny",), [2, 2, 2]), (8, 0, ("small", "tiny"), [2, 2, 1, 1]),
        (8, 3, ("tiny",), [1, 2, 2, 1]),
    ],
    ids=["one slot", "two slots, late", "few slots", "all of one shape", "two shapes by turns", "late"],
)  # fmt: skip
def test_each_page_reads_as_it_does_alone_and_pages_of_one_shape_are_prefilled_together(
    together: FastEngine, requests: list[OcrRequest], alone: list[OcrResult], slots: int, late: int,
    presets: tuple[str, ...], passes: list[int],
) -> None:  # fmt: skip
    # The longest page first: slots are made for such pages.
    order = sorted(range(len(requests)), key=lambda number: -LIMITS[number])
    asked = [replace(requests[number], preset=presets[at % len(presets)]) for at, number in enumerate(order)]
    reader = BatchReader(together, slots, ignore_eos=True, group=2, kernels=PLAIN)
    heard = read(reader, together, asked, late)
    assert together.passes == passes  # type: ignore[attr-defined]
    for place, number in enumerate(order):
        found, wanted = heard[place], alone[number]
        assert isinstance(found, OcrResult), found
        if asked[place].preset == "tiny":
            assert (found.token_ids, found.text_raw, found.inputs) == (
                wanted.token_ids, wanted.text_raw, wanted.inputs,
            )  # fmt: skip
        assert found.image_size == wanted.image_size and found.finish_reason == "length"
        assert [(row.stage, row.calls) for row in found.timings] == [
            (row.stage, row.calls) for row in wanted.timings
        ]
        assert found.environment["batch"] == str(slots)
        assert (found.milliseconds(Stage.DECODE) == 0) == (LIMITS[number] == 1)


class Counted:
    """Views of a page, which count how often they are cut into passes."""

    def __init__(self, side: int) -> None:
        self.side, self.cuts = side, 0

    @property
    def passes(self) -> tuple[torch.Tensor, ...]:
        self.cuts += 1
        return (torch.empty(1, 3, self.side, self.side),)


def test_waiting_pages_of_sixteen_shapes_by_turns_fill_passes_and_each_is_looked_at_once() -> None:
    run: Any = object.__new__(_Run)
    prompt: Any = SimpleNamespace(prompt=SimpleNamespace(ids=(1, 2)))
    run.waiting = []
    while len(run.waiting) < MOST_WAITING and run._full_pass() is None:
        views: Any = Counted(1 + len(run.waiting) % 16)
        run.waiting.append(_Loaded(Any, prompt, views, Any, Any, (), 4))  # type: ignore[arg-type]
    full = run._full_pass()
    assert full is not None and [one.pixels.side for one in full] == [1, 1, 1, 1]
    assert {one.pixels.cuts for one in run.waiting} == {1}


@pytest.mark.parametrize(
    ("fault", "said"),
    [(DsocrError("the towers fell"), "the towers fell"),
     (torch.cuda.OutOfMemoryError(), "page5.png: the GPU is out of memory; choose a smaller preset")],
)  # fmt: skip
def test_a_page_at_fault_costs_those_of_its_pass_nothing(
    together: FastEngine, requests: list[OcrRequest], alone: list[OcrResult], fault: Exception, said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    order = sorted(range(len(requests)), key=lambda number: -LIMITS[number])
    asked = [requests[number] for number in order]
    bad, given = view_of(together, asked[2]), together.prefill_pages

    def fail_for_one(pages, *of_pass):
        if any(torch.equal(pixels.global_view, bad) for _, pixels, _ in pages):
            raise fault
        return given(pages, *of_pass)

    monkeypatch.setattr(together, "prefill_pages", fail_for_one)
    reader = BatchReader(together, 8, ignore_eos=True, group=2, kernels=PLAIN)
    heard = read(reader, together, asked)
    assert str(heard[2]) == said
    for place, number in enumerate(order):
        found = heard[place]
        assert place == 2 or (isinstance(found, OcrResult) and found.token_ids == alone[number].token_ids)


@pytest.fixture(scope="module")
def unlimited(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("documents") / "unlimited"
    return str(write_seeded_checkpoint(tiny_unlimited_config(8), folder, torch.float32))


def test_documents_take_slots_and_one_that_is_too_long_for_them_is_read_by_itself(
    unlimited: str, pages: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = load_checkpoint(unlimited, CPU, torch.float32)
    engine = EagerEngine(checkpoint, EngineOptions(ignore_eos=True))
    settings = Settings(checkpoint=unlimited)
    documents = [pages[:2], pages[4:5], pages[1:4]]
    requests = [
        replace(settings.request(first, more=tuple(more)), max_new_tokens=20) for first, *more in documents
    ]
    alone = [engine.recognize(request) for request in requests]
    heard = read(BatchReader(engine, 2, ignore_eos=True, group=4, kernels=PLAIN), engine, requests)
    for number, wanted in enumerate(alone):
        found = heard[number]
        assert isinstance(found, OcrResult)
        assert (found.token_ids, found.inputs, found.sizes) == (wanted.token_ids, wanted.inputs, wanted.sizes)
        assert ("batch" in found.environment) == (number != 2)
    assert len({result.token_ids for result in alone}) == 3 and "by itself" in caplog.text


class Drafted:
    """Drafts the tokens that pages are given; of one page others, of one none."""

    name, own_text = "given", False

    def __init__(self, alone: list[OcrResult]) -> None:
        self._of = {result.request.name: result.required_tokens for result in alone}
        self._of |= {"page3.png": self._of["page0.png"], "page5.png": ()}

    def tokens(self, request: OcrRequest, encode: object) -> tuple[int, ...]:
        return self._of[request.name]


def test_drafted_pages_read_as_they_do_alone_and_say_what_was_drafted(
    checkpoint: Checkpoint, requests: list[OcrRequest], alone: list[OcrResult]
) -> None:
    drafting = EagerEngine(checkpoint, EngineOptions(ignore_eos=True, drafts=Drafted(alone)))
    order = sorted(range(len(requests)), key=lambda number: -LIMITS[number])
    reader = BatchReader(drafting, 2, ignore_eos=True, group=4, kernels=PLAIN)
    heard = read(reader, drafting, [requests[number] for number in order])
    for place, number in enumerate(order):
        found = heard[place]
        assert isinstance(found, OcrResult) and found.token_ids == alone[number].token_ids
        environment = found.environment
        assert environment["draft"] == "given" and environment["batch"] == "2"
        assert ("draft_passes" in environment) == (number != 5)
        if LIMITS[number] == 9 and number == 0:
            assert int(environment["draft_accepted"]) > 2 * int(environment["draft_passes"])


def test_a_page_alone_is_drafted_in_a_batch_of_one_slot_and_a_poor_draft_is_warned_of_once(
    checkpoint: Checkpoint, directory: Path, requests: list[OcrRequest], alone: list[OcrResult],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    engine = EagerEngine(checkpoint, EngineOptions(ignore_eos=True, drafts=Drafted(alone)))
    settings = Settings(checkpoint=str(directory), preset="tiny", device="cpu")
    backend = EngineBackend(settings.spec("a"), settings, Opening(stores=False))
    backend._engine, backend._reader = engine, BatchReader(engine, 1, True, kernels=PLAIN)
    batches, warnings = {}, {}
    for number in (0, 5, 3, 3):  # a draft that is right, none, another page's
        found = backend.read(requests[number])
        assert found.token_ids == alone[number].token_ids
        batches[number] = found.environment.get("batch")
        warnings[number] = [record.message for record in caplog.records]
    assert batches == {0: "1", 5: None, 3: "1"} and warnings[0] == warnings[5] == []
    (warning,) = warnings[3]
    assert warning.startswith("page3.png: 25% of the drafted tokens were accepted; below 60% one page is")


def test_cancel_tells_of_what_ended_and_leaves_the_slots_usable(
    engine: EagerEngine, requests: list[OcrRequest], alone: list[OcrResult]
) -> None:
    reader, cancel = BatchReader(engine, 2, ignore_eos=True, group=1, kernels=PLAIN), threading.Event()
    heard: list[object] = []

    def stop_after_one(key: object, _: object) -> None:
        heard.append(key)
        cancel.set()

    same = [replace(request, max_new_tokens=9) for request in requests]
    with pytest.raises(Cancelled):
        reader.read(Listed(engine, same), stop_after_one, cancel)
    assert 1 <= len(heard) < len(same)
    found = read(reader, engine, [same[0]])[0]
    assert isinstance(found, OcrResult) and found.token_ids == alone[0].token_ids


GIB = 2**30


def test_slots_leave_what_vision_and_prefill_need() -> None:
    """By hand, slots of 0.09 GB: 4 GiB stay for four pages together, else 1.5 GiB for one."""
    for free, slots in ((139, 1408), (6, 16), (5, 8), (1.7, 2), (1.58, 0), (1.3, 0)):
        assert slots_in(int(free * GIB), 90 * 10**6, 16) == slots


def test_without_memory_for_a_slot_pages_are_read_one_by_one(
    engine: EagerEngine, requests: list[OcrRequest], alone: list[OcrResult], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    reader = BatchReader(engine, 4, ignore_eos=True, kernels=PLAIN)
    monkeypatch.setattr(reader, "_slots_that_fit", lambda *_: 0)
    heard = read(reader, engine, requests)
    for number, wanted in enumerate(alone):
        found = heard[number]
        assert isinstance(found, OcrResult) and found.token_ids == wanted.token_ids
        assert "batch" not in found.environment
    assert [message for message in caplog.messages if "no memory" in message] == [
        "the GPU has no memory for a slot of the batch: pages are read one by one"
    ]


def test_slots_that_could_not_be_made_ready_leave_no_memory_behind(
    engine: EagerEngine, requests: list[OcrRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Python collects no garbage meanwhile: errors are kept, and since 3.12 so are frames."""
    made: list[weakref.ref[object]] = []

    def make_ready(page: object, pixels: object, step: object, at_once: int) -> None:
        made.append(weakref.ref(step))
        assert [each() for each in made] == [None] * (len(made) - 1) + [step]
        if len(made) < 3:
            raise (DsocrError, TypeError)[len(made) - 1]("launch")

    monkeypatch.setattr(engine, "make_ready", make_ready)
    gc.disable()
    try:
        heard = read(BatchReader(engine, 4, ignore_eos=True, kernels=PLAIN), engine, requests)
    finally:
        gc.enable()
    assert len(made) == 3
    assert [number for number in heard if not isinstance(heard[number], OcrResult)] == [0, 1]


def test_what_a_failed_pass_held_is_gone_before_its_pages_are_tried_alone(
    together: FastEngine, requests: list[OcrRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    prefill, held, alive = together.prefill_pages, list[weakref.ref[torch.Tensor]](), list[bool]()

    def short_of_memory(pages: Any, at_once: int, *more: Any) -> Any:
        if len(pages) > 1:
            activations = torch.zeros(9)
            held.append(weakref.ref(activations))
            raise torch.cuda.OutOfMemoryError
        alive.append(held[-1]() is not None)
        return prefill(pages, at_once, *more)

    monkeypatch.setattr(together, "prefill_pages", short_of_memory)
    same = [replace(request, max_new_tokens=3) for request in requests[:2]]
    heard = read(BatchReader(together, 8, ignore_eos=True, kernels=PLAIN), together, same)
    assert all(isinstance(outcome, OcrResult) for outcome in heard.values()) and alive == [False, False]


def test_slots_hold_the_page_that_is_cut_most() -> None:
    """By hand: 1 x 9 tiles are 11 x 90 places, the global view 16 x 17 + 1."""
    assert most_image_tokens(preset_named("gundam"), True) == 11 * 90 + 273
    assert most_image_tokens(preset_named("base"), True) == 273
    # Without row ends six tiles of 144, and 1 x 32 tiles of the model that has so many.
    assert most_image_tokens(preset_named("default", DEEPSEEK_OCR2), False) == 6 * 144 + 257
    assert most_image_tokens(preset_named("gundam", UNLIMITED_OCR), True) == 3793


# --- the whole run --------------------------------------------------------------------------------


Lines = list[dict[str, object]]
Run = Callable[..., tuple[Report, Lines]]


def reading(directory: Path, folder: Path, patch: pytest.MonkeyPatch) -> Run:
    """Reads pages into a folder of that one, and answers with what it wrote."""
    patch.setattr(results, "RUNS_DIRECTORY", folder / "runs")
    patch.setattr(EngineBackend, "reads_many", True)

    def read_all(
        paths: list[Path], out: str, batch: int | None, resume: bool = False
    ) -> tuple[Report, Lines]:
        infer = InferSettings(max_new_tokens=5)
        settings = Settings(checkpoint=str(directory), preset="tiny", device="cpu", infer=infer)
        session = Session(settings, Opening(folder / "known"))
        backend = session.side("a")
        assert isinstance(backend, EngineBackend)
        if batch != 1:
            backend._reader = BatchReader(backend.engine, slots_for(len(paths), batch), kernels=PLAIN)
        plan = RunPlan(tuple(paths), folder / out, resume=resume, batch=batch)
        report = read_run([session], plan)
        written = (folder / out / "predictions.jsonl").read_text().splitlines()
        return report, sorted(map(json.loads, written), key=lambda line: str(line["source"]))

    return read_all


@pytest.fixture
def run(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return reading(directory, tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def one_by_one(directory: Path, pages: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Lines:
    """What a run writes that reads each page by itself."""
    with pytest.MonkeyPatch.context() as patch:
        return reading(directory, tmp_path_factory.mktemp("alone"), patch)(pages, "alone", 1)[1]


def test_a_run_together_writes_what_a_run_one_by_one_does(
    run: Run, pages: list[Path], tmp_path: Path
) -> None:
    bad = tmp_path / "page2a.png"
    bad.write_bytes(b"no picture")
    given = [*pages[:3], bad, *pages[3:]]
    apart, one_by_one = run(given, "apart", 1)
    together, in_batch = run(given, "together", 3)
    # All end at the limit of tokens: read, which is not passed.
    assert (together.stopped, together.failed) == (apart.stopped, apart.failed) == (6, 1)
    for name in ("source", "text_raw", "tokens", "finish_reason", "key", "error"):
        assert [line.get(name) for line in in_batch] == [line.get(name) for line in one_by_one], name
    assert {path.name for path in (tmp_path / "together" / "viz").iterdir()} == {
        path.name for path in (tmp_path / "apart" / "viz").iterdir()
    }
    again, lines = run(given, "together", None, resume=True)
    assert (again.stopped, again.failed, again.skipped) == (0, 1, 6)
    assert len(lines) == 7


# --- a fault of one page --------------------------------------------------------------------------

FAULTS: dict[str, type[Exception]] = {
    "prepare": AssertionError, "prefill": StopIteration, "step": RuntimeError, "result": KeyError,
}  # fmt: skip
"""Where a page may break, and with what."""


def _inject(patch: pytest.MonkeyPatch, place: str, name: str) -> None:
    """A fault that nobody foresaw, wherever the page of that name is at that place."""
    reading: list[str] = []
    taken: dict[int, tuple[str, Any]] = {}

    def wrap(owner: object, attribute: str, before: Callable[..., object]) -> None:
        real = getattr(owner, attribute)

        def call(*arguments: Any, **more: Any) -> Any:
            if before(*arguments) is True:
                raise FAULTS[place](f"a fault at {place}")
            found = real(*arguments, **more)
            if attribute == "take_in":
                taken[id(found[1])] = arguments[1].name, found[1]
            return found

        patch.setattr(owner, attribute, call)

    wrap(Engine, "take_in", lambda _, request, *__: reading.append(request.name))
    # Pages are taken in before others are prefilled.
    wrap(Engine, "prefill", lambda _, __, pixels, *___: reading.append(taken[id(pixels)][0]))
    if place == "prepare":
        wrap(Engine, "prepare", lambda _, request, *__: request.name == name)
        wrap(base, "views_of", lambda *_: reading[-1] == name)
    elif place == "prefill":
        wrap(Engine, "_prefill", lambda *_: reading[-1] == name)
    elif place == "step":
        wrap(Slots, "_queue", lambda slots: name in [_name(each) for each in slots._running.values()])
        for step in (TokenStep, Sequence):  # those of a page by itself, on a CPU and elsewhere
            wrap(step, "forward", lambda *_: reading[-1] == name)
    else:
        wrap(Engine, "result", lambda _, page, *__: page.request.name == name)


def _name(running: Any) -> str:
    return str(running.key.page.request.name)


@pytest.mark.parametrize("batch", [1, 6])
@pytest.mark.parametrize("place", FAULTS)
def test_a_fault_of_one_page_in_a_run_costs_no_other_page(
    run: Run, pages: list[Path], one_by_one: Lines, place: str, batch: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        _inject(patch, place, "page2.png")
        report, lines = run(pages, place, batch)
    assert report.failed == 1 and report.stopped == len(pages) - 1
    for line, wanted in zip(lines, one_by_one, strict=True):
        if line["source"] == "page2.png":
            assert line["error"] and f"a fault at {place}" not in str(line.get("text_raw"))
        else:
            assert (line["tokens"], line["text_raw"]) == (wanted["tokens"], wanted["text_raw"])


def test_runs_of_about_as_many_pages_have_as_many_slots() -> None:
    counts = {1: 1, 3: 4, 200: 256, 257: 384, 384: 384, 385: 512, 9999: 512}
    assert {pages: slots_for(pages, None) for pages in counts} == counts
    assert [slots_for(5, batch) for batch in (1, 2, 999)] == [1, 2, 8]


def test_one_pages_decoder_has_room_for_the_page_that_is_cut_most(
    checkpoint: Checkpoint, pages: list[Path]
) -> None:
    engine = FastEngine(checkpoint)
    engine._decoder = decoder = Mock()
    request = OcrRequest(pages[0], "gundam", max_new_tokens=7)
    with engine.modes():
        page, _ = engine.take_in(request, None, StageTimer(CPU))
    engine.start(page, 3)
    text = len(page.prompt.ids) - page.unhashed.image_token_count
    room = text + most_image_tokens(request.resolution, True), 7
    decoder.start.assert_called_once_with(page.prompt.ids, 7, 3, engine.core, room)
