"""Artifacts of an output: what the published code writes of each page, made of what is committed."""

from __future__ import annotations

import io
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.cli.main import main
from dsocr_core.cluster.artifacts import Written, write_artifacts
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.shards import PageRef
from dsocr_core.reading.records import OcrResult
from dsocr_core.runs.sharded import PageReading
from dsocr_core.settings import Settings
from tests.support.made_up_output import a_result, committed, planned

WITH_PICTURE = (
    "<|ref|>image<|/ref|><|det|>[[0, 0, 499, 999]]<|/det|>\n"
    "<|ref|>text<|/ref|><|det|>[[500, 100, 900, 400]]<|/det|>\nA line\\coloneqq of text"
)


def read(text: str) -> OcrResult:
    return a_result(text, image_size=(200, 100))


@pytest.fixture
def output(tmp_path: Path) -> Output:
    """Two shards of two pages: a picture and a failure, a file that is gone and text."""
    names = [str(tmp_path / f"{number}.png") for number in range(4)]
    for name in (names[0], names[1], names[3]):
        Image.new("RGB", (200, 100), "white").save(name)
    results = [read(WITH_PICTURE), None, read("lost"), read("Plain text")]
    output = Output(str(tmp_path / "out"))

    def page_of(page: PageRef) -> PageReading:
        result = results[page.number]
        return page.failed("planted") if result is None else page.read(result)

    for shard in planned(output, Job.of(Settings(preset="tiny"), (str(tmp_path),), 2), names):
        committed(output, shard, page_of)
    return output


def write(output: Output) -> Written:
    with ThreadPoolExecutor(1) as executor:
        return write_artifacts(output, executor, 2)


def archives(output: Output) -> list[dict[str, bytes]]:
    found = []
    for name in output.store.names("artifacts"):
        with zipfile.ZipFile(io.BytesIO(output.store.read(f"artifacts/{name}") or b"")) as archive:
            found.append({entry: archive.read(entry) for entry in archive.namelist()})
    return found


def test_every_page_that_was_read_has_its_files_and_the_others_are_named(output: Output) -> None:
    written = write(output)
    assert (written.shards, written.pages, written.failures) == (2, 2, 1)
    assert "2.png" in written.named[0]
    first, second = archives(output)
    assert sorted(first) == [
        f"000000000/{name}"
        for name in ("images/0.jpg", "info.json", "result.mmd", "result_with_boxes.jpg")
    ]  # fmt: skip
    assert sorted(second) == [
        f"000000003/{name}" for name in ("info.json", "result.mmd", "result_with_boxes.jpg")
    ]
    # As published: a picture by its number and a line end, no markup of boxes, `\\coloneqq` written as `:=`.
    assert first["000000000/result.mmd"].decode() == "![](images/0.jpg)\n\n\nA line:= of text"
    assert second["000000003/result.mmd"] == b"Plain text"
    assert Image.open(io.BytesIO(first["000000000/images/0.jpg"])).size == (99, 100)
    drawn = Image.open(io.BytesIO(first["000000000/result_with_boxes.jpg"]))
    assert drawn.size == (200, 100) and len(drawn.convert("L").getcolors(256) or ()) > 2


def test_what_is_there_is_not_written_again_and_pages_read_again_have_an_archive_of_their_own(
    output: Output, tmp_path: Path
) -> None:
    write(output)
    assert write(output).shards == 0
    marker = next(iter(output.markers(sorted(output.marker_names().values()))))
    job = Job.of(Settings(preset="tiny"), (str(tmp_path),), 2)
    [shard] = output.planned_shards([marker.index], job)
    committed(output, shard, lambda page: page.read(read("Read at last")), generation=1)
    assert (write(output).pages, len(archives(output))) == (2, 3)
    assert output.store.names("artifacts")[0] == f"{marker.shard}.1.zip"


def test_the_option_is_for_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "page.png", "--artifacts"]) == 2
    assert "--artifacts is for --cluster" in " ".join("".join(capsys.readouterr()).split())
