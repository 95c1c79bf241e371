"""A page's row of readings and the `OcrResult` that it holds, of one page or of a recorded run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.base.sanitise import name_text, text_name
from dsocr_core.models.stages import TOP_LEVEL, Stage
from dsocr_core.reading import records
from dsocr_core.reading.fingerprints import files_of
from dsocr_core.reading.jsonable import to_jsonable
from dsocr_core.reading.parity import Comparison, to_row
from dsocr_core.reading.parity_records import Difference, ParityReport
from dsocr_core.reading.records import BackendName, ModelInputs, OcrRequest, OcrResult, PageFile
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.schema import TABLES, encodable_value

if TYPE_CHECKING:
    from dsocr_core.runs.history import History

Row = Mapping[str, Any]
Key = tuple[str, str | None]  # page, backend
RunSide = tuple[str, str | None]  # run id, backend
SCHEMA = TABLES["readings"]
_BLANK: Row = dict.fromkeys(SCHEMA.names)
_NO_BOXES = "boxes_not_known"  # in a row's environment: the result does not know its boxes
_NO_TEXT = "no text is recorded"  # failure of a page whose text nobody wrote down
_STEPS = {"token_texts": 1, "top_ids": 2, "top_logits": 2}  # columns of new tokens, values of each
_STAGES = {*Stage}  # of the models; those of other programs are in no result


@dataclass(frozen=True)
class PageResults:
    """Outcome of a page, as a run records it."""

    source: str  # name of the page
    image: Path | None = None  # None where the page's file could not be made
    results: Sequence[OcrResult] = ()
    errors: Mapping[BackendName, str] = field(default_factory=dict)  # why a backend has no result
    parity: Row | None = None  # None where A and B were not compared
    keys: Mapping[BackendName, str] = field(default_factory=dict)  # names for all that decided each result
    clean: Mapping[str, bytes] = field(default_factory=dict)  # the pictures that a run stores of it

    @classmethod
    def failed(
        cls, source: str, backends: Sequence[BackendName], error: str, image: Path | None = None
    ) -> PageResults:
        """A page that no backend could read."""
        parity = parity_row(source, None, [Difference("failed", error)]) if len(backends) > 1 else None
        return cls(source, image, (), dict.fromkeys(backends, error), parity)

    def table(self, page: str, absolute: bool = False) -> pa.Table:
        """Rows of `readings` under a page's name. `absolute` makes paths absolute."""
        rows = []
        for result in self.results:
            path = {"path": name_text(result.request.image.absolute())} if absolute else {}
            rows.append(result_table(page, result, path | {"key": self.keys.get(result.backend)}))
        image = None if self.image is None else name_text(self.image.absolute())
        facts = {"page": page, "source": self.source, "path": image}
        rows += [row_table(facts | {"backend": name, "error": why}) for name, why in self.errors.items()]
        return pa.concat_tables(rows)


# --- to a row ---------------------------------------------------------------------------------------


def result_table(
    page: str, result: OcrResult, columns: Row, files: Sequence[PageFile | None] = ()
) -> pa.Table:
    """The row of a result with these columns; `files` in place of its images' content now."""
    return row_table({**_row(page, result, files or files_of(result.request)), **columns}, result)


def row_table(row: Row, result: OcrResult | None = None) -> pa.Table:
    """A row of readings. What a column cannot hold is replaced there, and in `exact` as the result has it."""
    row = {"run_id": "", **row}
    try:
        return pa.Table.from_pylist([row], SCHEMA)
    except (UnicodeEncodeError, pa.ArrowInvalid, OverflowError):
        row = {name: _fitting(name, value) for name, value in row.items()}
        exact = None if result is None else json.dumps(to_jsonable(result))
        return pa.Table.from_pylist([row | {"exact": exact}], SCHEMA)


def _fitting(name: str, value: Any) -> Any:
    """The value as its column can hold it; None for a number too large."""
    with suppress(pa.ArrowInvalid, OverflowError):
        return pa.array([encodable_value(value)], SCHEMA.field(name).type)[0].as_py()
    return None


def _row(page: str, result: OcrResult, files: Sequence[PageFile | None]) -> dict[str, Any]:
    """Columns; of a struct pyarrow takes the fields that the schema has."""
    request, inputs, top = result.request, result.inputs, result.top_two
    environment = result.environment | ({} if result.boxes_known else {_NO_BOXES: "the text has none"})
    more = [_file_row(*each) for each in zip_longest(result.more_sizes, files[1:])]
    same = ("backend", "new_tokens", "finish_reason", "text_raw", "text_tokens", "token_ids")
    as_asked = to_jsonable(request) | {
        "max_new_tokens": None if request.max_new_tokens == records.UNLIMITED else request.max_new_tokens,
        "unknown": [name for name in records.MAY_BE_UNKNOWN if getattr(request, name) is None],
    }
    return {
        **{name: getattr(result, name) for name in same},
        "page": page,
        "source": request.name,
        "path": name_text(request.image),
        **_file_row(result.image_size, files[0]),
        "preset": request.preset,
        "grid_columns": inputs and inputs.grid[0],
        "grid_rows": inputs and inputs.grid[1],
        "prompt_tokens": inputs and len(inputs.prompt_ids),
        "request": as_asked,
        "token_texts": result.token_texts or None,
        "top_ids": [token for step in top for token in step.ids] or None,
        "top_logits": [logit for step in top for logit in step.logits] or None,
        "inputs": inputs
        and vars(inputs) | {"image_mask": [value for run in inputs.image_mask for value in run]},
        "boxes": [vars(box) | {"number": box.index, "page_index": box.page} for box in result.boxes],
        "environment": [{"name": name, "value": value} for name, value in environment.items()],
        "times": to_jsonable(result.timings),
        "more_pages": more or None,
    }  # fmt: skip


def _file_row(size: tuple[int, int] | None, file: PageFile | None) -> dict[str, Any]:
    width, height = size or (None, None)
    return {"width": width, "height": height, **({} if file is None else vars(file))}


def timing_rows(readings: pa.Table) -> list[Row]:
    """The rows of the table `timings` that readings make."""
    return [
        {"page": row["page"], "backend": row["backend"], **time, "aggregate": "page"}
        | {"inside_prefill": time["stage"] not in TOP_LEVEL}
        for row in readings.select(("page", "backend", "times")).to_pylist()
        for time in row["times"] or ()
    ]


def parity_row(page: str, report: ParityReport | None, differences: Sequence[Difference] = ()) -> Row:
    """Make a row of what two results of a page have in common; without a report `differences` say why."""
    return to_row(report, differences) | {"page": page}


def parity_of(page: str, comparison: Comparison) -> Row | None:
    """The parity row of a page; None where it was not to be compared."""
    if comparison.report is None and not comparison.compared:
        return None
    return parity_row(page, comparison.report, comparison.differences)


# --- and back ---------------------------------------------------------------------------------------


def result_of(row: Row) -> OcrResult | None:
    """The result of a row, columns that it lacks not known; None of a page that failed or has no text."""
    row = {**_BLANK, **row}
    if row["exact"] is not None:
        # Of another program's the columns count.
        with suppress(InvalidFile, ValueError, LookupError, TypeError, AttributeError):
            return records.result_from_jsonable(parse_json(row["exact"], any_number=True))
    if row["error"] is not None or row["text_raw"] is None:
        return None
    ids, sizes = row["token_ids"], [(each["width"], each["height"]) for each in row["more_pages"] or ()]
    environment = {each["name"]: each["value"] for each in row["environment"] or ()}
    top_two: tuple[records.TopTwo, ...] = ()
    with suppress(TypeError, ValueError):  # another program's: no pairs, or nulls among them
        top_two = records.top_two_steps(row["top_ids"] or (), row["top_logits"] or ())
    return OcrResult(
        backend=row["backend"] or "",
        request=_request_of(row),
        image_size=(row["width"] or 0, row["height"] or 0),
        text_raw=row["text_raw"],
        token_ids=None if ids is None else tuple(ids),
        token_texts=tuple(row["token_texts"] or ()),
        finish_reason=end if (end := row["finish_reason"]) in get_args(records.FinishReason) else None,
        inputs=_inputs_of(row),
        timings=tuple(
            records.StageTiming(Stage(time["stage"]), ms, 1 if (n := time["calls"]) is None else n)
            for time in row["times"] or ()
            if time["stage"] in _STAGES and (ms := time["milliseconds"]) is not None
        ),
        boxes_known=environment.pop(_NO_BOXES, None) is None,
        environment=environment,
        top_two=top_two,
        text_tokens=row["text_tokens"],
        more_sizes=tuple(size for size in sizes if None not in size),
    )


def _request_of(row: Row) -> OcrRequest:
    """Request of a row's page. Fields not recorded are not known."""
    values = {name: value for name, value in (row["request"] or {}).items() if value is not None}
    image = Path(text_name(values.pop("image", None) or row["path"] or row["source"] or row["page"]))
    file, unknown = _page_file(row), values.pop("unknown", None)
    if unknown is None:
        prompt, source = values.get("prompt"), row["source"] or ""
        return OcrRequest.imported(image, source, prompt=prompt, preset=row["preset"], file=file)
    values = {"max_new_tokens": records.UNLIMITED} | values | dict.fromkeys(unknown)
    values["more"] = tuple(Path(text_name(path)) for path in values.get("more", ()))
    values["ngram_whitelist"] = tuple(values.get("ngram_whitelist", ()))
    more_files = tuple(filter(None, map(_page_file, row["more_pages"] or ())))
    if len(more_files) == len(values["more"]):
        values["more_files"] = more_files
    return OcrRequest(image, **values, file=file)


def _page_file(row: Row) -> PageFile | None:
    return None if row["sha256"] is None else PageFile(row["bytes"] or 0, row["sha256"])


def _inputs_of(row: Row) -> ModelInputs | None:
    """The model's inputs, where all of them are known."""
    values = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in (row["inputs"] or {}).items()
        if value is not None
    }
    mask, grid = values.get("image_mask", ()), (row["grid_columns"], row["grid_rows"])
    try:
        runs = tuple(zip(mask[::2], mask[1::2], strict=True))
        return None if None in grid else ModelInputs(**values | {"image_mask": runs, "grid": grid})
    except (TypeError, ValueError):
        return None


# --- of a recorded run ------------------------------------------------------------------------------


@dataclass
class Readings:
    """Pages of a run: results, and for the others why there is none."""

    results: dict[Key, OcrResult] = field(default_factory=dict)
    failures: dict[Key, str] = field(default_factory=dict)
    requests: dict[Key, OcrRequest] = field(default_factory=dict)  # requests of every page, read or not

    @classmethod
    def of(cls, record: RunRecord, rows: Iterable[dict[str, Any]]) -> Readings:
        found = cls()
        for row in rows:
            row = {**_BLANK, **row}
            key, made = (row["page"], row["backend"]), result_of(row)
            found.requests[key] = _request_of(row) if made is None else made.request
            if made is None or row["error"] is not None:
                found.failures[key] = row["error"] or _NO_TEXT
            else:
                found.results[key] = replace(made, backend=made.backend or record.engine or record.source)
        return found


def readings(
    history: History,
    run_id: str,
    pages: Sequence[str] | None = None,
    with_steps: bool | Mapping[str, int] = True,
) -> Readings:
    """Results and failures of a run, or of those pages of it, in the order of the pages.

    Steps, the new tokens one by one, are most of a run's bytes: all of them, none, or of each page those up
    to a last one. Raises HistoryError where there is no such run.
    """
    without = {"boxes", *({} if with_steps else _STEPS)}  # boxes are in the text
    columns = [name for name in SCHEMA.names if name not in without]
    rows = history.rows(run_id, "readings", pages, columns).to_pylist()
    if isinstance(with_steps, Mapping):
        for row in rows:
            last = with_steps[row["page"]] + 1
            row |= {name: row[name] and row[name][: last * count] for name, count in _STEPS.items()}
    found = Readings.of(history.record(run_id), rows)
    if not with_steps:  # of `exact`
        for key, made in found.results.items():
            found.results[key] = replace(made, token_texts=(), top_two=())
    return found


def readings_in(directory: Path) -> Readings:
    """Results and failures of a run in an untrusted directory. Raises InvalidFile."""
    from dsocr_core.runs.importers.imported import RunFiles
    from dsocr_core.runs.importers.own_run import read_own_run

    [run] = read_own_run(RunFiles(directory))
    table = run.tables.get("readings")
    return Readings.of(run.record, table.to_pylist() if isinstance(table, pa.Table) else [])
