"""Run directories of `run` and `compare`, as `--out` names them: each call that wrote into one is a run.

A line of `predictions.jsonl` says which call it is from, `records/<id>.json` what describes the call, and the
page's folder has the whole result; so the run is the one that `--save` records, under the same id. Older
directories have neither: they give what the line and `info.json` say, under a hash of their lines.
"""

from __future__ import annotations

import contextlib
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from dsocr_core.errors import DsocrError
from dsocr_core.history.importers.gallery import page_files
from dsocr_core.history.importers.imported import ImportedRun, content_id
from dsocr_core.history.importers.reading import (
    FILE_TIME_NOTE,
    TEXT_LIMIT,
    as_json,
    as_text,
    digest,
    file_time,
    has_link,
    mapping,
    number,
    text_or_none,
    whole,
)
from dsocr_core.history.importers.run_lines import ROOTS, Files, Line, lines_of, names_of, roots_of
from dsocr_core.history.readings import folded, reading_table, timing_rows
from dsocr_core.history.record import RunRecord, about_results, agreed, tolerance_of
from dsocr_core.history.rows import Row, box_rows, not_compared_row, parity_row
from dsocr_core.history.schema import rows_to_table
from dsocr_core.history.upgrade.migrations import migrate
from dsocr_core.markup import page_boxes, parse
from dsocr_core.models.family import all_stages, inside_prefill
from dsocr_core.outputs.artifacts import BACKENDS, INFO, PREDICTIONS, RECORDS, RESULT, RESULT_IMAGE
from dsocr_core.outputs.clean import FOLDER as CLEAN
from dsocr_core.outputs.clean import MOST_BYTES, clean_path
from dsocr_core.outputs.parity import parity
from dsocr_core.outside.untrusted import Refused
from dsocr_core.parity_records import Tolerance
from dsocr_core.records import BackendName, OcrResult, PageFile, result_from_jsonable
from dsocr_core.stages import Stage

OWN_FOLDERS = ("viz", "vendor", BACKENDS, CLEAN, RECORDS, "pages")
"""Folders of a run directory that are part of it."""

_RESULT_LIMIT = 16 * 1024 * 1024
_MARK_BYTES = 4096
_FOREIGN = (
    DsocrError, LookupError, TypeError, ValueError, AttributeError, OverflowError, ArithmeticError,
)  # fmt: skip
"""What a result that is none raises where it is taken apart."""


def is_run_directory(directory: Path) -> bool:
    """Whether a folder's predictions begin as ours do: with the page's name and the backend."""
    for name in ROOTS:
        file = directory / name / PREDICTIONS
        if not file.is_file():  # a pipe of that name would be waited on for ever
            continue
        with contextlib.suppress(OSError), file.open("rb") as handle:
            begin = handle.read(_MARK_BYTES)
            if (
                begin.startswith(b'{"image": "')
                and b'"source": "' in begin
                and (b'"backend": "' in begin or b'"road": "' in begin)
            ):
                return True
    return False


def read_run_directory(directory: Path) -> list[ImportedRun]:
    """The runs in a directory for which `is_run_directory` is true, in the order of their first lines.

    A file that cannot be taken is named in `skipped`, and the rest is read without it. Raises Refused when
    there is no line to take.
    """
    files = Files(directory)
    groups: dict[str | None, list[Line]] = {}
    for line in lines_of(files):
        groups.setdefault(line.run, []).append(line)
    if not groups:
        raise Refused("; ".join(item.reason for item in files.skipped[:1]) or "no page in it")
    runs = [_run(files, run, lines) for run, lines in groups.items()]
    # What was not taken is said once.
    first = replace(runs[0], skipped=tuple(files.skipped), looked_at=frozenset(files.looked_at))
    return [first, *runs[1:]]


def unread_reason(file: Path) -> str:
    """Why a file in a run directory is not taken."""
    return "a page as it was rendered" if file.parent.name == "pages" else "not a file of a run directory"


# --- a run ----------------------------------------------------------------------------------------


def _run(files: Files, run: str | None, lines: list[Line]) -> ImportedRun:
    names = names_of(lines)
    tables: dict[str, list[Row]] = {}
    pictures: dict[str, bytes | Path] = {}
    results: dict[tuple[str, BackendName], OcrResult] = {}
    for line in lines:
        page = names[line.image]
        rows, result = _reading(files, page, line)
        if result is not None:
            results[page, line.backend] = result
        for table, of_line in rows.items():
            tables.setdefault(table, []).extend(of_line)
        pictures |= _pictures(files, line)
    record = _record(files, run, lines, list(results.values()))
    sides: dict[str, dict[BackendName, str | None]] = {}
    for line in lines:
        error = line.data.get("error")
        sides.setdefault(names[line.image], {})[line.backend] = None if error is None else str(error)
    for page, errors in sides.items():
        of_page = {backend: results.get((page, backend)) for backend in errors}
        tables.setdefault("parity", []).extend(_parity_rows(page, of_page, errors, tolerance_of(record)))
    if not tables["parity"]:
        del tables["parity"]
    return ImportedRun(record, files.directory, tables, pictures)


def _parity_rows(
    page: str,
    results: dict[BackendName, OcrResult | None],
    errors: dict[BackendName, str | None],
    tolerance: Tolerance,
) -> list[Row]:
    """The parity of a page that two backends read, A's files first, or why there is none."""
    if len(errors) < 2:
        return []
    name_a, name_b, *_ = errors
    found = [error for error in (errors[name_a], errors[name_b]) if error is not None]
    if found:
        return [not_compared_row(page, found)]
    a, b = results.get(name_a), results.get(name_b)
    if a is not None and b is not None:
        with contextlib.suppress(*_FOREIGN):  # results that fit the tables and still are none
            return [parity_row(page, parity(a, b, tolerance))]
    return []


def _reading(files: Files, page: str, line: Line) -> tuple[dict[str, list[Row]], OcrResult | None]:
    """A line's rows, and the result they are of where it is whole."""
    if line.data.get("error") is not None:
        return {"readings": [{"page": page, "backend": line.backend, "error": line.data["error"]}]}, None
    name = f"{line.folder}/{RESULT}"
    content = files.read(name, _RESULT_LIMIT)
    if content is not None:
        try:
            data = as_json(as_text(content))
            if data.get("text_raw") is None:
                data["text_raw"] = line.data.get("text_raw")
            result = result_from_jsonable(data)
            if (result.backend, result.text_raw) != (line.backend, line.data.get("text_raw")):
                raise Refused("not the result of the page's line")
            rows: dict[str, list[Row]] = {
                "readings": reading_table(page, result, _page_file(line)).to_pylist(),
                "timings": timing_rows(page, result),
            }
            for table, of_result in rows.items():
                rows_to_table(table, "checked", of_result)
            return rows, result
        except _FOREIGN as error:
            files.skip(files.directory / name, " ".join(str(error).split())[:300] or "not a result")
    try:
        flat = _rows_of_line(files, page, line)
        return {"readings": folded(flat), "timings": flat["stage_timings"]}, None
    except _FOREIGN as error:
        name = f"{line.root}{PREDICTIONS}"
        files.skip(files.directory / name, f"{line.source[:60]}: {' '.join(str(error).split())[:200]}")
        return {"readings": [{"page": page, "backend": line.backend}]}, None


def _page_file(line: Line) -> PageFile | None:
    size, sha256 = _file_facts(line)
    return None if size is None or sha256 is None else PageFile(size, sha256)


def _file_facts(line: Line) -> tuple[int | None, str | None]:
    """Bytes and SHA-256 of the page's file as the line has them."""
    return whole(line.data.get("bytes"), "bytes"), text_or_none(line.data.get("sha256"), "sha256")


def _rows_of_line(files: Files, page: str, line: Line) -> dict[str, list[Row]]:
    """What an older directory says of a page."""
    data, text = line.data, line.data.get("text_raw")
    size = _size(files, f"{line.folder}/{RESULT_IMAGE}")
    key: dict[str, Any] = {"page": page, "backend": line.backend}
    image = key | {
        "source": line.source,
        "path": line.image,
        "width": size[0] if size else None,
        "height": size[1] if size else None,
        "preset": text_or_none(data.get("preset"), "preset"),
        "new_tokens": whole(data.get("tokens"), "tokens"),
        "finish_reason": text_or_none(data.get("finish_reason"), "finish_reason"),
        "text_raw": text,
    }
    image |= dict(zip(("bytes", "sha256"), _file_facts(line), strict=True))
    rows: dict[str, list[Row]] = {"images": [image]}
    rows["stage_timings"] = [
        key
        | {
            "stage": stage.value,
            "milliseconds": milliseconds,
            "inside_prefill": stage in inside_prefill(),
            "aggregate": "page",
        }
        for stage, milliseconds in _times(files, line).items()
    ]
    if text is not None and size is not None:
        rows["boxes"] = box_rows(page, line.backend, page_boxes(parse(text), *size))
    if prompt := text_or_none(data.get("prompt"), "prompt"):
        rows["inputs"] = [key | {"prompt": prompt}]
    return rows


def _times(files: Files, line: Line) -> dict[Stage, float]:
    """Every stage's time from `info.json`, prefill's and decode's from the line without it."""
    given = {"prefill": line.data.get("prefill_ms"), "decode": line.data.get("decode_ms")}
    name = f"{line.folder}/{INFO}"
    content = files.read(name, TEXT_LIMIT)
    if content is not None:
        try:
            return _stages(mapping(as_json(as_text(content)).get("timings_ms"), "timings_ms"))
        except Refused as error:
            files.skip(files.directory / name, str(error))
    return _stages(given)


def _stages(given: dict[str, Any]) -> dict[Stage, float]:
    times = {stage: number(given.get(stage.value), f"time of {stage.value}") for stage in all_stages()}
    return {stage: value for stage, value in times.items() if value is not None}


def _size(files: Files, name: str) -> tuple[int, int] | None:
    """Pixels of the picture with boxes, which is as large as the page; only its header is read."""
    file = files.directory / name
    if file.is_symlink() or not file.is_file() or has_link(files.directory, name):
        return None
    broken = (Image.DecompressionBombError, Image.DecompressionBombWarning, struct.error)
    with (
        contextlib.suppress(OSError, ValueError, SyntaxError, *broken),
        Image.open(file, formats=["JPEG"]) as picture,
    ):
        return picture.size
    return None


def _pictures(files: Files, line: Line) -> dict[str, bytes | Path]:
    """A page's pictures and its Markdown, by their path in the history."""
    found: dict[str, bytes | Path] = {}
    folder = files.directory / line.folder
    if folder.is_dir() and not has_link(files.directory, f"{line.folder}/{INFO}"):
        pictures, refused = page_files(folder)
        for file, reason in refused:
            files.skip(file, reason)
        files.looked_at |= set(pictures.values())
        found = {f"{line.folder}/{name}": file for name, file in pictures.items()}
        info = files.read(f"{line.folder}/{INFO}", TEXT_LIMIT)
        if info is not None:
            found[f"{line.folder}/{INFO}"] = info
    sha256 = line.data.get("sha256")
    name = clean_path(sha256) if isinstance(sha256, str) else None
    if name is not None and files.read(name, MOST_BYTES) is not None:
        found[name] = files.directory / name
    return found


# --- its record -----------------------------------------------------------------------------------


def _record(files: Files, run: str | None, lines: list[Line], results: list[OcrResult]) -> RunRecord:
    """What describes the call, and what its results say."""
    read = [line for line in lines if line.data.get("error") is None]
    about = about_results(results) | {"backends": tuple(dict.fromkeys(line.backend for line in read))}
    if not results:
        for name in ("engine", "device"):
            about[name] = agreed(_word(mapping(line.data.get("environment"), "").get(name)) for line in read)
        about["preset"] = agreed(_word(line.data.get("preset")) for line in read)
    written = _written_record(files, run) if run is not None else None
    if written is not None:
        about["environment"] = {**about["environment"], **written.environment}
        return replace(written, **about)
    created = next(
        file_time(file)
        for file in (files.directory / name / PREDICTIONS for name in roots_of(files.directory))
        if file.is_file()
    )
    digests = {
        f"{name} {line.backend} {line.image}": digest(repr(sorted(line.data.items())).encode())
        for name, line in enumerate(lines)
    }
    return RunRecord(
        id=content_id("dsocr", digests), created=created, source="dsocr", notes=FILE_TIME_NOTE, **about
    )


def _written_record(files: Files, run: str) -> RunRecord | None:
    """`records/<run>.json`; None where there is none that can be taken."""
    name = f"{RECORDS}/{run}.json"
    content = files.read(name, TEXT_LIMIT)
    if content is None:
        return None
    try:
        document = as_json(as_text(content))
        record = RunRecord.from_json(migrate(document, {})[0])
        if record.id != run:
            raise Refused(f"says it is run {record.id}")
        return record
    except DsocrError as error:
        files.skip(files.directory / name, str(error))
        return None


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None
