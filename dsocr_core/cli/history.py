"""`history COMMAND`: list, sql, import, export, trash, check, loops."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsocr_core.cli.memory import most_memory
from dsocr_core.cli.options import add_json, add_subcommand, require_above_zero, require_positive
from dsocr_core.console import FAILED, OK, print_json
from dsocr_core.errors import DsocrError
from dsocr_core.outputs.spreadsheet import frame_csv
from dsocr_core.outside.visible import json_line, visible
from dsocr_core.settings import RUNS_DIRECTORY, Settings, history_location

if TYPE_CHECKING:
    import pandas as pd

    from dsocr_core.history.importers.imported import Skipped

_COLUMNS = (
    "run_id", "created", "source", "backends", "engine", "attention", "gpu", "preset", "pages", "failed",
    "tags",
)  # fmt: skip
_NARROW = ("run_id", "created", "preset", "pages", "failed")
"""Columns that fit into less than `_WIDE` characters."""
_WIDE = 140
_PIPE_WIDTH = 400
_FEW = 5
"""Files left out that are named one by one; more are summed up by reason."""
_MOST_KINDS = 12
_MOST_ROWS = 10_000
"""Of an answer that are laid out as a table."""


def add(commands: Any) -> None:
    parser = add_subcommand(
        commands, "history", "Recorded runs: list, query, import, export, move to the trash."
    )
    below = parser.add_subcommands(dest="name", metavar="NAME")

    found = _add(below, "list", "List the runs, newest first.")
    found.add_argument("--limit", type=int, default=50, help="how many at most")
    found.add_argument("--trash", action="store_true", help="those in the trash instead")

    sql = _add(below, "sql", "Answer one SELECT; tables: runs, facts, annotations, marks and those of a run.")
    sql.add_argument("statement", help="SELECT ...")
    sql.add_argument("--csv", action="store_true", help="print CSV")
    sql.add_argument("--time_limit_s", type=float, default=60.0, help="seconds until it is stopped")
    sql.add_argument("--memory_limit_mib", type=int, default=1024, help="memory that it may take")

    imported = _add(below, "import", "Import run directories, exported runs and runs of other programs.")
    imported.add_argument(
        "paths", nargs="+", metavar="PATH", help="folders (whole trees too), zip or CSV files"
    )
    imported.add_argument("--verbose", action="store_true", help="name every file that was not taken")

    exported = _add(
        below, "export", "Write runs as Parquet or CSV (a folder) or as a zip that imports elsewhere."
    )
    exported.add_argument("runs", nargs="+", metavar="RUN", help="ids of runs")
    exported.add_argument("--to", type=str, required=True, metavar="PATH", help="the folder or file to make")
    forms = ["parquet", "csv", "zip"]
    exported.add_argument("--form", default="zip", choices=forms, help="what to write")

    upgraded = _add(below, "upgrade", "Take over what earlier versions of this program wrote, in place.")
    what = "a history or its URL, a run directory, a result cache (default: --history, all of data/runs)"
    upgraded.add_argument("directory", nargs="?", metavar="DIR", help=what)

    trash = _add(below, "trash", "Put runs into the trash, take them out, or empty it.")
    trash.add_argument("runs", nargs="*", metavar="RUN", help="ids of runs")
    trash.add_argument("--undo", action="store_true", help="take the runs out of the trash")
    trash.add_argument("--empty", action="store_true", help="delete what is in the trash for good")

    check = _add(below, "check", "Hold every file against its checksum; name what is damaged or left over.")
    check.add_argument("--trash", action="store_true", help="put what cannot be read into the trash")

    loops = _add(below, "loops", "Repetition loops of runs, their rate, and which n-gram rules stop them.")
    loops.add_argument("runs", nargs="*", metavar="RUN", help="ids of runs (default: all outside the trash)")


def _add(below: Any, name: str, description: str) -> ArgumentParser:
    parser = add_subcommand(below, name, description)
    where = (
        "where runs are: a path, relative to the project, or a URL (default: data/runs/history); those that "
        "come with the project are there, too"
    )
    parser.add_argument("--history", type=str, default=None, metavar="WHERE", help=where)
    # Its name before all commands called it --history.
    parser.add_argument("--location", dest="history", type=str, default=None, help=argparse.SUPPRESS)
    add_json(parser)
    return parser


def run(chosen: Namespace, console: Console, typed: str) -> int:
    name = chosen.name
    options: Namespace = chosen[name]
    if not console.is_terminal:  # a file or another program has all the room there is
        console.width = max(console.width, _PIPE_WIDTH)
    # pandas and DuckDB are loaded after the command line is known to be good.
    from dsocr_core.history.store import SEED_LOCATION, History

    settings = Settings(history=options.history) if options.history else Settings()
    location = history_location(settings)
    if name == "upgrade":
        return _upgrade(options.directory, location, options, console)
    also = () if "://" not in location and Path(location).resolve() == SEED_LOCATION else (SEED_LOCATION,)
    with History(location, also) as history:
        for entry, reason in history.problems.items() if name != "check" else ():
            print(visible(f"left out {entry}: {reason}"), file=sys.stderr)
        code: int = _COMMANDS[name](history, options, console)
        return code


def _upgrade(given: str | None, location: str, chosen: Namespace, console: Console) -> int:
    from dsocr_core.history.upgrade.remote import upgrade_url
    from dsocr_core.history.upgrade.upgrade import Upgraded, upgrade_any

    if given and "://" not in given and not Path(given).is_dir():
        raise DsocrError(f"{given}: no such directory")
    everything = [location, *(str(path) for path in sorted(RUNS_DIRECTORY.glob("*/")))]
    done = Upgraded()
    for place in [given] if given else dict.fromkeys(everything):
        try:
            found = upgrade_url(place) if "://" in place else upgrade_any(Path(place))
        except DsocrError as error:
            found = Upgraded(failed={"all of it": str(error)})
        done.runs, done.results = done.runs + found.runs, done.results + found.results
        done.failed |= {f"{place}: {entry}": reason for entry, reason in found.failed.items()}
    if chosen.json:
        print_json(asdict(done))
    else:
        console.print(f"{done.runs} runs and {done.results} cached results taken over", markup=False)
        for entry, reason in done.failed.items():
            print(visible(f"left as it is, {entry}: {reason}"), file=sys.stderr)
    return FAILED if done.failed else OK


def _list(history: Any, chosen: Namespace, console: Console) -> int:
    frame = history.runs(limit=chosen.limit, trashed=chosen.trash)
    if chosen.json:
        print_json({"runs": _records(frame)})
    else:
        _print_frame(frame[list(_COLUMNS if console.width >= _WIDE else _NARROW)], console)
    return OK


def _sql(history: Any, chosen: Namespace, console: Console) -> int:
    from dsocr_core.history.statements import Limits

    require_positive(chosen, "memory_limit_mib")
    require_above_zero(chosen, "time_limit_s")
    # DuckDB counts its own blocks; what a function allocates beside them, the system refuses.
    with most_memory(chosen.memory_limit_mib):
        pieces = history.sql_pieces(chosen.statement, Limits(chosen.time_limit_s, chosen.memory_limit_mib))
        with contextlib.closing(pieces):
            if chosen.json:
                _write_json(pieces)
            elif chosen.csv:
                for number, piece in enumerate(pieces):
                    text = frame_csv(piece, header=not number)
                    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
            else:
                _print_pieces(pieces, console)
    return OK


def _write_json(pieces: Iterator[pd.DataFrame]) -> None:
    """One document as in `print_json`, written as it comes."""
    sys.stdout.write('{"rows": [')
    comma = ""
    for piece in pieces:
        for row in _records(piece):
            sys.stdout.write(comma + json_line(row))
            comma = ", "
    sys.stdout.write("]}\n")


def _print_pieces(pieces: Iterator[pd.DataFrame], console: Console) -> None:
    import pandas as pd

    frames, rows = [], 0
    for piece in pieces:
        frames.append(piece)
        rows += len(piece)
        if rows > _MOST_ROWS:
            break
    _print_frame(pd.concat(frames).head(_MOST_ROWS), console)
    if rows > _MOST_ROWS:
        console.print(f"only the first {_MOST_ROWS:,} rows are shown; --csv and --json write all")


def _import(history: Any, chosen: Namespace, console: Console) -> int:
    from dsocr_core.history.importers.detect import import_paths

    paths = [Path(path) for path in chosen.paths]
    if absent := [path for path in paths if not path.exists()]:
        raise DsocrError(f"history import: {absent[0]}: no such file or folder; check the path")
    report = import_paths(history, paths)
    code = OK if report.imported or report.known else FAILED
    if chosen.json:
        print_json(report.document())
        return code
    for run in report.imported:
        console.print(Text(f"imported {run.run_id} ({run.source}) from {run.origin}"))
    for run in report.known:
        console.print(Text(f"there    {run.run_id} ({run.source}) from {run.origin}"))
    for line in _skipped(report.skipped, chosen.verbose):
        console.print(Text(f"skipped  {line}", style="yellow"))
    for kind in report.kinds():
        console.print(Text(kind.line))
    console.print(
        f"{len(report.imported)} imported, {len(report.known)} there already, {len(report.skipped)} skipped"
    )
    if code != OK:
        console.print("nothing was taken: give a run's folder or zip, a kernel summary, a profile, a sweep")
    return code


def _skipped(items: Sequence[Skipped], verbose: bool) -> Iterator[str]:
    """A line for each file, or, of many, for each reason."""
    if verbose or len(items) <= _FEW:
        yield from (f"{item.path}: {item.reason}" for item in items)
        return
    kinds = Counter(item.reason for item in items)
    first = {item.reason: item.path for item in reversed(items)}
    for reason, count in kinds.most_common(_MOST_KINDS):
        yield f"{first[reason]}{f' and {count - 1:,} more' if count > 1 else ''}: {reason}"
    rest = sum(count for _, count in kinds.most_common()[_MOST_KINDS:])
    if rest:
        yield f"{rest:,} more for other reasons"
    yield "files are summed up by reason; --verbose names each"


def _export(history: Any, chosen: Namespace, console: Console) -> int:
    from dsocr_core.history.exporters import export_runs

    report = export_runs(history, chosen.runs, Path(chosen.to), chosen.form)
    if chosen.json:
        print_json({"target": str(report.target), "runs": report.runs, "rows": report.rows})
    else:
        rows = ", ".join(f"{name} {count:,}" for name, count in report.rows.items())
        console.print(Text(f"written to {report.target}: {rows}"))
    return OK


def _trash(history: Any, chosen: Namespace, console: Console) -> int:
    if chosen.undo and chosen.empty:
        raise DsocrError("history trash: give --undo or --empty, not both")
    if chosen.empty == bool(chosen.runs):
        raise DsocrError("history trash: give the ids of runs, or --empty alone")
    if chosen.empty:
        done = {"deleted": history.empty_trash()}
    else:
        (history.restore if chosen.undo else history.trash)(chosen.runs)
        done = {"restored" if chosen.undo else "trashed": len(chosen.runs)}
    if chosen.json:
        print_json(done)
    else:
        console.print(", ".join(f"{count} {what}" for what, count in done.items()))
    return OK


def _check(history: Any, chosen: Namespace, console: Console) -> int:
    from dsocr_core.history.check import check

    report = check(history)
    if chosen.trash:
        history.trash(report.runs)
    if chosen.json:
        print_json(asdict(report))
        return FAILED if report.damaged else OK
    for damage in report.damaged:
        console.print(Text(f"damaged  {damage.entry}: {damage.reason}", style="red"))
    console.print(f"{report.files:,} files of {report.entries:,} runs are as they were written")
    for item in report.leftovers:
        words = f"{item.path}: {item.bytes:,} bytes of a writer that was stopped; doctor --clear deletes it"
        console.print(Text(words, style="yellow"))
    if report.damaged:
        done = "moved to the trash" if chosen.trash else "history check --trash puts it into the trash"
        console.print(
            f"{len(report.damaged)} damaged: {done}; history import puts a run back from its export"
        )
    return FAILED if report.damaged else OK


def _loops(history: Any, chosen: Namespace, console: Console) -> int:
    from dsocr_core.review.loops import history_loops

    if absent := [run_id for run_id in chosen.runs if run_id not in history]:
        raise DsocrError(f"history loops: there is no run {absent[0]}; see: dsocr history list")
    gone = set(history.trashed())
    found = history_loops(history, chosen.runs or [each for each in history.run_ids() if each not in gone])
    if chosen.json:
        print_json({"runs": [each.document() for each in found]})
        return OK
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in (
        "run_id",
        "backend",
        "pages",
        "loops",
        "rate",
        "rule",
        "stops",
        "forbids elsewhere",
        "in cells",
    ):
        table.add_column(column)
    for each in found:
        table.add_row(
            Text(visible(each.run_id)), Text(visible(each.backend or "")), str(each.pages),
            str(len(each.loops)), f"{each.rate:.1%}", *[""] * 4,
        )  # fmt: skip
        for cost in each.costs:
            if cost.stopped or cost.pages:
                row = (cost.policy, str(cost.stopped), f"{cost.pages} pages", str(cost.cells))
                table.add_row(*[""] * 5, *row)
    console.print(table)
    for each in found:
        for loop in each.loops:
            begins = (
                f"token {loop.from_token}"
                if loop.from_token is not None
                else f"character {loop.from_character}"
            )
            unit = visible(loop.unit[:60].replace("\n", " "))
            console.print(Text(f"{visible(loop.page)}: {loop.count} times '{unit}' from {begins}"))
    return OK


_COMMANDS = {
    "list": _list,
    "sql": _sql,
    "import": _import,
    "export": _export,
    "trash": _trash,
    "check": _check,
    "loops": _loops,
}


# --- printing -----------------------------------------------------------------------------------


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON-ready values; what is not known is null."""
    text = frame.to_json(orient="records", date_format="iso", date_unit="ms")
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def _print_frame(frame: pd.DataFrame, console: Console) -> None:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in frame.columns:
        table.add_column(Text(str(column)), overflow="fold", no_wrap=column in ("run_id", "created"))
    for row in frame.itertuples(index=False):
        table.add_row(*(Text(visible(_cell(value))) for value in row))
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
