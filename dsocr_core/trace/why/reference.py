"""B: what another engine wrote on a page, from where it was left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

from dsocr_core.backends.registry import open_backend
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.specs.kinds import EngineSpec, VendorSpec
from dsocr_core.base.untrusted import Refused, plain_text, read_bytes
from dsocr_core.base.visible import name_text
from dsocr_core.page.documents import IMAGE_SUFFIXES, Page
from dsocr_core.page.prompt import build_prompt
from dsocr_core.reading.records import VENDOR, CancelToken, OcrRequest, OcrResult
from dsocr_core.runs.importers.own_run import is_own_run
from dsocr_core.runs.results import Readings, readings, readings_in
from dsocr_core.runs.store import SEED_LOCATION, History
from dsocr_core.runs.texts.prediction import without_print
from dsocr_core.settings import Settings
from dsocr_core.trace.why.match import Other

TEXTS = (".md", ".mmd", ".txt")
_UNQUANTISED = ("eager", "fast", VENDOR)
"""Setting of other engines, of which only what they say is known."""
_LIMIT = 16 * 1024 * 1024
_MOST_FILES = 20_000


class OtherError(DsocrError):
    """B cannot be read; names what was given and what to give."""


def of_result(result: OcrResult, name: str = "") -> Other:
    """B from a result of any backend.

    Its prompt is known where its inputs are: what a server or a program makes of ours nobody has seen.
    """
    request = result.request
    return Other(
        name or result.backend,
        result.text_raw,
        result.token_ids,
        result.finish_reason,
        result.inputs,
        None if result.inputs is None else build_prompt(request.prompt, request.template),
        result.environment.get("quantisation") or ("none" if result.backend in _UNQUANTISED else None),
    )


def read_other(given: str, page: str, history: str, backend: str | None = None) -> Other:
    """B on the page of that name: a text, a run directory, or a run of the history.

    `history` is where a run's id is looked up; `backend` chooses among the backends of a run. Raises
    DsocrError.
    """
    path = Path(given)
    if path.is_file():
        return _of_file(path)
    if path.is_dir():
        if is_own_run(path):
            return _of_readings(readings_in(path), given, page, backend)
        return _of_directory(path, page)
    return _of_run(history, given, page, backend)


def _of_file(path: Path) -> Other:
    if path.suffix.lower() not in TEXTS:
        raise OtherError(f"{path}: not a text; give a run or a file that ends in {', '.join(TEXTS)}")
    try:
        content = read_bytes(path, _LIMIT, follow_links=True)
    except (Refused, OSError) as error:
        raise OtherError(f"{path}: {error}") from error
    return Other(path.name, without_print(plain_text(content, "replace")))


def _of_directory(directory: Path, page: str) -> Other:
    """Find a text file below a directory that is named like the image."""
    if Path(page).suffix.lower() not in IMAGE_SUFFIXES:
        raise OtherError(
            f"{directory}: no name says that a text is of {page}; give a run or the text itself, "
            "or of a PDF's page folder:DIRECTORY"
        )
    stem = Path(page).stem
    texts = [
        file
        for file in islice(sorted(directory.rglob("*")), _MOST_FILES)
        if file.suffix.lower() in TEXTS and file.stem.removesuffix("_det") == stem and file.is_file()
    ]
    if texts:
        # The raw text with its boxes says more than the clean one.
        return _of_file(max(texts, key=lambda file: file.stem.endswith("_det")))
    raise OtherError(f"{directory}: has nothing of {page}; give a run directory, or the page's own text")


def _of_run(location: str, run_id: str, page: str, backend: str | None) -> Other:
    others = [SEED_LOCATION] if location != str(SEED_LOCATION) else []
    with History(location, also=others) as history:
        if run_id not in history:
            raise OtherError(
                f"'{run_id}' is no file or directory, and the history at {location} has no run of that name; "
                "see: dsocr history list"
            )
        read = readings(history, run_id, with_steps=False)
    return _of_readings(read, run_id, page, backend)


def _of_readings(read: Readings, run: str, page: str, backend: str | None) -> Other:
    """B of a run; of its backends the chosen one."""
    named = [
        key
        for key, request in read.requests.items()
        if backend in (None, key[1]) and page in _names(key[0], request)
    ]
    if not named:
        pages = sorted({page for page, _ in read.requests})
        raise OtherError(f"run {run} has no page {page}; it has {', '.join(pages[:5])}")
    if len({key[1] for key in named}) > 1:
        backends = ", ".join(str(key[1]) for key in named)
        raise OtherError(f"run {run} has {page} by {backends}: choose with --backend")
    key = named[0]
    if key not in read.results:
        raise OtherError(f"run {run} has no text of {page}: {read.failures[key]}")
    return of_result(read.results[key], f"{key[1] or run} of {run}")


def _names(page: str, request: OcrRequest) -> Iterator[str]:
    """List the names of a recorded page: its name in the run, its source, its file."""
    for name in (page, request.source, name_text(request.image)):
        yield name
        yield Path(name).name


@contextmanager
def asked(
    settings: Settings,
    cancel: CancelToken | None = None,
    on_wait: Callable[[str], None] | None = None,
    together: bool = False,
) -> Iterator[Callable[[Page], Other]]:
    """B of the settings, opened once for all pages: gives it on one; `together` where a prompt has several.

    Raises DsocrError, also for what is wrong for every page, and Cancelled.
    """
    spec = settings.spec("b")
    backend = open_backend(spec, settings)
    try:
        if together:
            backend.check_together()
        backend.check()

        def other_of(page: Page) -> Other:
            request = backend.settings.request(page.path, page.source, page.more)
            result = backend.read(request, cancel=cancel, on_wait=on_wait)
            # A result is called as a person likes; what has the checkpoint's own weights is told by its kind.
            own = "none" if isinstance(spec, EngineSpec | VendorSpec) else None
            return replace(of_result(result), quantisation=result.environment.get("quantisation") or own)

        yield other_of
    finally:
        backend.close()
