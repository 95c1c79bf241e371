"""Who reads what is asked for: one by one, or together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.engine.source import Source
from dsocr_core.reading.records import OcrRequest, OcrResult, SilentObserver
from dsocr_core.serve.readers import Job, OneByOne, Together
from dsocr_core.settings import Settings
from tests.support.results import make_result


class Outcomes:
    """What jobs ended with."""

    def __init__(self) -> None:
        self.ended: dict[str, object] = {}
        self.begun: list[str] = []
        self._came = threading.Condition()

    def job(self, name: str, **request: Any) -> Job:
        def end(outcome: OcrResult | BaseException) -> None:
            with self._came:
                self.ended[name] = outcome
                self._came.notify_all()

        asked = OcrRequest(Path(name), preset="tiny", **request)
        return Job(asked, SilentObserver(), lambda: self.begun.append(name), end)

    def wait(self, count: int) -> dict[str, object]:
        with self._came:
            assert self._came.wait_for(lambda: len(self.ended) >= count, timeout=30)
            return dict(self.ended)


class FakeLocal:
    """Stands for our engines; `read_many` gives a result for what it takes."""

    settings = Settings(device="cpu")

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.runs: list[list[str]] = []
        self.fails: Callable[[str], BaseException | None] = lambda name: None

    def prepare(self, request: OcrRequest) -> str:
        if request.name == "broken":
            raise DsocrError("broken: no image")
        return "prepared"

    def read(self, request: OcrRequest, observer: object, cancel: Any) -> OcrResult:
        while not self.gate.wait(0.01):
            if cancel.is_set():
                raise Cancelled
        if error := self.fails(request.name):
            raise error
        return replace(make_result(), request=request)

    def read_many(self, source: Source, on_result: Any, slots: int, cancel: Any) -> None:
        assert slots == 4
        self.runs.append([])
        held = []
        while not (source.exhausted and not held):
            if cancel.is_set():
                raise Cancelled
            work = source.take(0.01)
            if work is not None:
                if error := self.fails(work.request.name):
                    raise error
                self.runs[-1].append(work.request.name)
                held.append(work)
            elif held and self.gate.is_set():
                done = held.pop(0)
                on_result(done.key, replace(make_result(), request=done.request))


@pytest.fixture
def local() -> FakeLocal:
    return FakeLocal()


def test_pages_are_read_in_the_order_they_came(local: FakeLocal) -> None:
    outcomes, reader = Outcomes(), OneByOne(local)  # type: ignore[arg-type]
    for name in ("a", "b", "c"):
        reader.submit(outcomes.job(name))
    local.gate.set()
    assert list(outcomes.wait(3)) == ["a", "b", "c"] == outcomes.begun
    reader.close()


def test_a_page_nobody_waits_for_is_not_begun_and_one_being_read_is_stopped(local: FakeLocal) -> None:
    outcomes, reader = Outcomes(), OneByOne(local)  # type: ignore[arg-type]
    first, second = outcomes.job("first"), outcomes.job("second")
    reader.submit(first)
    reader.submit(second)
    second.cancel.set()
    first.cancel.set()
    ended = outcomes.wait(2)
    assert {type(outcome) for outcome in ended.values()} == {Cancelled}
    assert "second" not in outcomes.begun
    reader.close()


def test_an_error_is_its_page_s_and_the_next_is_read(local: FakeLocal) -> None:
    outcomes, reader = Outcomes(), OneByOne(local)  # type: ignore[arg-type]
    local.gate.set()
    local.fails = lambda name: RuntimeError("cuda") if name == "bad" else None
    reader.submit(outcomes.job("bad"))
    reader.submit(outcomes.job("good"))
    ended = outcomes.wait(2)
    assert isinstance(ended["bad"], RuntimeError) and isinstance(ended["good"], OcrResult)
    reader.close()


def test_pages_join_a_batch_that_runs(local: FakeLocal) -> None:
    outcomes, reader = Outcomes(), Together(local, 4)  # type: ignore[arg-type]
    for name in ("a", "b"):
        reader.submit(outcomes.job(name, max_new_tokens=9))
    while len(outcomes.begun) < 2:
        pass
    reader.submit(outcomes.job("c", max_new_tokens=5))
    local.gate.set()
    assert set(outcomes.wait(3)) == {"a", "b", "c"}
    assert local.runs[0] == ["a", "b", "c"]
    reader.close()


def test_a_page_that_needs_larger_slots_waits_for_the_end_of_the_batch(local: FakeLocal) -> None:
    outcomes, reader = Outcomes(), Together(local, 4)  # type: ignore[arg-type]
    local.gate.set()
    reader.submit(outcomes.job("small", max_new_tokens=9))
    reader.submit(outcomes.job("large", max_new_tokens=500))
    reader.submit(outcomes.job("small again", max_new_tokens=9))
    outcomes.wait(3)
    assert local.runs[:2] == [["small"], ["large", "small again"]]
    reader.close()


def test_a_page_that_cannot_be_opened_and_one_nobody_waits_for_take_no_slot(local: FakeLocal) -> None:
    outcomes, reader = Outcomes(), Together(local, 4)  # type: ignore[arg-type]
    gone = outcomes.job("gone")
    gone.cancel.set()
    for job in (outcomes.job("broken"), gone, outcomes.job("good")):
        reader.submit(job)
    local.gate.set()
    ended = outcomes.wait(3)
    assert isinstance(ended["broken"], DsocrError) and isinstance(ended["gone"], Cancelled)
    assert isinstance(ended["good"], OcrResult) and outcomes.begun == ["good"]
    reader.close()


def test_a_batch_that_fails_is_told_to_its_pages_and_a_new_one_begins(local: FakeLocal) -> None:
    outcomes, reader = Outcomes(), Together(local, 4)  # type: ignore[arg-type]
    local.fails = lambda name: RuntimeError("cuda") if name == "bad" else None
    reader.submit(outcomes.job("first"))
    reader.submit(outcomes.job("bad"))
    ended = outcomes.wait(2)
    assert {type(outcome) for outcome in ended.values()} == {RuntimeError}
    local.gate.set()
    reader.submit(outcomes.job("next"))
    assert isinstance(outcomes.wait(3)["next"], OcrResult)
    reader.close()


@pytest.mark.parametrize("kind", [OneByOne, lambda local: Together(local, 4)], ids=["one", "together"])
def test_closed_it_ends_what_it_reads_and_tells_those_who_wait(local: FakeLocal, kind: Any) -> None:
    outcomes, reader = Outcomes(), kind(local)
    reader.submit(outcomes.job("read", max_new_tokens=5))
    while not outcomes.begun:
        pass
    for name, limit in (("larger", 500), ("queued", 5)):
        reader.submit(outcomes.job(name, max_new_tokens=limit))
    reader.close()
    reader.submit(outcomes.job("late"))
    ended = outcomes.wait(4)
    assert {name: type(outcome) for name, outcome in ended.items()} == dict.fromkeys(
        ("read", "larger", "queued", "late"), Cancelled
    )
