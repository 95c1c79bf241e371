"""Where pages come from: names, uploads, and paths that stay under the allowed roots."""

from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.base.errors import DsocrError
from pages.widgets.shared import sources


def test_a_folder_and_a_pdf_give_pages_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, rendered = tmp_path / "folder", tmp_path / "rendered"
    folder.mkdir()
    sheets = [Image.new("RGB", (200, 300), (255, 255 - shade, 255)) for shade in (0, 40, 80)]
    sheets[0].save(folder / "paper.pdf", save_all=True, append_images=sheets[1:])
    sheets[0].save(folder / "scan.png")
    monkeypatch.setattr(sources, "RENDERED", rendered)
    pages = sources.typed_pages(str(folder), (tmp_path,))
    assert pages.keys == ("paper.pdf#1", "paper.pdf#2", "paper.pdf#3", "scan.png")
    assert not rendered.exists()
    taken = pages.take(1)
    assert taken.name == "paper.pdf#2"
    assert Image.open(taken.path).format == "PNG"
    assert len(list(rendered.iterdir())) == 1
    assert pages.only("2-3").keys == ("paper.pdf#2", "paper.pdf#3")
    both = pages.only("1,3").together()
    assert (both.keys, both.in_one_prompt, both.take(0).more) == (
        ("paper.pdf#1,3",), True, (pages.take(2).path,)
    )  # fmt: skip
    with pytest.raises(DsocrError, match="not within the 4 pages"):
        pages.only("5")


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "..\\..\\evil.png", "..", "", "a\x00b.png", "x" * 300, ".hidden", "page.png"]
)
def test_an_upload_is_stored_once_by_content_and_never_leaves_its_folder(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = sources.store_upload(name, b"abc", tmp_path)
    assert stored.resolve().parent.parent == tmp_path.resolve() and not stored.name.startswith(".")
    assert sources.store_upload(name, b"abc", tmp_path) == stored and stored.read_bytes() == b"abc"
    assert sources.store_upload(name, b"abd", tmp_path) != stored and not list(tmp_path.rglob("*.part"))
    monkeypatch.setattr(sources, "_MOST_UPLOADS", 2)
    sources.store_upload(name, b"abe", tmp_path)
    assert len(list(tmp_path.iterdir())) == 2  # old ones go


def test_typed_paths_stay_under_the_roots(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "page.png").write_bytes(b"x")
    (outside / "page.png").write_bytes(b"x")
    (root / "link.png").symlink_to(outside / "page.png")
    roots = (root,)
    assert sources.typed_path(f" {root}/page.png ", roots) == (root / "page.png").resolve()
    unusable, out = "not a usable path", "outside the folders"
    for text, said in (
        (f"{outside}/page.png", out), (f"{root}/../outside/page.png", out), (f"{root}/link.png", out),
        ("/etc/passwd", out),
        (f"{root}/missing.png", "no such file"), (f"{root}/nul\0.png", unusable),
        (f"{root}/{'x' * 300}", unusable), (f"{root}/{'a/' * 3000}", unusable), ("~nosuchuser/p", unusable),
    ):  # fmt: skip
        with pytest.raises(DsocrError, match=said):
            sources.typed_path(text, roots)
    (root / "page.png").unlink()
    with pytest.raises(DsocrError, match="no images or PDFs"):  # the link is left out
        sources.typed_pages(str(root), roots)


def test_an_error_of_an_upload_names_it_by_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "UPLOADS", tmp_path / "uploads")
    stored = sources.store_upload("torn.pdf", b"%PDF-1.4 torn", sources.UPLOADS)
    with pytest.raises(DsocrError, match=r"^torn\.pdf: ") as error, sources.own_names():
        sources.typed_pages(str(stored), ()).take(0)
    assert str(tmp_path) not in str(error.value)
