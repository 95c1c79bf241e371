"""Run directories of earlier versions, which had lines and a folder a page and no tables, as runs in place.

Each line of `predictions.jsonl` says which call it is from, `records/<id>.json` what describes the call, and
the page's folder has the result; older ones have neither: they give what the line and `info.json` say.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
from PIL import Image

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.untrusted import Refused, parse_json
from dsocr_core.base.visible import encodable, text_name
from dsocr_core.models.family import all_stages
from dsocr_core.reading.artifacts import BACKENDS, INFO, PREDICTIONS, RESULT_IMAGE, folder_key
from dsocr_core.reading.fingerprints import result_key
from dsocr_core.reading.markup import page_boxes, parse
from dsocr_core.reading.parity import parity
from dsocr_core.reading.records import (
    VENDOR,
    BackendName,
    FinishReason,
    OcrResult,
    PageFile,
    result_from_jsonable,
)
from dsocr_core.runs.importers.reading import FILE_TIME_NOTE, file_time
from dsocr_core.runs.readings import reading_table, rows_table
from dsocr_core.runs.record import (
    RunRecord,
    about_results,
    agreed,
    described_backend,
    read_document,
    tolerance_of,
)
from dsocr_core.runs.rows import Row, box_rows, not_compared_row, parity_row
from dsocr_core.runs.run_folder import RunFolder
from dsocr_core.runs.storage.entries import is_entry_name
from dsocr_core.runs.upgrade.migrations import migrate

RECORDS, RESULT = "records", "result.json"
_PARTS = ".upgrading"
_MARK_BYTES = 4096
_FOREIGN = (DsocrError, LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""Errors of a result that is none where it is taken apart."""


def is_run_directory(directory: Path) -> bool:
    """Look whether a folder's predictions begin as those of this project do, and have no run beside them."""
    if (directory / "run.json").exists():
        return False
    for root in ("", f"{VENDOR}/"):
        file = directory / root / PREDICTIONS
        with contextlib.suppress(OSError):
            if file.is_file():  # a pipe would be waited on for ever
                with file.open("rb") as handle:
                    begin = handle.read(_MARK_BYTES)
                named = b'"backend": "' in begin or b'"road": "' in begin
                if begin.startswith(b'{"image": "') and b'"source": "' in begin and named:
                    return True
    return False


def upgrade_run_directory(directory: Path) -> dict[str, str]:
    """Make the tables of a run from its lines; returns why what could not be taken was not, by its place.

    What it is made of goes when the run is whole. Raises StorageError, OSError when it cannot write, and
    Refused when there is nothing to take.
    """
    failed: dict[str, str] = {}
    if is_run_directory(directory):
        shutil.rmtree(directory / _PARTS, ignore_errors=True)  # of a call that was stopped
        lines = list(_lines(directory, failed))
        if not lines:
            raise Refused("; ".join(failed.values()) or "no page in it")
        folder = RunFolder(directory, _PARTS)
        record = _record(directory, lines, failed)
        results = _add_pages(folder, directory, lines, tolerance_of(record), failed)
        folder.finish(replace(record, **_about(record, lines, results)))
    shutil.rmtree(directory / RECORDS, ignore_errors=True)
    for place in (directory, directory / VENDOR, *(directory / BACKENDS).glob("*")):
        for file in place.glob(f"viz/*/{RESULT}"):
            file.unlink()
    return failed


def backend_in(data: Mapping[str, Any]) -> BackendName:
    """The backend of a line or a result. At first it was a road: `ours`, whichever engine, or `vendor`.

    Raises KeyError.
    """
    name = str(data["backend"] if "backend" in data else data["road"])
    return str((data.get("environment") or {}).get("engine") or "eager") if name == "ours" else name


def earlier_result(data: Mapping[str, Any]) -> OcrResult:
    """The result that an earlier version wrote as JSON. Raises what `_FOREIGN` names."""
    return result_from_jsonable({**data, "backend": backend_in(data)})


class _Line:
    """One reading, or why there is none."""

    def __init__(self, directory: Path, root: str, data: Mapping[str, Any]) -> None:
        """Raises KeyError for a line that names no image or no backend."""
        self.data, self.root = data, root
        self.image, self.source, self.backend = str(data["image"]), str(data["source"]), backend_in(data)
        self.folder = directory / root / "viz" / folder_key(text_name(self.image))

    @property
    def error(self) -> str | None:
        return None if self.data.get("error") is None else str(self.data["error"])


def _lines(directory: Path, failed: dict[str, str]) -> Iterator[_Line]:
    """Every line, the first backend's first."""
    others = sorted(path.name for path in (directory / BACKENDS).glob("*"))
    for root in ("", VENDOR, *(f"{BACKENDS}/{name}" for name in others)):
        file = directory / root / PREDICTIONS
        for number, content in enumerate(file.open("rb") if file.is_file() else (), start=1):
            try:
                yield _Line(directory, root, parse_json(content, any_number=True))
            except (Refused, KeyError) as error:
                failed[f"{root}/{PREDICTIONS} line {number}".lstrip("/")] = f"not a line: {error}"


def _add_pages(
    folder: RunFolder, directory: Path, lines: list[_Line], tolerance: Any, failed: dict[str, str]
) -> list[OcrResult]:
    """Put every page into the run; returns the results that are whole, without their texts."""
    pages: dict[str, dict[BackendName, _Line]] = {}
    for line in lines:
        pages.setdefault(line.image, {})[line.backend] = line
    found: list[OcrResult] = []
    for image, of_page in pages.items():
        page = folder.name_of(next(iter(of_page.values())).source, Path(text_name(image)))
        results: dict[BackendName, OcrResult] = {}
        rows = []
        for backend, line in of_page.items():
            result = None if line.error else _result(line, directory, failed)
            if result is not None:
                results[backend] = result
                rows.append(reading_table(page, result, [_file(line)], key=line.data.get("key")))
                found.append(replace(result, text_raw="", token_ids=None, token_texts=(), top_two=()))
            else:
                rows.append(rows_table([_plain_row(page, line)]))
        folder.add(pa.concat_tables(rows), _parity(page, of_page, results, tolerance))
    return found


def _parity(
    page: str, lines: Mapping[BackendName, _Line], results: Mapping[BackendName, OcrResult], tolerance: Any
) -> Row | None:
    if len(lines) < 2:
        return None
    (name_a, a), (name_b, b), *_ = lines.items()
    if errors := [error for error in (a.error, b.error) if error]:
        return not_compared_row(page, errors)
    if name_a in results and name_b in results:
        return parity_row(page, parity(results[name_a], results[name_b], tolerance))
    return None


def _result(line: _Line, directory: Path, failed: dict[str, str]) -> OcrResult | None:
    """The whole result in a page's folder; None where there is none."""
    file = line.folder / RESULT
    if not file.is_file():
        return None
    try:
        data = parse_json(file.read_bytes(), any_number=True)
        if data.get("text_raw") is None:
            data["text_raw"] = line.data.get("text_raw")
        result = earlier_result(data)
        if (result.backend, encodable(result.text_raw)) != (line.backend, line.data.get("text_raw")):
            raise Refused("not the result of the page's line")
        return result
    except _FOREIGN as error:
        failed[str(file.relative_to(directory))] = " ".join(str(error).split())[:300] or "not a result"
        return None


def _file(line: _Line) -> PageFile | None:
    size, sha256 = line.data.get("bytes"), line.data.get("sha256")
    return PageFile(size, sha256) if isinstance(size, int) and isinstance(sha256, str) else None


def _plain_row(page: str, line: _Line) -> Row:
    """Make the row of a page without a whole result, of its line."""
    data, text, file = line.data, line.data.get("text_raw"), _file(line)
    row: dict[str, Any] = {
        "page": page, "backend": line.backend, "source": line.source, "path": line.image, "error": line.error,
    }  # fmt: skip
    if line.error is not None:
        return row
    size = _size(line.folder / RESULT_IMAGE)
    finish, prompt = data.get("finish_reason"), data.get("prompt")
    times = {"prefill": data.get("prefill_ms"), "decode": data.get("decode_ms")}
    with contextlib.suppress(OSError, Refused):
        times = parse_json((line.folder / INFO).read_bytes(), any_number=True).get("timings_ms") or times
    boxes = box_rows(page, line.backend, page_boxes(parse(text), size)) if text and size else []
    return row | {
        "width": size and size[0], "height": size and size[1],
        "bytes": file and file.bytes, "sha256": file and file.sha256,
        "preset": data.get("preset"), "new_tokens": data.get("tokens"), "text_raw": text,
        "finish_reason": finish if finish in get_args(FinishReason) else None,
        "request": {"prompt": prompt} if prompt else None,
        "boxes": [{key: box[key] for key in box if key not in ("page", "backend")} for box in boxes] or None,
        "times": [
            {"stage": stage.value, "milliseconds": times[stage.value], "calls": None}
            for stage in all_stages()
            if isinstance(times.get(stage.value), (int, float))
        ],
    }  # fmt: skip


def _size(file: Path) -> tuple[int, int] | None:
    """Pixels of the picture with boxes, which is as large as the page; only its header is read."""
    broken = (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning)
    with contextlib.suppress(*broken), Image.open(file, formats=["JPEG"]) as picture:
        return picture.size
    return None


# --- its record -----------------------------------------------------------------------------------


def _record(directory: Path, lines: list[_Line], failed: dict[str, str]) -> RunRecord:
    """The record of the only call that wrote, else one of all of them under a name of its own."""
    calls = list(dict.fromkeys(line.data.get("run") for line in lines))
    last = calls[-1]
    written = _written(directory, last, failed) if isinstance(last, str) and is_entry_name(last) else None
    if written is not None and len(calls) == 1:
        return written
    content = result_key({str(number): dict(line.data) for number, line in enumerate(lines)})
    if written is not None:
        return replace(written, id=f"dsocr-{content}")
    moment = next(file for root in ("", VENDOR) if (file := directory / root / PREDICTIONS).is_file())
    return RunRecord(id=f"dsocr-{content}", created=file_time(moment), source="dsocr", notes=FILE_TIME_NOTE)


def _written(directory: Path, run: str, failed: dict[str, str]) -> RunRecord | None:
    """`records/<run>.json`; None where there is none that can be taken."""
    file = directory / RECORDS / f"{run}.json"
    try:
        document, _ = migrate(read_document(file.read_bytes()), {})
        return RunRecord.from_json(document)
    except FileNotFoundError:
        return None
    except _FOREIGN as error:
        failed[f"{RECORDS}/{file.name}"] = str(error)
        return None


def _about(record: RunRecord, lines: list[_Line], results: list[OcrResult]) -> dict[str, Any]:
    """Collect facts from the results, or where no page has a whole one, from the lines."""
    about = about_results(results)
    if not results:
        read = [line for line in lines if line.error is None]
        about["backends"] = tuple(dict.fromkeys(line.backend for line in read))
        own = described_backend(about["backends"])
        found = [line.data.get("environment") or {} for line in read if line.backend == own]
        about["preset"] = agreed(line.data.get("preset") for line in read)
        about |= {name: agreed(each.get(name) for each in found) for name in ("engine", "device")}
    return about | {"environment": {**about["environment"], **record.environment}}
