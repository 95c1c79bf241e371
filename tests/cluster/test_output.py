"""What is visible is visible exactly once, in a directory as in an object store, and one driver writes it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.output import Output, shard_files
from dsocr_core.cluster.pages import PageReading, PageRef
from dsocr_core.models.stages import Stage
from dsocr_core.runs.sharded import Marker, marker_bytes, shard_rows
from tests.cluster.made_up_output import a_result, pages_of_rows
from tests.support.paths import ROOT

NAME = "000000000-0123456789abcdef"


@pytest.fixture(params=["directory", "memory"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Output]:
    location = str(tmp_path / "out") if request.param == "directory" else f"memory://{tmp_path.name}"
    made = Output(location)
    made.store.put("run.json", b'{"cluster": {"shard_pages": 3}}')
    yield made


def pages_of(numbers: range, text: str = "text", failed: int | None = None) -> list[PageReading]:
    read = a_result(text, [(Stage.DECODE, 2.0)], token_ids=(1, 2, 3))
    pages = [PageRef(number, f"{number}.png") for number in numbers]
    return [page.failed("no") if page.number == failed else page.read(read) for page in pages]


def attempt(output: Output, pages: list[PageReading]) -> Marker:
    return output.write(NAME, pages, "w", (1.0, 2.0))


def texts(output: Output) -> list[str]:
    rows = (row for marker in output.markers() for row in output.rows(marker).to_pylist())
    return [row["text_raw"] for row in rows if row["error"] is None]


def test_of_two_attempts_the_first_to_commit_counts_and_the_other_leaves_nothing(output: Output) -> None:
    first, second = attempt(output, pages_of(range(3), "a")), attempt(output, pages_of(range(3), "b"))
    assert texts(output) == []
    assert output.commit(second)
    assert not output.commit(first)
    assert texts(output) == ["b"] * 3 and output.marker(second.name) == second
    assert output.store.read(first.file) is None
    assert output.commit(second), "a commit whose answer was lost may be tried again"
    lost = attempt(output, pages_of(range(2)))
    assert output.clear_attempts() == 2 and output.store.read(lost.file) is None
    assert texts(output) == ["b"] * 3


@pytest.mark.parametrize(
    "wrong",
    [
        b"", b"{", b"[]", b'{"shard": 1, "other": 2}', {"failed": "3"}, {"began": "now"}, {"worker": 3},
        {"file": "../../etc/passwd"}, {"shard": "another"},
    ],
)  # fmt: skip
def test_a_marker_that_nobody_wrote_is_named(tmp_path: Path, wrong: bytes | dict[str, Any]) -> None:
    output, content = Output(str(tmp_path)), wrong if isinstance(wrong, bytes) else b""
    if isinstance(wrong, dict):
        content = marker_bytes(asdict(attempt(output, pages_of(range(2)))) | wrong)
    output.store.put(f"done/{NAME}.json", content)
    with pytest.raises(DsocrError, match="no marker of a shard"):
        list(output.markers())


def test_the_same_pages_make_the_same_bytes_in_any_order_whoever_has_read_them() -> None:
    pages = pages_of(range(20))
    elsewhere = [
        replace(page, result=replace(page.result, timings=(), environment={"device_name": "another"}))
        for page in pages
        if page.result is not None
    ]
    (readings, of_worker), (again, others) = shard_files(pages), shard_files(elsewhere[::-1])
    assert readings == again and of_worker != others
    assert pages_of_rows(shard_rows(readings, others)) == elsewhere


# --- drivers --------------------------------------------------------------------------------------

HOLDER = """
import sys
from dsocr_core.cluster.output import Output
with Output(sys.argv[1]).driving():
    print("driving", flush=True)
    sys.stdin.read()
"""


def test_a_second_driver_is_refused_by_name_until_the_first_is_killed(tmp_path: Path) -> None:
    command, pipe = [sys.executable, "-c", HOLDER, str(tmp_path / "out")], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT) as first:
        assert first.stdout is not None and first.stdout.readline() == b"driving\n"
        output = Output(str(tmp_path / "out"))
        words = f"process {first.pid}, writes into it; wait for its end"
        with pytest.raises(DsocrError, match=words), output.driving():
            pass
        first.kill()
    for _ in range(2):
        with output.driving():
            pass


def test_in_a_store_a_second_driver_is_refused_until_the_file_of_the_first_is_gone(tmp_path: Path) -> None:
    output = Output(f"memory://{tmp_path.name}")
    way_out = f"where it was killed, remove memory://{tmp_path.name}/driver.json"
    with output.driving(), pytest.raises(DsocrError, match=way_out), output.driving():
        pass
    assert output.store.read("driver.json") is None


def test_a_run_has_a_name_of_its_own_on_a_scheduler() -> None:
    """By one name its workers would write into the output of whoever came last with the same settings."""
    first, other, again = (Job({}, (folder,), 4, "checkpoint", "code") for folder in "aba")
    assert first.name_at("out/a") != other.name_at("out/b")
    assert first.name_at("out/a") == again.name_at("out/a"), "a restart finds what is loaded"
