"""What users of llm-perf-opt know of a run, field by field, and that a failing disk leaves no half of it."""

import hashlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from dsocr_core.base.errors import DsocrError
from dsocr_core.models.stages import Stage
from dsocr_core.reading import artifacts
from dsocr_core.reading.artifacts import Export, failure, prediction, write_page
from tests.support.results import make_result, of_pages

TEXT = (
    "<|ref|>title<|/ref|><|det|>[[0, 0, 999, 99]]<|/det|>\n# Hello\n"
    "<|ref|>image<|/ref|><|det|>[[100, 200, 300, 400], [900, 900, 100, 100]]<|/det|>\n"
    "<|ref|>../../evil<|/ref|><|det|>[[0, 0, 9, 9]]<|/det|>\nend<｜end▁of▁sentence｜>"
)


def page() -> Image.Image:
    return Image.new("RGB", (999, 999), "white")


def lines(directory: Path) -> list[dict]:
    return [json.loads(line) for line in (directory / "predictions.jsonl").read_text("utf-8").splitlines()]


def files(directory: Path) -> list[str]:
    return sorted(str(file.relative_to(directory)) for file in directory.rglob("*") if file.is_file())


def test_layout_and_contents(tmp_path: Path) -> None:
    image, run = tmp_path / "scans" / "ä.png", tmp_path / "run"
    result = make_result(TEXT, image=image, image_size=(999, 999))
    export = Export(run, "eager")
    export.add(result, [page()])
    export.write_lines([prediction(result, "key") | {"run": "id"}])
    folder = export.folder("eager", image)
    key = hashlib.md5(str(image.resolve()).encode("utf-8")).hexdigest()
    assert folder == run / "viz" / key
    names = ["images/0.jpg", "info.json", "result.mmd", "result_with_boxes.jpg"]
    assert files(run) == sorted(["predictions.jsonl", *(f"viz/{key}/{name}" for name in names)])
    sizes = [Image.open(folder / name).size for name in ("images/0.jpg", "result_with_boxes.jpg")]
    assert sizes == [(200, 200), (999, 999)]
    assert (folder / "result.mmd").read_bytes().decode() == "\n# Hello\n![](images/0.jpg)\n\n\nend"

    info, (line,) = json.loads((folder / "info.json").read_text("utf-8")), lines(run)
    clean = TEXT.removesuffix("<｜end▁of▁sentence｜>")
    expected = {
        "source_image": str(image.resolve()), "result_image": "result_with_boxes.jpg",
        "result_mmd": "result.mmd", "text_raw": TEXT, "text_clean": clean,
    }  # fmt: skip
    assert {name: info[name] for name in info if name not in ("boxes", "timings_ms")} == expected
    assert info["timings_ms"]["prefill"] == 50.0
    assert set(info["timings_ms"]) == {stage.value for stage in Stage} - {"encoder"}
    assert info["boxes"][0] == {"x": 0, "y": 0, "w": 999, "h": 99, "text": "# Hello", "label": "title"}
    assert info["boxes"][2] == {"x": 100, "y": 100, "w": 800, "h": 800, "text": "", "label": "image"}
    assert (line["image"], line["text_raw"], line["text_clean"]) == (str(image.resolve()), TEXT, clean)
    assert (line["prefill_ms"], line["decode_ms"], line["vision_ms"]) == (50.0, 100.0, 37.0)
    assert list(line) == [
        "image", "source", "backend", "text_raw", "text_clean", "prefill_ms", "decode_ms", "vision_ms",
        "tokens", "finish_reason", "preset", "prompt", "environment", "bytes", "sha256", "key", "run",
    ]  # fmt: skip


def test_pages_of_one_prompt_have_a_picture_each_and_crops_under_their_names(tmp_path: Path) -> None:
    block = "<|det|>image [0, 0, 500, 500]<|/det|>"
    text = f"before<PAGE>\n{block}one<PAGE>\n<|det|>text [0, 0, 9, 9]<|/det|>two{block}"
    result = of_pages(make_result(text, image_size=(999, 999)), (600, 300))
    write_page(result, [page(), Image.new("RGB", (600, 300))], tmp_path / "written")
    assert files(tmp_path / "written") == [
        "images/page_0_0.jpg", "images/page_1_0.jpg", "info.json", "result.md", "result_with_boxes_0.jpg",
        "result_with_boxes_1.jpg",
    ]  # fmt: skip
    sizes = [Image.open(tmp_path / "written" / "images" / f"page_{i}_0.jpg").size for i in (0, 1)]
    assert sizes == [(500, 500), (300, 150)]
    assert (tmp_path / "written" / "result.md").read_text("utf-8") == (
        "before\n<PAGE>\n![](images/page_0_0.jpg)\none\n<PAGE>\ntwo![](images/page_1_0.jpg)\n"
    )
    info = json.loads((tmp_path / "written" / "info.json").read_text("utf-8"))
    assert info["notes"] == ["6 characters before the first <PAGE>"]
    assert [box["page"] for box in info["boxes"]] == [0, 1, 1] and info["boxes"][2]["w"] == 300
    assert [each["result_image"] for each in info["pages"]] == [
        "result_with_boxes_0.jpg", "result_with_boxes_1.jpg",
    ]  # fmt: skip


def test_lines_are_those_of_the_run_alone(tmp_path: Path) -> None:
    image = tmp_path / "page.png"
    image.write_bytes(b"12345")
    export = Export(tmp_path, "fast")
    ours = [prediction(make_result(name, name, image=image), None) for name in ("fast", "eager")]
    export.write_lines(ours[:1])
    export.write_lines([*ours, failure("vendor", "gone.png", None, "no such file")])
    (line,) = lines(tmp_path)
    assert (line["text_raw"], line["bytes"]) == ("fast", 5)
    assert line["sha256"] == hashlib.sha256(b"12345").hexdigest()
    assert [row["text_raw"] for row in lines(tmp_path / "backends" / "eager")] == ["eager"]
    (line,) = lines(tmp_path / "vendor")
    assert (line["source"], line["error"]) == ("gone.png", "no such file")
    assert [name for name in files(tmp_path) if ".part" in name] == []


def test_hostile_boxes_fill_neither_the_disk_nor_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow walks every pixel of a line, in sight or not."""
    drawn: list[tuple[tuple[int, int, int, int], Any]] = []
    draw = ImageDraw.ImageDraw.rectangle

    def noted(pen: ImageDraw.ImageDraw, corners: tuple[int, int, int, int], **style: Any) -> None:
        drawn.append((corners, style["fill"]))
        draw(pen, corners, **style)

    monkeypatch.setattr(ImageDraw.ImageDraw, "rectangle", noted)
    assert artifacts.MAX_DRAWN <= 2000
    monkeypatch.setattr(artifacts, "MAX_DRAWN", 50)
    rows = ", ".join(["[0, 0, 999, 999]"] * 5000)
    write_page(make_result(f"<|ref|>image<|/ref|><|det|>[{rows}]<|/det|>"), [page()], tmp_path / "page")
    assert len(list((tmp_path / "page" / "images").iterdir())) < 20
    assert len(drawn) == 2 * 50  # each with its label's ground
    assert 16 <= sum(fill is not None for _, fill in drawn[::2]) <= 20
    drawn.clear()
    far = "[[-1e6, -1e6, 1e6, 1e6], [5, 5, 5, 5], [1e6, 1e6, 1e6, 1e6], [-1e6, 500, 1e6, 500]]"
    boxes = make_result(f"<|ref|>text<|/ref|><|det|>{far}<|/det|>", image_size=(999, 999)).boxes
    picture = artifacts.draw_boxes(given := page(), boxes)
    assert given == page() and picture.getpixel((500, 500)) == artifacts.label_colour("text")
    assert len(drawn) == 8 and all(-20 <= side <= 1020 for corners, _ in drawn[::2] for side in corners)


def no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("failing", ["Image.save", "Path.write_bytes"])
def test_a_full_disk_leaves_nothing_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    export = Export(tmp_path, "eager")
    export.add(make_result("first", image=Path("a.png")), [page()])
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    with monkeypatch.context() as patch:
        owner = Image.Image if failing == "Image.save" else Path
        patch.setattr(owner, failing.partition(".")[2], no_space)
        with pytest.raises(DsocrError, match=r"could not be written \(No space left on device\)") as error:
            export.add(make_result("second", image=Path("b.png")), [page()])
    assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before
    assert len(list((tmp_path / "viz").iterdir())) == 1
    assert error.value.__cause__ is not None and error.value.__cause__.__traceback__ is None, "holds pictures"


def test_two_pages_of_one_file_may_be_written_at_the_same_time(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    (tmp_path / "b.png").symlink_to(tmp_path / "a.png")
    export, meet = Export(tmp_path / "out", "eager"), threading.Barrier(2)

    def add(name: str) -> None:
        for _ in range(10):
            meet.wait(60)
            export.add(make_result(image=tmp_path / name), [page()])

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(add, ("a.png", "b.png")))
    assert len(files(tmp_path / "out")) == 3
