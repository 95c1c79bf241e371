"""B: what another engine wrote on a page, from where it was left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dsocr_core.errors import DsocrError
from dsocr_core.history.store import SEED_LOCATION, History
from dsocr_core.inputs.prompt import build_prompt
from dsocr_core.outputs.artifacts import RESULT
from dsocr_core.outside.untrusted import Refused, parse_json, plain_text, read_bytes
from dsocr_core.predictions.vllm_scripts import without_print
from dsocr_core.records import VENDOR, OcrResult, result_from_jsonable
from dsocr_core.review.read_with import policy_of
from dsocr_core.review.recorded import load, page_side, side_inputs
from dsocr_core.why.match import Other

TEXTS = (".md", ".mmd", ".txt")
_RUN_DOCUMENT = "run.json"
_UNQUANTISED = ("eager", "fast", VENDOR)
"""Of other engines only what they say is known."""
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
    """Of the results below a directory that is named by the page; else of a text file named like it."""
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
        recorded = load(history, [run_id])
        keys = [key for key in recorded.images if backend in (None, key[1])]
        named = [key for key in keys if page in _names(recorded.images[key])]
        if not named:
            pages = sorted({key[2] for key in recorded.images})
            raise OtherError(f"run {run_id} has no page {page}; it has {', '.join(pages[:5])}")
        if len({key[1] for key in named}) > 1:
            backends = ", ".join(str(key[1]) for key in named)
            raise OtherError(f"run {run_id} has {page} by {backends}: choose with --backend")
        key = named[0]
        side = page_side(recorded, "b", key, history)
        if side.text_raw is None:
            raise OtherError(f"run {run_id} has no text of {page}: {side.error or 'not recorded'}")
        inputs = side_inputs(recorded, key, side, history)
        template = policy_of(inputs.record, key[1]).get("template", "plain")
        finish = side.finish_reason if side.finish_reason in ("eos", "length") else None
        return Other(
            f"{key[1] or run_id} of {run_id}",
            side.text_raw,
            side.token_ids,
            finish,  # type: ignore[arg-type]
            inputs.inputs,
            None if inputs.inputs is None or inputs.prompt is None else build_prompt(inputs.prompt, template),
            "none" if key[1] in _UNQUANTISED else None,
        )


def _names(row: dict[str, Any]) -> Iterator[str]:
    """What a recorded page may be called: its number in the run, its source, its file."""
    for name in ("page", "source", "path"):
        if isinstance(value := row.get(name), str):
            yield value
            yield Path(value).name
