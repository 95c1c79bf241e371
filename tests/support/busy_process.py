"""A process that writes or reads a history: `busy_process.py write|out|index|read|drive ROOT NAME STOP_FILE`.

A writer names each run when it is whole, with `index` when it is in the index too, which it makes anew. A
reader checks all it sees, and says in the end what that was. `drive` writes an output of a cluster, shard by
shard and twice at the same time, until it is complete; it names each shard that is committed.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from dsocr_core.runs.history import History
from dsocr_core.runs.run_directory import RunDirectory
from tests.support.made_up_runs import record, timing

STAGES = ("sam", "prefill", "decode")
DRIVEN = 60
"""Pages of the output of a cluster, in shards of two."""


def pages_of(run_id: str) -> int:
    """How many pages a run has, so that a reader can tell a part from the whole."""
    return int(run_id.rpartition("-")[2]) % 5 + 1


def write(root: Path, name: str, stop: Path, history: History | None = None) -> None:
    print("ready", flush=True)
    for number in itertools.count():
        if stop.exists():
            return
        run_id = f"{name}-{number}"
        with RunDirectory.create(root, record(run_id)) as run:
            for page in range(pages_of(run_id)):
                row = {"page": f"p{page}", "backend": "ours", "text_raw": "text " * 200}
                run.add_rows("readings", [row | {"boxes": [{"number": box} for box in range(9)]}])
                run.add_rows("timings", [timing(f"p{page}", stage, 1.0 + page) for stage in STAGES])
                (run.directory / f"{page}.mmd").write_text("text " * 1000)
        if history is not None:
            history.refresh()
            assert run_id in history
        print(run_id, flush=True)


def index(root: Path, name: str, stop: Path) -> None:
    write(root, name, stop, History(root))


def out(root: Path, _: str, stop: Path) -> None:
    """Run after run into one directory, three pages each; each page is named when it was read."""
    from PIL import Image

    from tests.support.directory_writes import opened, read_into

    def run(root: Path, tell: Callable[[str], None]) -> None:
        with opened(root) as directory:
            first = len(directory.done())
            for number in range(first, first + 3):
                name = f"page-{number}.png"
                Image.new("RGB", (8, 8)).save(root / name)
                read_into(directory, root, "text", name)
                tell(name)

    with TemporaryDirectory() as other:  # imports what is imported late
        run(Path(other), lambda _: None)
    print("ready", flush=True)
    while not stop.exists():
        run(root, lambda name: print(name, flush=True))


def read(root: Path, _: str, stop: Path) -> None:
    rounds, runs, last = 0, list[str](), False
    with History(root) as history:
        while not last:
            last, before = stop.exists(), {*runs}
            history.refresh()
            runs = check(history)
            assert before <= {*runs}, "runs are gone"
            rounds += 1
    print(json.dumps({"rounds": rounds, "runs": runs}), flush=True)


def check(history: History) -> list[str]:
    """Every run that is seen is whole; returns their names."""
    assert not history.problems, history.problems
    runs = sorted(history.run_ids())
    seen = history.query("stage_summary")[0].query("stage == 'decode'")
    assert dict(zip(seen["run_id"], seen["n"], strict=True)) == {run_id: pages_of(run_id) for run_id in runs}
    for run_id in runs[-3:]:
        tables, pages = history.tables(run_id), pages_of(run_id)
        assert {name: len(rows) for name, rows in tables.items()} == {"readings": pages, "timings": 3 * pages}
        assert [len(boxes) for boxes in tables["readings"]["boxes"].to_pylist()] == [9] * pages
    return runs


def drive(root: Path, _: str, __: Path) -> None:
    """As a driver and its workers do it: lock, attempts, markers; what is left over goes."""
    from dsocr_core.cluster.job import Job
    from dsocr_core.cluster.output import Output
    from dsocr_core.cluster.pages import Shard
    from dsocr_core.settings import Settings
    from tests.cluster.made_up_output import a_result, committed, planned

    output, files = Output(str(root)), [f"/data/{number:05d}.png" for number in range(DRIVEN)]
    job = Job.of(Settings(preset="tiny"), ("/data",), 2)
    print("ready", flush=True)

    def read(shard: Shard) -> None:
        committed(output, shard, lambda page: page.read(a_result(f"page {page.number}")))
        os.write(1, f"{shard.name}\n".encode())  # whole, whichever thread it is

    with output.driving(), ThreadPoolExecutor(2) as threads:
        shards = planned(output, job, files)
        done = {marker.shard for marker in output.markers()}
        left = [shard for shard in shards if shard.name not in done]
        list(threads.map(read, [shard for shard in left for _ in range(2)]))
        output.clear_attempts()


if __name__ == "__main__":
    jobs = {"write": write, "out": out, "index": index, "read": read, "drive": drive}
    jobs[sys.argv[1]](Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
