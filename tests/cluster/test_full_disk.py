"""A disk that is really full: workers wait, say so once each, and go on when there is room."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="requirements-cluster.txt is not installed")

from tests.support.cluster_runs import Heard, check_exactly_once, cluster, drive, job_for, make_pages

PAGES = 24


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if mount is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("may not mount a file system here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


class Emptying(Heard):
    """Makes room once somebody waits for it."""

    filler: Path

    def said(self, words: str) -> None:
        super().said(words)
        if "paused" in words:
            self.filler.unlink(missing_ok=True)


def test_a_full_disk_pauses_the_run_and_every_page_is_there_once(small_disk: Path, tmp_path: Path) -> None:
    make_pages(tmp_path / "pages", PAGES)
    heard = Emptying()
    heard.filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"), heard.filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with heard.filler.open("r+b") as file:  # room for the plan, and for one shard or two
        file.truncate(heard.filler.stat().st_size - 80_000)
    location = str(small_disk / "out")
    with cluster(1) as client:
        drive(client, job_for(tmp_path / "pages", 2), location, heard)
    check_exactly_once(location, PAGES)
    paused = [words for words in heard.words if "paused: " in words]
    assert paused and all("No space left on device; trying again" in words for words in paused)
    assert len(paused) == sum("the output is there again: going on" in words for words in heard.words)
