"""B: what another engine wrote on a page, from where it was left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsocr_core.backend_specs.kinds import EngineSpec, VendorSpec
from dsocr_core.backends.registry import open_backend
from dsocr_core.errors import DsocrError
from dsocr_core.history.results import readings
from dsocr_core.history.store import SEED_LOCATION, History
from dsocr_core.inputs.prompt import build_prompt
from dsocr_core.outputs.artifacts import RESULT
from dsocr_core.outside.untrusted import Refused, parse_json, plain_text, read_bytes
from dsocr_core.outside.visible import name_text
from dsocr_core.predictions.vllm_scripts import without_print
from dsocr_core.records import VENDOR, CancelToken, OcrRequest, OcrResult, result_from_jsonable
from dsocr_core.settings import Settings
from dsocr_core.why.match import Other

TEXTS = (".md", ".mmd", ".txt")
_RUN_DOCUMENT = "run.json"
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
    """B on the page of that name: a text or result file, a run directory, or a run of the history.

    `history` is where a run's id is looked up; `backend` chooses among the backends of a run. Raises
    DsocrError.
    """
    path = Path(given)
    if path.is_file():
        return _of_file(path)
    if path.is_dir():
        if (path / _RUN_DOCUMENT).is_file():
            directory = path.resolve()
            return _of_run(str(directory.parent.parent), directory.name, page, backend)
        return _of_directory(path, page, backend)
    return _of_run(history, given, page, backend)


def _of_file(path: Path) -> Other:
    try:
        content = read_bytes(path, _LIMIT, follow_links=True)
    except (Refused, OSError) as error:
        raise OtherError(f"{path}: {error}") from error
    if path.suffix.lower() in TEXTS:
        return Other(path.name, without_print(plain_text(content, "replace")))
    try:
        return of_result(result_from_jsonable(parse_json(content, any_number=True)), path.name)
    except (Refused, ValueError, LookupError, TypeError, AttributeError) as error:
        raise OtherError(
            f"{path}: neither a result of this project nor a text; give a {RESULT} or a file that ends in "
            f"{', '.join(TEXTS)}"
        ) from error


def _of_directory(directory: Path, page: str, backend: str | None) -> Other:
    """Find the results below a directory that is named by the page; else of a text file named like it."""
    stem = Path(page).stem
    texts: list[Path] = []
    for number, file in enumerate(sorted(directory.rglob("*"))):
        if number > _MOST_FILES:
            break
        if file.name == RESULT and (found := _result(file)) is not None:
            if found.request.name == page and backend in (None, found.backend):
                return of_result(found)
        elif file.suffix.lower() in TEXTS and file.stem.removesuffix("_det") == stem and file.is_file():
            texts.append(file)
    if texts:
        # The raw text with its boxes says more than the clean one.
        return _of_file(max(texts, key=lambda file: file.stem.endswith("_det")))
    raise OtherError(f"{directory}: has nothing of {page}; give a run directory, or the page's own text")


def _result(file: Path) -> OcrResult | None:
    try:
        data: Any = parse_json(read_bytes(file, _LIMIT), any_number=True)
        return result_from_jsonable(data)
    except (Refused, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _of_run(location: str, run_id: str, page: str, backend: str | None) -> Other:
    others = [SEED_LOCATION] if location != str(SEED_LOCATION) else []
    with History(location, also=others) as history:
        if run_id not in history:
            raise OtherError(
                f"'{run_id}' is no file or directory, and the history at {location} has no run of that name; "
                "see: dsocr history list"
            )
        read = readings(history, run_id, with_steps=False, with_times=False)
        named = [
            key
            for key, request in read.requests.items()
            if backend in (None, key[1]) and page in _names(key[0], request)
        ]
        if not named:
            pages = sorted({page for page, _ in read.requests})
            raise OtherError(f"run {run_id} has no page {page}; it has {', '.join(pages[:5])}")
        if len({key[1] for key in named}) > 1:
            backends = ", ".join(str(key[1]) for key in named)
            raise OtherError(f"run {run_id} has {page} by {backends}: choose with --backend")
        key = named[0]
        if key not in read.results:
            raise OtherError(f"run {run_id} has no text of {page}: {read.failures[key]}")
        return of_result(read.results[key], f"{key[1] or run_id} of {run_id}")


def _names(page: str, request: OcrRequest) -> Iterator[str]:
    """List the names of a recorded page: its name in the run, its source, its file."""
    for name in (page, request.source, name_text(request.image)):
        yield name
        yield Path(name).name


@contextmanager
def asked(
    settings: Settings, cancel: CancelToken | None = None, on_wait: Callable[[str], None] | None = None
) -> Iterator[Callable[[Path, str], Other]]:
    """B of the settings, opened once for all pages: gives it on a page of that file and name.

    Raises DsocrError, also for what is wrong for every page, and Cancelled.
    """
    spec = settings.spec("b")
    backend = open_backend(spec, settings)
    try:
        backend.check()

        def other_of(path: Path, name: str) -> Other:
            result = backend.read(backend.settings.request(path, name), cancel=cancel, on_wait=on_wait)
            # A result is called as a person likes; what has the checkpoint's own weights is told by its kind.
            own = "none" if isinstance(spec, EngineSpec | VendorSpec) else None
            return replace(of_result(result), quantisation=result.environment.get("quantisation") or own)

        yield other_of
    finally:
        backend.close()
