"""Migrations of runs of older versions to the current one, step by step, in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dsocr_core.reading.parity_records import Tolerance, Verdict
from dsocr_core.reading.records import VENDOR
from dsocr_core.reading.verdict import Ends, Finding, box_findings, end_findings, text_findings, verdict_of
from dsocr_core.runs.readings import folded, rows_table, with_times
from dsocr_core.runs.schema import FLAT, SCHEMA_VERSION, checked_table, version_of

Document = dict[str, Any]
Tables = dict[str, pa.Table]


@dataclass(frozen=True)
class Migration:
    """From one version to the next: the document of `run.json`, and its tables, all of them or some.

    `tables` also takes the run's document as it was written: what a row lacks may stand in its record.
    """

    why: str
    document: Callable[[Document], Document]
    tables: Callable[[Tables, Document], Tables]


# --- from version 1: roads, ours and vendor, pass and fail ----------------------------------------

_RENAMED = {"road": "backend", "boxes_ours": "boxes_a", "boxes_vendor": "boxes_b"}


def _engine_of(document: Document) -> str:
    """Name which of our engines a run of version 1 calls `ours`."""
    engine = document.get("engine")
    return engine if isinstance(engine, str) and engine else "eager"


def _document_of_1(document: Document) -> Document:
    document, own = dict(document), _engine_of(document)
    if isinstance(roads := document.pop("roads", ()), (list, tuple)):
        roads = [own if road == "ours" else road for road in roads]
    document["backends"] = roads
    environment = document.get("environment")
    if isinstance(environment, dict) and "ours" in environment:
        document["environment"] = {own if key == "ours" else key: value for key, value in environment.items()}
    return document


def _tables_of_1(tables: Tables, document: Document) -> Tables:
    own = _engine_of(document)
    tables = {name: _with_backends(table, own) for name, table in tables.items()}
    if "parity" in tables and "verdict" in tables["parity"].column_names:
        tables["parity"] = _with_verdicts(tables["parity"], _ends(tables.get("images")))
    return tables


def _with_backends(table: pa.Table, own: str) -> pa.Table:
    """A table whose column of roads names backends."""
    table = table.rename_columns([_RENAMED.get(name, name) for name in table.column_names])
    if "backend" not in table.column_names:
        return table
    named = [own if road == "ours" else road for road in table["backend"].to_pylist()]
    at = table.column_names.index("backend")
    return table.set_column(at, table.schema.field(at), pa.array(named, pa.string()))


def _ends(images: pa.Table | None) -> dict[tuple[str, str], Ends]:
    """Tell how A, our engine, and B, the vendor, ended, by run and page."""
    wanted = ["run_id", "page", "backend", "finish_reason"]
    found: dict[tuple[str, str], Ends] = {}
    if images is None or not set(wanted) <= set(images.column_names):
        return found
    for row in images.select(wanted).to_pylist():
        key = (row["run_id"], row["page"])
        a, b = found.get(key, (None, None))
        end = row["finish_reason"] if row["finish_reason"] in ("eos", "length") else None
        found[key] = (a, end) if row["backend"] == VENDOR else (end, b)
    return found


def _with_verdicts(parity: pa.Table, ends: Mapping[tuple[str, str], Ends]) -> pa.Table:
    """Rows of pass and fail judged by the rule of today, from their own figures."""
    judged = [
        _judged(row, ends.get((row["run_id"], row["page"]), (None, None))) for row in parity.to_pylist()
    ]
    for name, values in (
        ("verdict", pa.array([verdict for verdict, _ in judged], pa.string())),
        ("reasons", pa.array([list(reasons) for _, reasons in judged], pa.list_(pa.string()))),
    ):
        at = parity.column_names.index(name)
        parity = parity.set_column(at, parity.schema.field(at).with_type(values.type), values)
    return parity


_FAILED_THEN = "it failed when it was recorded"


def _judged(row: Mapping[str, Any], ends: Ends) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict of a row of version 1 and its reasons."""
    tolerance, old = Tolerance(), [str(reason) for reason in row["reasons"] or ()]
    inputs = [Finding("inputs differ", within=True)] if row["input_parity"] is False else []
    if sizes := [reason for reason in old if reason.startswith("page sizes differ")]:
        return "not_comparable", (*sizes, *(finding.words for finding in inputs))
    same_output = row["tokens_equal"] is True
    differing: list[Finding] = []
    if not same_output:
        boxes = (row["boxes_a"] or 0, row["boxes_b"] or 0)
        alone = max(0, sum(boxes) - 2 * (row["boxes_matched"] or 0))
        largest = row["max_coordinate_difference_percent"]
        shift = (largest, f"a box is off by {largest:.3g} % of the page's side") if largest else None
        differing += box_findings(boxes, alone, 0, shift, tolerance)
        differing += text_findings(row["character_error_rate"] or 0.0, False, tolerance)
        if row["verdict"] != "pass" and all(finding.within for finding in differing):
            # The row does not count boxes under another label; its own reasons do.
            differing += [Finding(reason, within=False) for reason in old or [_FAILED_THEN]]
        differing = differing or [Finding("text and boxes are equal, written with other tokens", within=True)]
    return verdict_of([*inputs, *end_findings(ends, same_output), *differing])


# --- from version 2: a table each of images, boxes, tokens, inputs and steps ------------------------


def _tables_of_2(tables: Tables, document: Document) -> Tables:
    flat = {name: _known(name, tables.pop(name)).to_pylist() for name in FLAT if name in tables}
    if "stage_timings" in tables:
        tables["timings"] = tables.pop("stage_timings")
    if flat:
        tables["readings"] = rows_table(folded(flat), str(document.get("id")))
    return tables


# --- from version 3: a row without the times of its page, a bench with the usual limit ----------------


def _document_of_3(document: Document) -> Document:
    """Put the limit of a bench, which its command set, in the place of the settings' own."""
    found = _BENCH.search(str(document.get("command")))
    settings = document.get("settings")
    if not found or not isinstance(settings, dict) or not isinstance(infer := settings.get("infer"), dict):
        return dict(document)
    return {
        **document,
        "settings": {**settings, "infer": {**infer, "max_new_tokens": int(found[1] or _TOKENS_OF_A_BENCH)}},
    }


_BENCH = re.compile(r"\bdsocr(?:_core)? bench\b(?:.*? --tokens[ =](\d{1,6})\b)?", re.DOTALL)
_TOKENS_OF_A_BENCH = 100
"""New tokens where its command said none."""


def _tables_of_3(tables: Tables, document: Document) -> Tables:
    if "readings" not in tables:
        return tables
    readings = checked_table("readings", str(document.get("id")), tables["readings"])
    return tables | {"readings": with_times(readings, tables.get("timings"))}


def _known(name: str, table: pa.Table) -> pa.Table:
    """A table with the columns it had; others are nobody's."""
    return checked_table(name, "", table)


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        "what reads a page is a backend, named by its engine; the sides of a comparison are A and B; a "
        "verdict has four values",
        _document_of_1,
        _tables_of_1,
    ),
    Migration("a page's reading is one row", dict, _tables_of_2),
    Migration(
        "a row has its page's times, and the key of what decided it; a bench the limit that it read with",
        _document_of_3,
        _tables_of_3,
    ),
)
"""In order: the first leads from version 1 to 2. Append only."""


def migrate(document: Document, tables: Tables) -> tuple[Document, Tables]:
    """A run of any earlier version as one of the current version. Raises SchemaError on a later one."""
    for migration in MIGRATIONS[version_of(document) - 1 :]:
        tables, document = migration.tables(dict(tables), document), migration.document(document)
    return {**document, "schema_version": SCHEMA_VERSION}, tables
