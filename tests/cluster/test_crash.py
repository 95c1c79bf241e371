"""Processes that write an output, killed at random moments: nothing committed is lost or there twice."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.cluster.output import Output
from tests.cluster.made_up_output import check_exactly_once, readings
from tests.support.busy_process import DRIVEN
from tests.support.kills import killed

DRIVE = (sys.executable, "-m", "tests.support.busy_process", "drive")


def to_its_end(out: Path) -> list[str]:
    command = [*DRIVE, str(out), "", ""]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout.split()


@pytest.mark.parametrize("outputs", [1, pytest.param(50, marks=(pytest.mark.slow, pytest.mark.timeout(900)))])
def test_a_driver_killed_at_any_point(tmp_path: Path, outputs: int) -> None:
    """Four times an output; each start goes on by itself with what was left, and reads nothing again."""
    moments = random.Random(5)
    for out in (tmp_path / str(number) for number in range(outputs)):
        committed: dict[str, str] = {}
        for _ in range(4):
            printed = killed([*DRIVE, out, "", ""], moments, most_s=0.25)
            begun = Output(str(out)).document("run.json") is not None
            found = {marker.shard: marker.file for marker in Output(str(out)).markers() if begun}
            # One may be whole without having been printed; what was committed is the same file as then.
            assert {*printed} <= {*found} and committed.items() <= found.items()
            committed = found
        to_its_end(out)
        assert to_its_end(out) == ["ready"], "what was complete was read again"
        check_exactly_once(str(out), DRIVEN)
        assert not any(out.rglob(".part-*"))


def test_a_flipped_byte_costs_its_shard_and_is_named(tmp_path: Path) -> None:
    chance = random.Random(3)
    to_its_end(tmp_path / "out")
    output = Output(str(tmp_path / "out"))
    markers, pages = [*output.markers()], readings(str(tmp_path / "out"))
    for _ in range(18):
        damaged = chance.choice(markers)
        other = markers[damaged.index - 1]
        file = tmp_path / "out" / chance.choice([damaged.file, damaged.worker_file, damaged.name])
        whole = file.read_bytes()
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        file.write_bytes(content)
        says = rf"/out/({damaged.name}: no marker|shards/.*: damaged; remove {damaged.name} to read it again)"
        with pytest.raises(DsocrError, match=says):
            [output.rows(marker) for marker in output.markers([damaged.name])]
        [rows] = [output.rows(marker) for marker in output.markers([other.name])]
        assert rows["page"].to_pylist() == [page.name for page in pages if page.number // 2 == other.index]
        file.write_bytes(whole)
