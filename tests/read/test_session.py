"""A session over fake backends: what is cached, found again, waited for and reported."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dsocr_core.runs.result_cache as results_module
from dsocr_core.backends.backend import Backend, Opening
from dsocr_core.backends.on_device import engine_backend, published_backend
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT, PROJECT_ROOT
from dsocr_core.base.specs import parse_backend
from dsocr_core.base.uses import Closed
from dsocr_core.engine.fast.engine import ENGINES
from dsocr_core.engine.stage_timer import Marks
from dsocr_core.models.family import FIRST
from dsocr_core.read.session import PageCancelled, Session
from dsocr_core.reading.records import BackendName, CancelToken, Observer, OcrRequest, OcrResult
from dsocr_core.runs.result_cache import ResultCache, find_result
from dsocr_core.settings import Settings
from tests.support.results import make_result
from tests.support.sessions import session_of


class FakeBackend:
    options = SimpleNamespace(drafts=None)
    checkpoint = SimpleNamespace(model=SimpleNamespace(family=FIRST))

    def __init__(self, backend: BackendName, act: Callable[[], None] = lambda: None) -> None:
        self.backend, self.act, self.calls = backend, act, 0

    def recognize(
        self,
        request: OcrRequest,
        observer: Observer | None = None,
        cancel: CancelToken | None = None,
        prepared: object = None,
    ) -> OcrResult:
        self.calls += 1
        self.act()
        return replace(make_result(backend=self.backend), request=request)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.png"
    path.write_bytes(b"pixels")
    return path


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(results_module, "SHIPPED_RESULTS", tmp_path / "shipped")
    fakes = FakeBackend("eager"), FakeBackend("vendor")
    return session_of(Settings(device="cpu"), tmp_path / "results", *fakes)


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


CHANGES = (
    {"preset": "base"}, {"prompt": "<image>\nFree OCR."}, {"max_new_tokens": 7},
    {"no_repeat_ngram_size": 35}, {"eval_mode": True}, {"test_compress": True},
)  # fmt: skip


def test_any_other_setting_is_another_result(session: Session, page: Path, tmp_path: Path) -> None:
    request = session.settings.request(page)
    session.compare(request)
    for change in CHANGES:
        assert session.recorded(replace(request, **change)) is None, change  # type: ignore[arg-type]
    dtype = ResultCache(Settings(device="cpu", dtype="bfloat16"), tmp_path / "results")
    assert dtype.find(request) is None
    engine = ResultCache(Settings(device="cpu", engine="fast"), tmp_path / "results")
    assert engine.find(request, ("a",)) is None and engine.find(request, ("b",)) is not None


@pytest.mark.parametrize("special", [{"marks": Marks.RANGES}, {"ignore_eos": True}])
def test_what_is_read_for_a_profiler_or_a_measurement_is_not_cached(
    session: Session, page: Path, tmp_path: Path, special: dict[str, Any]
) -> None:
    fakes = FakeBackend("eager"), FakeBackend("vendor")
    measuring = session_of(session.settings, tmp_path / "results", *fakes, **special)
    request = session.settings.request(page)
    assert measuring.compare(request).a is not None
    assert session.recorded(request) is None


def test_only_what_is_cached_has_the_two_best_logits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setitem(ENGINES, "eager", lambda _, options: asked.append(options.top_two))
    monkeypatch.setattr("dsocr_core.backends.on_device.shared_checkpoint", lambda *_: None)
    for keeps in ({}, {"ignore_eos": True}, {"marks": Marks.RANGES}, {"marks": Marks.NONE}):
        opening = Opening(tmp_path, **keeps)  # type: ignore[arg-type]
        _ = engine_backend(Settings(device="cpu"), opening).engine
        asked.append(published_backend(Settings(device="cpu"), opening).vendor._top_two)
    assert asked == [True, True, *[False] * 6]


def test_a_shipped_result_greets_where_no_number_type_is_named(
    session: Session, page: Path, tmp_path: Path
) -> None:
    compared = session.compare(session.settings.request(page))
    ResultCache(session.settings).ship([compared], tmp_path / "shipped", "samples")
    other = ResultCache(Settings(device="cpu"), tmp_path / "none")
    found = other.find(other.settings.request(page))
    assert found is not None and found.recorded_at is not None
    named = ResultCache(Settings(device="cpu", dtype="bfloat16"), tmp_path / "none")
    assert named.find(named.settings.request(page)) is None


def test_shipped_results_name_no_path_of_the_machine(session: Session, tmp_path: Path) -> None:
    inside = PROJECT_ROOT / "README.md"
    result = replace(
        make_result(image=inside), environment={"checkpoint": str(EMBEDDED_CHECKPOINT), "torch": "2"}
    )
    comparison = results_module.Comparison(session.settings.request(inside), a=result)
    ResultCache(session.settings).ship([comparison], tmp_path / "shipped", "samples")
    key = ResultCache(session.settings).shipped_key(result.backend, comparison.request)
    recorded = find_result(key, (tmp_path / "shipped" / "runs").iterdir())
    assert recorded is not None and str(PROJECT_ROOT) not in repr(recorded)
    assert recorded.result.environment["checkpoint"] == "data/mini"


def failing(error: Exception) -> FakeBackend:
    def act() -> None:
        raise error

    return FakeBackend("eager", act)


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
    assert finished.a is not None and finished.a.backend == "eager"
    assert (finished.b, finished.report, finished.errors) == (None, None, {})
    session.side("a")._engine = failing(DsocrError("page.png: torn"))  # type: ignore[attr-defined]
    with pytest.raises(PageCancelled) as stopped:
        session.compare(request)
    assert stopped.value.finished.errors == {"a": "page.png: torn"}


def test_a_second_run_waits_and_hears_for_whom(session: Session, page: Path) -> None:
    waits, done = threading.Event(), threading.Event()
    heard: list[str] = []

    def second() -> None:
        session.side("b").read(
            session.settings.request(page), on_wait=lambda who: (heard.append(who), waits.set())
        )
        done.set()

    def first() -> None:
        threading.Thread(target=second, daemon=True).start()
        assert waits.wait(60)

    session.side("a")._engine = FakeBackend("eager", first)  # type: ignore[attr-defined]
    session.side("a").read(session.settings.request(page))
    assert done.wait(30)
    assert heard == ["eager on page.png"]


def test_results_are_found_without_torch() -> None:
    """The first page of the app shows a recorded sample before anything heavy is loaded."""
    code = (
        "import sys; from pathlib import Path; from dsocr_core.runs.result_cache import ResultCache; "
        "from dsocr_core.settings import PROJECT_ROOT, Settings; "
        "settings = Settings(device='cpu'); "
        "page = PROJECT_ROOT / 'data/samples/01-letter.png'; "
        "found = ResultCache(settings, Path('nowhere')).find(settings.request(page)); "
        "assert found is not None and found.report is not None and found.report.verdict == 'identical'; "
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, check=True)


# --- closed while it is used ------------------------------------------------------------------------


class Gated(Backend):
    """Reads until it is cancelled, as a backend that takes its time."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(parse_backend("eager"), settings)
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
    settings = Settings(device="cpu")
    opened: list[Gated] = []

    def opens(*_: object) -> Gated:
        opened.append(Gated(settings))
        return opened[-1]

    monkeypatch.setattr("dsocr_core.read.session.open_backend", opens)
    session = Session(settings, Opening(tmp_path))
    ends: list[BaseException] = []

    def read() -> None:
        try:
            session.compare(settings.request(page))
        except DsocrError as error:
            ends.append(error)

    session.side("a")
    thread = threading.Thread(target=read)
    thread.start()
    opened[0].began.wait(30)
    session.close()
    thread.join(30)
    assert [type(end) for end in ends] == [Cancelled]
    session.close()  # again
    for use in (session.compare, lambda request: session.load(), lambda request: session.check()):
        with pytest.raises(Closed, match="the session is closed"):
            use(settings.request(page))
    assert [backend.closed for backend in opened] == [1]
