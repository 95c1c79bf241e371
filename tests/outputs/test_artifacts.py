"""Run directories: what is in them, and that a failing disk leaves nothing half-written."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.errors import DsocrError
from dsocr_core.models.family import all_stages
from dsocr_core.outputs.artifacts import RunDirectory, page_key
from dsocr_core.outputs.clean import CleanPage
from dsocr_core.records import result_from_jsonable
from tests.support.results import make_result

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
    image = tmp_path / "scans" / "ä.png"
    result = make_result(TEXT, image=image, image_size=(999, 999))
    run = tmp_path / "run"
    folder = RunDirectory(run).add(result, page())
    key = hashlib.md5(str(image.resolve()).encode("utf-8")).hexdigest()
    assert folder == run / "viz" / key == run / "viz" / page_key(image)
    names = ["images/0.jpg", "info.json", "result.json", "result.mmd", "result_with_boxes.jpg"]
    assert files(run) == sorted(["predictions.jsonl", *(f"viz/{key}/{name}" for name in names)])
    with Image.open(folder / "images" / "0.jpg") as crop:
        assert crop.size == (200, 200)
    with Image.open(folder / "result_with_boxes.jpg") as drawn:
        assert drawn.size == (999, 999)
    assert (folder / "result.mmd").read_bytes().decode() == "\n# Hello\n![](images/0.jpg)\n\n\nend"

    beside = json.loads((folder / "result.json").read_text("utf-8"))
    assert beside["text_raw"] is None  # its line has it
    assert result_from_jsonable({**beside, "text_raw": result.text_raw}) == result
    info = json.loads((folder / "info.json").read_text("utf-8"))
    assert set(info) == {
        "source_image", "result_image", "result_mmd", "text_raw", "text_clean", "timings_ms", "boxes",
    }  # fmt: skip
    assert info["source_image"] == str(image.resolve())
    assert (folder / info["result_image"]).is_file() and (folder / info["result_mmd"]).is_file()
    assert info["text_raw"] == TEXT and info["text_clean"].endswith("\nend")
    assert info["timings_ms"]["prefill"] == 50.0 and set(info["timings_ms"]) == {
        stage.value for stage in all_stages()
    }
    assert info["boxes"][0] == {"x": 0, "y": 0, "w": 999, "h": 99, "text": "# Hello", "label": "title"}
    assert info["boxes"][2] == {"x": 100, "y": 100, "w": 800, "h": 800, "text": "", "label": "image"}
    assert len(info["boxes"]) == 4

    (line,) = lines(run)
    assert line["image"] == str(image.resolve()) and line["text_raw"] == TEXT
    assert line["text_clean"] == info["text_clean"] and line["tokens"] == len(TEXT)
    assert (line["prefill_ms"], line["decode_ms"], line["vision_ms"]) == (50.0, 100.0, 37.0)


def test_the_key_is_of_the_resolved_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert page_key(Path("x/../a.png")) == hashlib.md5(f"{tmp_path.resolve()}/a.png".encode()).hexdigest()


def test_a_line_names_the_run_it_is_of(tmp_path: Path) -> None:
    image = tmp_path / "page.png"
    image.write_bytes(b"12345")
    for name in ("one", "two"):
        run = RunDirectory(tmp_path / "run", {"id": name, "command": "run ä"})
        run.add(make_result(TEXT, image=image.with_stem(name)), page())
        run.add_failure("eager", "gone.png", None, "no such file")
    run.add(make_result(TEXT, image=image), page())
    assert [line["run"] for line in lines(tmp_path / "run")] == ["one", "two", "two", "two"]
    assert lines(tmp_path / "run")[-1]["bytes"] == 5
    assert lines(tmp_path / "run")[-1]["sha256"] == hashlib.sha256(b"12345").hexdigest()
    records = tmp_path / "run" / "records"
    assert {file.name: json.loads(file.read_text("utf-8"))["command"] for file in records.iterdir()} == {
        "one.json": "run ä", "two.json": "run ä",
    }  # fmt: skip


def test_the_vendors_backend_lies_below(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    ours = run.add(make_result(TEXT), page())
    vendor = run.add(make_result(TEXT, backend="vendor"), page())
    assert ours.parent.parent == tmp_path and vendor.parent.parent == tmp_path / "vendor"
    assert len(lines(tmp_path)) == len(lines(tmp_path / "vendor")) == 1


def test_both_backends_share_the_clean_page(tmp_path: Path) -> None:
    run, clean = RunDirectory(tmp_path), CleanPage("clean/ab.jpg", b"picture")
    run.add(make_result(TEXT), page(), clean=clean)
    run.add(make_result(TEXT, backend="vendor"), page(), clean=clean)
    (tmp_path / "clean" / ".part-0").write_bytes(b"half")
    run.repair(("eager", "vendor"))
    assert [name for name in files(tmp_path) if "clean" in name] == ["clean/ab.jpg"]


def test_foreign_lines_are_kept(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.add(make_result("one"), page())
    with (tmp_path / "predictions.jsonl").open("a", encoding="utf-8") as handle:
        handle.write('not json\n[1]\n{"image": 5}\n')
    run.add(make_result("two"), page())
    kept = (tmp_path / "predictions.jsonl").read_text("utf-8").splitlines()
    assert kept[:3] == ["not json", "[1]", '{"image": 5}'] and json.loads(kept[3])["text_raw"] == "two"
    assert len(kept) == 4


def test_hostile_boxes_do_not_fill_the_disk(tmp_path: Path) -> None:
    rows = ", ".join(["[0, 0, 999, 999]"] * 5000)
    run = RunDirectory(tmp_path)
    folder = run.add(make_result(f"<|ref|>image<|/ref|><|det|>[{rows}]<|/det|>"), page())
    assert len(list((folder / "images").iterdir())) < 20


def no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("failing", ["Image.save", "Path.write_bytes", "os.write", "os.fsync"])
def test_a_full_disk_leaves_nothing_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    run = RunDirectory(tmp_path)
    run.add(make_result("first", image=Path("a.png")), page())
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    with monkeypatch.context() as patch:
        match failing:
            case "Image.save":
                patch.setattr(Image.Image, "save", no_space)
            case "Path.write_bytes":
                patch.setattr(Path, "write_bytes", no_space)
            case "os.fsync":
                patch.setattr(os, "fsync", no_space)
            case "os.write":
                real, calls = os.write, []

                def half(descriptor: int, data: memoryview) -> int:
                    calls.append(1)
                    if len(calls) > 1:
                        no_space()
                    return real(descriptor, data[: len(data) // 2])

                patch.setattr(os, "write", half)
        with pytest.raises(DsocrError, match=r"could not be written \(No space left on device\)") as error:
            run.add(make_result("second", image=Path("b.png")), page(), clean=CleanPage("clean/b.jpg", b"b"))
    assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before
    assert len(list((tmp_path / "viz").iterdir())) == 1
    run.add(make_result("second", image=Path("b.png")), page())
    assert [line["text_raw"] for line in lines(tmp_path)] == ["first", "second"]
