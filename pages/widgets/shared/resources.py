"""Everything the app holds between reruns: the only `st.cache_*` of the project."""

from __future__ import annotations

import os
import threading
from argparse import ArgumentError
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import streamlit as st
from PIL import Image
from streamlit.runtime import exists, get_instance
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.page import documents
from dsocr_core.reading.clean import jpeg
from dsocr_core.settings import Settings, history_location
from pages.widgets.shared.runner import Runner

if TYPE_CHECKING:
    from dsocr_core.reading.parity import Comparison
    from dsocr_core.reading.records import OcrRequest
    from dsocr_core.review.review import Review
    from dsocr_core.runs.history import History

T = TypeVar("T")
_VIEW_SIDE, _THUMBNAIL_SIDE = 2400, 160
"""Longest side in pixels of the picture the browser gets; boxes stay in page pixels."""
EXAMPLES = "examples"
"""Key of the switch that hides the runs that come with the project, on every page of a tab."""


@st.cache_resource(show_spinner=False)
def runner() -> Runner:
    """The runner that all browser tabs share. Torch is imported by its first pipeline, not here."""
    return Runner()


@st.cache_resource(max_entries=4, show_spinner=False)
def shipped(key: str, _settings: Settings, _request: OcrRequest) -> Comparison | None:
    """Find the readings of a page that come with the samples, whatever this machine has read since.

    `key` is their `run_key`. Raises DsocrError.
    """
    from dsocr_core.runs.result_cache import SHIPPED_RESULTS, ResultCache

    return ResultCache(_settings, SHIPPED_RESULTS).find(_request)


# --- the history, and what is made of it --------------------------------------------------------------


def history() -> History:
    """All recorded runs, for all browser tabs; the caller brings it up to date. Raises DsocrError.

    Where the settings record none, those of the usual storage. With the runs that come with the project,
    unless this tab hides them; threads that belong to no tab see them.
    """
    settings = base_settings()
    hidden = get_script_run_ctx(suppress_warning=True) and not st.session_state.get(EXAMPLES, True)
    return _history(history_location(settings if settings.history else Settings()), not hidden)


@st.cache_resource(show_spinner="Loading the history")
def _history(location: str, examples: bool) -> History:
    from dsocr_core.runs.history import SEED_LOCATION, History

    return History(location, *([SEED_LOCATION] if examples else []))


def review(key: str) -> Review:
    """The review that `key` names, for all browser tabs, until a file of its runs changes.

    Raises DsocrError, also when a run of it is gone or damaged by now.
    """
    from dsocr_core.review.keys import parse_key
    from dsocr_core.review.review import open_review

    past, (run_a, run_b, backend_a, backend_b) = history(), parse_key(key)

    def opened() -> Review:
        # No element: the page drawn anew would lack it, and what is below would move.
        with st.spinner("Opening the review", show_time=True):
            return open_review(past, run_a, run_b, backend_a, backend_b)

    return cached("review", (past, past.version(run_a), past.version(run_b or run_a)), key, opened, most=4)


def cached(name: str, state: Hashable, of: Hashable, make: Callable[[], T], most: int = 8) -> T:
    """Value that `make` gives for `of`, cached for all tabs while `state` is the same.

    The cache has the last `most` values of a name. No caller changes a value: all tabs share it.
    """
    answers, key = _answers().setdefault(name, {}), (state, of)
    last = answers.pop(key, None)
    made: T = make() if last is None else last
    answers[key] = made  # as the newest
    for old in list(answers)[:-most]:
        answers.pop(old, None)
    return made


@st.cache_resource(show_spinner=False)
def _answers() -> dict[str, dict[Hashable, Any]]:
    """Values of `cached`, by name, the oldest first."""
    return {}


def soon(of: Hashable, make: Callable[[], T]) -> Future[T]:
    """Start `make` in the background, once for all browser tabs. The newest thousand are cached."""
    return cached("soon", None, of, lambda: prefetcher().submit(make), most=1000)


@st.cache_resource(show_spinner=False)
def prefetcher() -> Executor:
    """One thread that prepares what the pages will need next."""
    return ThreadPoolExecutor(1, "prefetch")


@st.cache_resource(show_spinner=False)
def warm_up() -> None:
    """Import, once the first page is drawn, what the next ones need: charts, tables, the history."""

    def load() -> None:
        with suppress(DsocrError):
            history()
        import plotly.graph_objects  # noqa: F401

    if exists():  # a page that runs without a server has no next one
        threading.Thread(target=load, name="warm up", daemon=True).start()


# --- settings -------------------------------------------------------------------------------------


def base_settings() -> Settings:
    """The settings that the sidebar starts from: the YAML file that DSOCR_CONFIG names, else the defaults.

    The same keys as the command line's `--config`. Raises DsocrError.
    """
    file = os.environ.get("DSOCR_CONFIG")
    return _read_settings(file, _changed_ns(Path(file))) if file else Settings()


def usable_settings() -> Settings:
    """These, or the defaults while their file is wrong, which Compare says where its settings are drawn."""
    with suppress(DsocrError):
        return base_settings()
    return Settings()


@st.cache_data(max_entries=2, show_spinner=False)
def _read_settings(file: str, changed_ns: int) -> Settings:
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Settings, None)
    try:
        values = parser.instantiate(parser.parse_path(file))
    except (
        ArgumentError, OSError, TypeError, ValueError, ArithmeticError, RecursionError, DsocrError
    ) as error:  # fmt: skip
        raise DsocrError(f"{file}: {' '.join(str(error).split())[:300]}") from error
    return Settings(**{name: values[name] for name in Settings.__dataclass_fields__})


def _changed_ns(path: Path) -> int:
    """Say when the file last changed. Raises DsocrError when it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise DsocrError(f"{path.name}: cannot be read ({error.strerror})") from error


def allowed_roots() -> tuple[Path, ...]:
    """Folders that paths typed into the app may lie in: the project, and DSOCR_ROOTS (like PATH)."""
    extra = [Path(root) for root in os.environ.get("DSOCR_ROOTS", "").split(os.pathsep) if root.strip()]
    return (PROJECT_ROOT, *extra)


# --- pictures -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Picture:
    """A page or a part of it as JPEG, and the page's own size in pixels."""

    content: bytes
    width: int
    height: int


def encoded(picture: Image.Image, side: int, quality: int) -> Picture:
    """The picture, its longest side at most `side`."""
    width, height = picture.size
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    return Picture(jpeg(picture, quality=quality, subsampling=0), width, height)


@st.cache_data(max_entries=48, show_spinner=False)
def _picture(path: str, changed_ns: int, side: int, quality: int, max_pixels: int) -> Picture:
    return encoded(documents.load_image(Path(path), max_pixels), side, quality)


def page_picture(path: Path, max_pixels: int) -> Picture:
    """The page as the model gets it, upright and RGB. Raises DsocrError."""
    return _picture(str(path), _changed_ns(path), _VIEW_SIDE, 92, max_pixels)


def thumbnail(path: Path) -> Picture:
    """A small picture of the page. Raises DsocrError."""
    return _picture(str(path), _changed_ns(path), _THUMBNAIL_SIDE, 80, Settings().max_pixels)


def empty_sheet() -> Picture:
    return encoded(Image.new("RGB", (8, 8), "white"), 8, 80)


def picture_url(picture: Picture, slot: str) -> str:
    """An address of the picture for components, which have no `st.image` of their own.

    The server holds the bytes once, by content; a browser fetches each address once. `slot` names
    the spot on the page, so that a picture replaced there is forgotten.
    """
    return get_instance().media_file_mgr.add(picture.content, "image/jpeg", f"dsocr.{slot}")
