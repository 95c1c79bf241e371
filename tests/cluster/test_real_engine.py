"""The embedded checkpoint over a cluster: the bytes that one process writes, on any number of workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("distributed", reason="requirements-cluster.txt is not installed")

from dsocr_core.cli.main import main
from dsocr_core.cluster.output import Output
from tests.cluster.made_up_output import readings
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
    return {marker.shard: marker.sha256 for marker in Output(str(out)).markers()}


@pytest.mark.usefixtures("quick_readers")
def test_any_number_of_workers_writes_the_same_bytes_with_the_texts_of_one_process(tmp_path: Path) -> None:
    make_pages(tmp_path / "pages", 4)
    one, two = (read(tmp_path / "pages", tmp_path / f"out-{count}", count, 2) for count in (1, 2))
    assert one == two and len(one) == 2
    found = [page.result for page in readings(str(tmp_path / "out-1"))]
    assert all(result is not None and result.new_tokens == 6 and result.inputs for result in found)
    texts = {result.request.image.name: result.text_raw for result in found if result is not None}
    assert main(["run", str(tmp_path / "pages"), "--out", str(tmp_path / "run"), *OPTIONS]) == 0
    lines = map(json.loads, (tmp_path / "run" / "predictions.jsonl").read_text().splitlines())
    assert texts == {line["source"]: line["text_raw"] for line in lines} and len(set(texts.values())) > 1
