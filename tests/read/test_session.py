"""A session over stand-ins: what is cached, found again, waited for and reported."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dsocr_core.runs.result_cache as results_module
from data.samples.record import ship
from dsocr_core.backends.backend import Backend, Opening
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT, PROJECT_ROOT
from dsocr_core.base.specs import parse_backend
from dsocr_core.base.uses import Closed, Uses
from dsocr_core.engine.stage_timer import Marks
from dsocr_core.read.session import PageCancelled, Session
from dsocr_core.reading.records import CancelToken, OcrRequest, OcrResult
from dsocr_core.runs.result_cache import ResultCache, find_result
from dsocr_core.settings import Settings
from tests.support.results import make_result
from tests.support.sessions import StandIn, session_of


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.png"
    path.write_bytes(b"pixels")
    return path


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(results_module, "SHIPPED_RESULTS", tmp_path / "shipped")
    return session_of(Settings(device="cpu"), tmp_path / "results", StandIn(), StandIn("vendor"))


def test_a_comparison_is_found_again_under_any_name_of_the_page(session: Session, page: Path) -> None:
    request = session.settings.request(page)
    assert session.recorded(request) is None
    ran = session.compare(request)
    assert ran.a and ran.b and ran.report and ran.report.verdict == "identical"
    assert (ran.recorded_at, ran.errors) == (None, {})
    copy = page.with_name("copy.png")
    copy.write_bytes(page.read_bytes())
    for name in (page, copy):
        found = session.recorded(session.settings.request(name))
        assert found is not None and found.recorded_at is not None
        assert found.a is not None and found.a.request.image == name
        assert replace(found.a, request=request) == ran.a


def test_any_other_setting_is_another_result(session: Session, page: Path, tmp_path: Path) -> None:
    request = session.settings.request(page)
    session.compare(request)
    changes: tuple[dict[str, Any], ...] = (
        {"preset": "base"}, {"prompt": "<image>\nFree OCR."}, {"max_new_tokens": 7},
        {"no_repeat_ngram_size": 35}, {"eval_mode": True}, {"test_compress": True},
    )  # fmt: skip
    for change in changes:
        assert session.recorded(replace(request, **change)) is None, change
    for own in (Settings(device="cpu", dtype="bfloat16"), Settings(device="cpu", precision="fp8-kv")):
        assert ResultCache(own, tmp_path / "results").find(request) is None
    engine = ResultCache(Settings(device="cpu", engine="fast"), tmp_path / "results")
    assert engine.find(request, ("a",)) is None and engine.find(request, ("b",)) is not None


@pytest.mark.parametrize("special", [{"marks": Marks.RANGES}, {"ignore_eos": True}])
def test_what_is_read_for_a_profiler_or_a_measurement_is_not_cached(
    session: Session, page: Path, tmp_path: Path, special: dict[str, Any]
) -> None:
    measuring = session_of(session.settings, tmp_path / "results", StandIn(), StandIn("vendor"), **special)
    request = session.settings.request(page)
    assert measuring.compare(request).a is not None and session.recorded(request) is None


def test_a_shipped_result_greets_where_no_number_type_is_named_and_names_no_path_of_the_machine(
    session: Session, page: Path, tmp_path: Path
) -> None:
    compared = session.compare(session.settings.request(page))
    inside = PROJECT_ROOT / "README.md"
    environment = {"checkpoint": str(EMBEDDED_CHECKPOINT), "torch": "2"}
    result = replace(make_result(image=inside), environment=environment)
    other = results_module.Comparison(session.settings.request(inside), a=result)
    ship(session.settings, [compared, other], tmp_path / "shipped", "samples")
    for named, known in (({}, True), ({"dtype": "bfloat16"}, False)):
        elsewhere = ResultCache(Settings(device="cpu", **named), tmp_path / "none")  # type: ignore[arg-type]
        assert (elsewhere.find(elsewhere.settings.request(page)) is not None) == known
    key = ResultCache(session.settings).keys(result.backend, other.request).shipped
    recorded = find_result(key, (tmp_path / "shipped" / "runs").iterdir())
    assert recorded is not None and str(PROJECT_ROOT) not in repr(recorded)
    assert recorded.result.environment["checkpoint"] == "data/mini"


def failing(error: Exception) -> StandIn:
    def act(_: OcrRequest) -> None:
        raise error

    return StandIn(act=act)


def test_what_one_side_gave_outlasts_the_others_error_or_cancel(session: Session, page: Path) -> None:
    request = session.settings.request(page)
    session.side("b")._vendor = failing(DsocrError("page.png: the worker died"))  # type: ignore[attr-defined]
    comparison = session.compare(request)
    assert comparison.a is not None and comparison.b is None and comparison.report is None
    assert comparison.errors == {"b": "page.png: the worker died"}
    session.side("b")._vendor = failing(Cancelled())  # type: ignore[attr-defined]
    with pytest.raises(PageCancelled) as stopped:
        session.compare(request)
    finished = stopped.value.finished
    assert finished.a is not None and (finished.b, finished.report, finished.errors) == (None, None, {})
    session.side("a")._engine = failing(DsocrError("page.png: torn"))  # type: ignore[attr-defined]
    with pytest.raises(PageCancelled) as stopped:
        session.compare(request)
    assert stopped.value.finished.errors == {"a": "page.png: torn"}


class Gated(Backend):
    """Reads until it is cancelled, as a backend that takes its time."""

    def __init__(self) -> None:
        super().__init__(parse_backend("eager"), Settings(device="cpu"))
        self.began, self.reading, self.closed = threading.Event(), False, 0

    def read(self, request: OcrRequest, *_: object) -> OcrResult:
        cancel = _[1]
        assert isinstance(cancel, CancelToken)
        self.reading = True
        self.began.set()
        cancel.wait()
        self.reading = False
        raise Cancelled

    def close(self) -> None:
        assert not self.reading
        self.closed += 1


def test_closing_cancels_what_another_thread_reads_and_opens_nothing_afterwards(
    tmp_path: Path, page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated, ends = Gated(), list[type[BaseException]]()
    monkeypatch.setattr("dsocr_core.read.session.open_backend", lambda *_: gated)
    session = Session(Settings(device="cpu"), Opening(tmp_path))
    request = session.settings.request(page)

    def read() -> None:
        try:
            session.compare(request)
        except DsocrError as error:
            ends.append(type(error))

    thread = threading.Thread(target=read)
    thread.start()
    gated.began.wait(30)
    session.close()
    thread.join(30)
    session.close()  # again
    assert (ends, gated.closed) == ([Cancelled], 1)
    for use in (session.compare, lambda request: session.load(), lambda request: session.check()):
        with pytest.raises(Closed, match="the session is closed"):
            use(request)


def test_what_failed_because_of_the_close_holds_nothing_of_the_model() -> None:
    uses = Uses("the session")
    with pytest.raises(Closed, match="was closed; open it anew") as found, uses.use():
        uses.end()
        raise ValueError
    assert found.value.__cause__ is not None and found.value.__cause__.__traceback__ is None
