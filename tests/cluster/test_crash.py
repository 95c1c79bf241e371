"""Processes that write an output, killed at random moments: nothing committed is lost or there twice."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from dsocr_core.cluster.output import Output
from dsocr_core.runs.sharded import OutputError
from tests.cluster.made_up_output import check_exactly_once, readings, sorted_markers
from tests.support.busy_process import DRIVEN
from tests.support.kills import killed

DRIVE = (sys.executable, "-m", "tests.support.busy_process", "drive")


def to_its_end(out: Path) -> list[str]:
    command = [*DRIVE, str(out), "", ""]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout.split()


@pytest.mark.parametrize("times", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_a_driver_killed_at_any_point(tmp_path: Path, times: int) -> None:
    """Each start goes on by itself with what was left; a complete output is followed by a new one."""
    moments, complete = random.Random(5), 0
    committed: dict[str, str] = {}
    for number in range(times):
        out = tmp_path / str(complete)
        printed = killed([*DRIVE, out, "", ""], moments, most_s=0.25)
        output = Output(str(out))
        if output.document("run.json") is None:
            assert not printed and not committed
            continue
        found = {marker.shard: marker.file for marker in sorted_markers(output)}
        # One may be whole without having been printed; what was committed is the same file as then.
        assert {*printed} <= {*found} and committed.items() <= found.items(), number
        committed = found
        for page in readings(str(out)):
            assert page.name == f"/data/{page.number:05d}.png"
            assert page.result is not None and page.result.text_raw == f"page {page.number}"
        if len(found) == DRIVEN // 2:
            complete, committed = complete + 1, {}
    for number in range(complete + 1):
        out = tmp_path / str(number)
        printed = to_its_end(out)
        assert number == complete or printed == ["ready"], "what was complete was read again"
        check_exactly_once(str(out), DRIVEN)
        assert not any(out.rglob(".part-*"))


def test_a_flipped_byte_costs_its_shard_and_is_named(tmp_path: Path) -> None:
    chance = random.Random(3)
    to_its_end(tmp_path / "out")
    markers = sorted_markers(Output(str(tmp_path / "out")))
    for _ in range(18):
        damaged = chance.choice(markers)
        other = markers[damaged.index - 1]
        file = tmp_path / "out" / chance.choice([damaged.file, damaged.worker_file, damaged.name])
        whole = file.read_bytes()
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        file.write_bytes(content)
        output = Output(str(tmp_path / "out"))
        with pytest.raises(OutputError) as error:
            [list(output.pages(marker)) for marker in output.markers([damaged.name])]
        assert damaged.name in f"{error.value}" and str(output.store.root) in f"{error.value}"
        [pages] = [output.pages(marker) for marker in output.markers([other.name])]
        assert [page.number // 2 for page in pages] == [other.index] * 2
        file.write_bytes(whole)
