"""The embedded checkpoint over a cluster: the bytes that one process writes, on any number of workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("distributed", reason="requirements-cluster.txt is not installed")

from dsocr_core.cli.main import main
from dsocr_core.cluster.output import Output
from tests.support.made_up_output import readings, sorted_markers
from tests.support.paths import SAMPLES

OPTIONS = ("--preset", "tiny", "--infer.max-new-tokens", "6", "--device", "cpu", "--history", "")


def make_pages(folder: Path, count: int) -> None:
    """Parts of a sample, each another one."""
    folder.mkdir()
    page = Image.open(SAMPLES / "09-report-picture.png").convert("RGB")
    for number in range(count):
        left, top = 7 * (number % 40), 11 * (number // 40)
        page.crop((left, top, left + 400, top + 300)).save(folder / f"{number:04d}.png")


def read(folder: Path, out: Path, workers: int, shard_pages: int) -> dict[str, str]:
    """The hash of each shard's results."""
    cluster = ("--cluster", "local", "--workers", str(workers), "--shard-pages", str(shard_pages))
    assert main(["run", str(folder), "--out", str(out), *cluster, *OPTIONS]) == 0
    return {marker.shard: marker.sha256 for marker in sorted_markers(Output(str(out)))}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("pages", "shard_pages", "workers"),
    [(4, 2, (1, 2)), pytest.param(200, 4, (1, 2, 5), marks=pytest.mark.slow)],
    ids=["4-pages", "200-pages"],
)
def test_any_number_of_workers_writes_the_same_bytes(
    tmp_path: Path, pages: int, shard_pages: int, workers: tuple[int, ...]
) -> None:
    make_pages(tmp_path / "pages", pages)
    hashes = [read(tmp_path / "pages", tmp_path / f"out-{count}", count, shard_pages) for count in workers]
    assert all(found == hashes[0] for found in hashes)
    assert len(hashes[0]) == pages // shard_pages
    found = [page.result for page in readings(str(tmp_path / "out-1"))]
    assert len(found) == pages
    assert all(result is not None and result.new_tokens == 6 and result.inputs for result in found)
    if pages < 100:  # and the texts that one process without a cluster has
        texts = {result.request.image.name: result.text_raw for result in found if result is not None}
        assert main(["run", str(tmp_path / "pages"), "--out", str(tmp_path / "run"), *OPTIONS]) == 0
        lines = map(json.loads, (tmp_path / "run" / "predictions.jsonl").read_text().splitlines())
        assert texts == {line["source"]: line["text_raw"] for line in lines} and len(set(texts.values())) > 1
