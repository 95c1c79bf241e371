"""`python -m dsocr_core history COMMAND`: list, sql, import, export, compact, trash, bench.

Wired into the command line by `history_parser`, `add_history_commands` and `run_history`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsocr_core.errors import DsocrError
from dsocr_core.outputs.spreadsheet import frame_csv

if TYPE_CHECKING:
    import pandas as pd

OK, FAILED = 0, 1
_COLUMNS = (
    "run_id", "created", "source", "backends", "engine", "attention", "gpu", "preset", "pages", "failed",
    "tags",
)  # fmt: skip
_NARROW = ("run_id", "created", "preset", "pages", "failed")
"""Columns that fit into less than `_WIDE` characters."""
_WIDE = 140
_PIPE_WIDTH = 400


def history_parser() -> ArgumentParser:
    """The parser of `history`, for `add_history_commands` once it is part of the whole command line."""
    return ArgumentParser(description="Runs that were kept: list, ask, bring in, take out, tidy.")


def add_history_commands(parser: ArgumentParser) -> None:
    """Give the parser of `history` its commands."""
    commands = parser.add_subcommands(dest="history_command", metavar="COMMAND")

    found = _parser("List the runs, newest first.")
    found.add_argument("--limit", type=int, default=50, help="how many at most")
    found.add_argument("--trash", action="store_true", help="those in the trash instead")
    commands.add_subcommand("list", found)

    sql = _parser("Answer one SELECT; tables: runs, facts, annotations, marks and those of a run.")
    sql.add_argument("statement", help="SELECT ...")
    sql.add_argument("--csv", action="store_true", help="print CSV")
    commands.add_subcommand("sql", sql)

    imported = _parser("Take in run directories, exported runs and runs of other programs, whole trees too.")
    imported.add_argument("paths", nargs="+", metavar="PATH", help="folders, zip files or CSV files")
    commands.add_subcommand("import", imported)

    exported = _parser("Write runs as Parquet or CSV (a folder) or as a zip that imports elsewhere.")
    exported.add_argument("runs", nargs="+", metavar="RUN", help="ids of runs")
    exported.add_argument("--to", type=str, required=True, help="the folder or file to make")
    exported.add_argument("--form", type=str, default="zip", choices=["parquet", "csv", "zip"])
    commands.add_subcommand("export", exported)

    compact = _parser("Fold old runs into larger files; answers stay the same.")
    compact.add_argument("--keep", type=int, default=50, help="how many of the newest stay as they are")
    commands.add_subcommand("compact", compact)

    trash = _parser("Put runs into the trash, take them out, or empty it.")
    trash.add_argument("runs", nargs="*", metavar="RUN", help="ids of runs")
    trash.add_argument("--undo", action="store_true", help="take the runs out of the trash")
    trash.add_argument("--empty", action="store_true", help="delete what is in the trash for good")
    commands.add_subcommand("trash", trash)

    leftovers = _parser("Name what writers that were stopped left behind.")
    leftovers.add_argument("--clear", action="store_true", help="delete it")
    commands.add_subcommand("leftovers", leftovers)

    bench = _parser("Build a large history in a temporary place and time every query.")
    bench.add_argument("--runs", type=int, default=1000)
    bench.add_argument("--rows", type=int, default=10_000_000, help="stage rows in all")
    commands.add_subcommand("bench", bench)


def _parser(description: str) -> ArgumentParser:
    parser = ArgumentParser(description=description)
    parser.add_argument("--location", type=str, default=None, help="path or URL (default: data/runs/history)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    return parser


def run_history(options: Namespace, console: Console) -> int:
    """Run one command; returns the exit code. Raises DsocrError for what a user can put right."""
    command = options.history_command
    chosen: Namespace = options[command]
    if not console.is_terminal:  # a file or another program has all the room there is
        console.width = max(console.width, _PIPE_WIDTH)
    if command == "bench":
        return _bench(chosen, console)
    # pandas and DuckDB are loaded after the command line is known to be good.
    from dsocr_core.history.store import DEFAULT_LOCATION, SEED_LOCATION, History

    place, also = (chosen.location, ()) if chosen.location else (DEFAULT_LOCATION, (SEED_LOCATION,))
    with History(place, also) as history:
        for entry, reason in history.problems.items():
            print(f"left out {entry}: {reason}", file=sys.stderr)
        code: int = _COMMANDS[command](history, chosen, console)
        return code


def _list(history: Any, chosen: Namespace, console: Console) -> int:
    frame = history.runs(limit=chosen.limit, trashed=chosen.trash)
    if chosen.json:
        _print_json({"runs": _records(frame)})
    else:
        _print_frame(frame[list(_COLUMNS if console.width >= _WIDE else _NARROW)], console)
    return OK


def _sql(history: Any, chosen: Namespace, console: Console) -> int:
    frame = history.sql(chosen.statement)
    if chosen.json:
        _print_json({"rows": _records(frame)})
    elif chosen.csv:
        sys.stdout.write(frame_csv(frame))
    else:
        _print_frame(frame, console)
    return OK


def _import(history: Any, chosen: Namespace, console: Console) -> int:
    from dsocr_core.history.importers.detect import import_paths

    report = import_paths(history, [Path(path) for path in chosen.paths])
    if chosen.json:
        _print_json(report.document())
        return OK
    for run in report.imported:
        console.print(Text(f"imported {run.run_id} ({run.source}) from {run.origin}"))
    for run in report.known:
        console.print(Text(f"known    {run.run_id} ({run.source}) from {run.origin}"))
    for item in report.skipped:
        console.print(Text(f"skipped  {item.path}: {item.reason}", style="yellow"))
    console.print(
        f"{len(report.imported)} imported, {len(report.known)} known already, {len(report.skipped)} skipped"
    )
    return OK


def _export(history: Any, chosen: Namespace, console: Console) -> int:
    from dsocr_core.history.exporters import export_runs

    report = export_runs(history, chosen.runs, Path(chosen.to), chosen.form)
    if chosen.json:
        _print_json({"target": str(report.target), "runs": report.runs, "rows": report.rows})
    else:
        rows = ", ".join(f"{name} {count:,}" for name, count in report.rows.items())
        console.print(Text(f"written to {report.target}: {rows}"))
    return OK


def _compact(history: Any, chosen: Namespace, console: Console) -> int:
    from dsocr_core.history.compact import compact

    report = compact(history, chosen.keep)
    if chosen.json:
        _print_json(asdict(report))
    else:
        console.print(f"{report.packed} runs folded into {len(report.packs)} packs")
        if report.annotations:
            console.print(f"{report.annotations} annotation files folded into one")
    return OK


def _trash(history: Any, chosen: Namespace, console: Console) -> int:
    from dsocr_core.history.compact import empty_trash

    if chosen.undo and chosen.empty:
        raise DsocrError("history trash: give --undo or --empty, not both")
    if chosen.empty == bool(chosen.runs):
        raise DsocrError("history trash: give the ids of runs, or --empty alone")
    if chosen.empty:
        done = {"deleted": empty_trash(history).deleted}
    else:
        (history.restore if chosen.undo else history.trash)(chosen.runs)
        done = {"restored" if chosen.undo else "trashed": len(chosen.runs)}
    if chosen.json:
        _print_json(done)
    else:
        console.print(", ".join(f"{count} {what}" for what, count in done.items()))
    return OK


def _leftovers(history: Any, chosen: Namespace, console: Console) -> int:
    found = history.clear_leftovers() if chosen.clear else history.leftovers()
    if chosen.json:
        _print_json({"leftovers": [asdict(item) for item in found], "cleared": chosen.clear})
    else:
        for item in found:
            console.print(Text(f"{item.path}: {item.bytes:,} bytes, {item.age_s / 60:.0f} minutes old"))
        console.print(f"{len(found)} {'cleared' if chosen.clear else 'left behind'}")
    return OK


def _bench(chosen: Namespace, console: Console) -> int:
    from dsocr_core.measure.history_queries import TARGETS, bench

    report = bench(
        chosen.runs,
        chosen.rows,
        lambda words: print(words, file=sys.stderr),
        Path(chosen.location) if chosen.location else None,
    )
    missed = report.sizes[-1].missed()
    if chosen.json:
        _print_json(report.document())
        return FAILED if missed else OK
    growth = _table(
        "Runs", "Stage rows", "Cold open", "Refresh", "Idle", "Memory", "p95, all runs", "p95, one run"
    )  # fmt: skip
    for size in report.sizes:
        worst = {
            kind: max((query.p95_ms for query in size.queries if query.kind == kind), default=0.0)
            for kind in ("history", "run")
        }
        growth.add_row(
            f"{size.runs:,}",
            f"{size.stage_rows:,}",
            f"{size.open_s:.2f} s",
            f"{size.refresh_s * 1000:.0f} ms",
            f"{size.idle_refresh_s * 1000:.1f} ms",
            f"{size.memory_mb:.0f} MB",
            f"{worst['history']:.0f} ms",
            f"{worst['run']:.0f} ms",
        )
    console.print(growth)
    queries = _table("Query", "Over", "Rows", "Median", "p95", "Target")
    for query in report.sizes[-1].queries:
        queries.add_row(
            query.name,
            _KINDS[query.kind],
            f"{query.rows:,}",
            f"{query.median_ms:.1f} ms",
            f"{query.p95_ms:.1f} ms",
            f"{TARGETS[f'{query.kind}_p95_ms']:g} ms",
        )
    console.print(queries)
    console.print(f"writing a run takes {report.write_run_ms:.0f} ms (median, on the disk and renamed)")
    console.print("all targets met" if not missed else "missed: " + "; ".join(missed))
    return FAILED if missed else OK


_KINDS = {"history": "all runs", "run": "one or two", "statistics": "two, bootstrap"}
_COMMANDS = {
    "list": _list,
    "sql": _sql,
    "import": _import,
    "export": _export,
    "compact": _compact,
    "trash": _trash,
    "leftovers": _leftovers,
}


# --- printing -----------------------------------------------------------------------------------


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON-ready values; what is not known is null."""
    text = frame.to_json(orient="records", date_format="iso", date_unit="ms")
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def _print_json(data: Any) -> None:
    print(json.dumps(data, ensure_ascii=False).encode(errors="replace").decode())


def _print_frame(frame: pd.DataFrame, console: Console) -> None:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in frame.columns:
        table.add_column(Text(str(column)), overflow="fold", no_wrap=column in ("run_id", "created"))
    for row in frame.itertuples(index=False):
        table.add_row(*(Text(_cell(value)) for value in row))
    console.print(table)


def _cell(value: Any) -> str:
    """A value as text; what is not known is empty."""
    import numpy as np
    import pandas as pd

    if isinstance(value, (list, tuple, np.ndarray)):
        return ", ".join(map(str, value))
    if pd.isna(value):
        return ""
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%d %H:%M}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table
