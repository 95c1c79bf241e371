"""Images, folders and PDFs: what is read, and one clear error for each way a file can be bad."""

import io
import mmap
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from dsocr_core.page import decoding
from dsocr_core.page.documents import (
    DocumentError,
    expand,
    load_image,
    parse_pages,
    render_pdf_page,
)
from tests.hostile.pages import PAGE_TREE, document, one_page, png

RANDOM = np.random.default_rng(7)
SIXTEEN_BIT = Image.fromarray(RANDOM.integers(0, 65536, (30, 40), np.uint16))


def noise(width: int = 40, height: int = 30) -> Image.Image:
    return Image.fromarray(RANDOM.integers(0, 256, (height, width, 3), np.uint8))


def message_of(path: Path, **settings: int) -> str:
    with pytest.raises(DocumentError) as error:
        load_image(path, **settings)
    message = str(error.value)
    assert str(path) in message and "\n" not in message
    cause = error.value.__cause__
    assert cause is None or cause.__traceback__ is None, "its frames hold the process that opens pages"
    return message


# --- images ---------------------------------------------------------------------------------------


def with_alpha() -> Image.Image:
    image = noise().convert("RGBA")
    image.putalpha(Image.fromarray(RANDOM.integers(0, 256, (30, 40), np.uint8)))
    return image


MODES = {
    "rgb.png": noise(), "rgb.jpg": noise(), "grey.png": noise().convert("L"),
    "bilevel.tif": noise().convert("1"), "palette.gif": noise().quantize(17), "alpha.png": with_alpha(),
    "alpha.webp": with_alpha(), "grey_alpha.png": with_alpha().convert("LA"),
    "cmyk.jpg": noise().convert("CMYK"), "cmyk.tif": noise().convert("CMYK"), "sixteen.png": SIXTEEN_BIT,
    "sixteen.tif": SIXTEEN_BIT, "float.tif": Image.fromarray(RANDOM.random((30, 40), np.float32)),
}  # fmt: skip
TURNED = [("RGB", "png"), ("RGB", "jpeg"), ("CMYK", "raw"), ("L", "tiff_lzw")]


@pytest.mark.parametrize("name", MODES)
def test_modes_are_read_as_the_published_code_reads_them(tmp_path: Path, name: str) -> None:
    MODES[name].save(tmp_path / name)
    same_as_pillow(tmp_path / name)


@pytest.mark.parametrize(("mode", "compression"), TURNED)
def test_pages_are_turned_as_pillow_turns_them(tmp_path: Path, mode: str, compression: str) -> None:
    for orientation in range(1, 9):
        path = tmp_path / f"{orientation}.{'png' if compression == 'png' else 'tif'}"
        exif = Image.Exif()
        exif[0x0112] = orientation
        tags = {"compression": compression, "tiffinfo": {0x0112: orientation}}
        noise().convert(mode).save(path, **({"exif": exif} if compression == "png" else tags))
        same_as_pillow(path)


def same_as_pillow(path: Path) -> None:
    with Image.open(path) as stored:
        expected = ImageOps.exif_transpose(stored).convert("RGB")
    loaded = load_image(path)
    assert (loaded.mode, loaded.size) == ("RGB", expected.size)
    assert loaded.tobytes() == expected.tobytes()


def frames(colours: tuple[int, ...] = (80, 160, 240)) -> list[Image.Image]:
    return [Image.new("RGB", (40, 30), (colour,) * 3) for colour in colours]


def test_each_picture_of_a_tiff_is_a_page_but_a_preview(tmp_path: Path) -> None:
    path, (first, *more) = tmp_path / "scan.tif", frames()
    for frame in (preview := Image.new("RGB", (8, 6)), first, *more):
        frame.encoderinfo = {"tiffinfo": {254: int(frame is preview)}}
    first.save(path, save_all=True, append_images=[preview, *more])
    pages = expand([path], work_directory=tmp_path)
    assert [page.source for page in pages] == ["scan.tif#1", "scan.tif#2", "scan.tif#3"]
    levels = [np.asarray(load_image(page.path)) for page in pages]
    assert [level.mean() for level in levels] == [80, 160, 240] and levels[2].shape == (30, 40, 3)
    assert [page.source for page in expand([path], "2", tmp_path)] == ["scan.tif#2"]
    with pytest.raises(DocumentError, match=r"40 x 30 pixels are more than the limit"):
        expand([path], work_directory=tmp_path / "other", max_pixels=1000)[2]


@pytest.mark.parametrize("suffix", ["gif", "webp", "avif"])
def test_of_an_animation_the_first_picture_is_read_and_that_is_said(
    tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, (first, *more) = tmp_path / f"{tmp_path.name}.{suffix}", frames()
    first.save(path, save_all=True, append_images=more)
    (page,) = expand([path])
    assert page.source == path.name and abs(np.asarray(load_image(page.path)).mean() - 80) <= 2
    assert caplog.messages == [f"{path.name}: an animation, of which the first picture is read"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("none.png", "no such file"), ("x" * 300, r"cannot be read \(File name too long"),
        ("file/below.png", "cannot be read"), ("folder", "no images or PDFs in this folder"),
    ],
)  # fmt: skip
def test_a_path_that_cannot_be_read_says_why(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DocumentError, match=says):
        expand([tmp_path / name])[0]
    if name != "folder":
        with pytest.raises(DocumentError, match=says):
            load_image(tmp_path / name)


def test_work_is_bounded_by_what_the_header_says(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Addresses of 100 million rows take 3.4 GB, WEBP takes 20 bytes a pixel: pixels are not all."""
    path, limit = tmp_path / "page.png", Image.MAX_IMAGE_PIXELS
    for width, height, says in (
        (10_001, 10_001, "more than the limit of 100,000,000"),
        (60_000, 60_000, "more than the limit of 100,000,000"),
        (1, 100_000_000, "a side of 100,000,000 pixels; at most 65,535 are read"),
    ):
        path.write_bytes(png((width, height, 8, 2, 0, 0, 0), b"0"))
        assert says in message_of(path)
    assert limit == Image.MAX_IMAGE_PIXELS and not recwarn.list
    Image.new("RGB", (3000, 3000)).save(tmp_path / "wide.webp", lossless=True)
    too_little = 9_000_000 * decoding.WORK_BYTES["WEBP"] - 1
    with pytest.raises(decoding.Unreadable, match=r"in WEBP take 0\.2 GB to open"):
        decoding.decode(str(tmp_path / "wide.webp"), 10_000_000, too_little, mmap.mmap(-1, 4096))
    assert load_image(tmp_path / "wide.webp", 9_000_000).size == (3000, 3000)


def test_a_program_is_not_run_and_half_an_image_is_none(tmp_path: Path) -> None:
    path, buffer = tmp_path / "page.png", io.BytesIO()
    noise(200, 200).save(buffer, "PNG")
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n"
    for content, says in (
        (postscript, "not an image of a known format"),
        (buffer.getvalue()[: buffer.tell() // 2], "damaged or truncated image"),
    ):
        path.write_bytes(content)
        assert says in message_of(path)


# --- PDFs and folders -----------------------------------------------------------------------------


@pytest.fixture
def pdf(tmp_path: Path) -> Path:
    """Three A4 pages, page n with n/4 of its width black."""
    pages = []
    for number in (1, 2, 3):
        page = Image.new("RGB", (595, 842), "white")
        page.paste("black", (0, 0, 595 * number // 4, 842))
        pages.append(page)
    path = tmp_path / "my paper.pdf"
    pages[0].save(path, save_all=True, append_images=pages[1:], resolution=72)
    return path


def test_pdf_pages_are_rendered_when_taken(pdf: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    pages = expand([pdf], work_directory=work)
    assert len(pages) == 3 and pages.name(1) == "my paper.pdf#2"
    assert not work.exists()
    second = pages[1]
    assert second.source == "my paper.pdf#2"
    assert [file.name for file in work.iterdir()] == [second.path.name]
    image = load_image(second.path)
    assert abs(image.width - 1240) <= 1 and abs(image.height - 1755) <= 1
    assert abs(np.asarray(image.convert("L")).mean() / 255 - 0.5) < 0.01
    assert [page.source[-2:] for page in pages] == ["#1", "#2", "#3"]
    assert [page.source[-2:] for page in pages[1:]] == ["#2", "#3"]


@pytest.mark.parametrize(
    ("chosen", "most", "names"),
    [
        (None, 2, ["my paper.pdf#1-2", "my paper.pdf#3", "a.png+1"]),
        ("1,3,2", 9, ["my paper.pdf#1,3,2", "a.png+1"]),
        (None, 1, ["my paper.pdf#1", "my paper.pdf#2", "my paper.pdf#3", "a.png", "b.png"]),
    ],
)
def test_pages_together_are_those_of_a_document(
    pdf: Path, tmp_path: Path, chosen: str | None, most: int, names: list[str]
) -> None:
    """Images are one document, whatever lies between them; a file that cannot be read is by itself."""
    for name in ("a.png", "b.png"):
        noise().save(tmp_path / name)
    (tmp_path / "torn.pdf").write_bytes(b"%PDF-1.4 torn")
    given = [pdf, tmp_path / "a.png", tmp_path / "torn.pdf", tmp_path / "b.png"]
    pages = expand(given, chosen, tmp_path / "work", dpi=30)
    together = pages.together(most)
    assert [together.name(i) for i in range(len(together))] == [*names, "torn.pdf"]
    first = together[0]
    assert [first.path, *(first.more or ())] == [pages[i].path for i in range(min(most, 3))]
    with pytest.raises(DocumentError, match=r"torn\.pdf"):
        together[len(names)]


def test_chosen_pages_come_in_the_order_given_and_bad_lists_are_refused(pdf: Path, tmp_path: Path) -> None:
    pages = expand([pdf], "3,1-2", tmp_path)
    assert [pages.name(i)[-2:] for i in range(3)] == ["#3", "#1", "#2"] and parse_pages("1-", 2) == [1, 2]
    for text in ("", "0", "a", "3-2", "1,,2", "10", "1-10", "-3", "1-999999999", "٣", "1.5"):
        with pytest.raises(DocumentError, match="pages '"):
            parse_pages(text, 9)
    noise().save(image := tmp_path / "a.png")
    for file, chosen, says in ((pdf, "4", r"my paper\.pdf: pages '4'"), (image, "1", "none of the")):
        with pytest.raises(DocumentError, match=says):
            expand([file], chosen)


def test_a_pdf_that_cannot_be_read_is_an_error(tmp_path: Path, pdf: Path) -> None:
    path = tmp_path / "bad.pdf"
    secret = b"<</Filter/Standard/V 1/R 2/P -4/O<%b>/U<%b>>>" % (b"11" * 32, b"22" * 32)
    locked = one_page(secret).replace(b"/Root", b"/Encrypt 4 0 R/ID[<33><33>]/Root")
    for content, says in (
        (locked, r"bad\.pdf: the PDF needs a password; save a copy without"),
        (b"%PDF-1.4 nothing", r"bad\.pdf: not a readable PDF"), (b"", "the file is empty"),
    ):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(DocumentError, match=says):
            expand([path])
    for number, pixels, says in ((4, 10**8, "has no page 4"), (1, 10**6, "lower pdf_dpi")):
        with pytest.raises(DocumentError, match=says):
            render_pdf_page(pdf, number, tmp_path, max_pixels=pixels)


def test_what_was_typed_into_a_form_is_drawn(tmp_path: Path) -> None:
    form = (
        b"<</Type/Catalog/Pages 2 0 R"
        b"/AcroForm<</Fields[4 0 R]/DA(/Helv 0 Tf 0 g)/DR<</Font<</Helv 5 0 R>>>>>>>>",
        PAGE_TREE[1], b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Annots[4 0 R]>>",
        b"<</Subtype/Widget/F 4/P 3 0 R/T(a)/Rect[20 20 280 120]/DA(/Helv 40 Tf 0 g)/FT/Tx/V(Typed in)>>",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    )  # fmt: skip
    (tmp_path / "form.pdf").write_bytes(document(form))
    image = load_image(render_pdf_page(tmp_path / "form.pdf", 1, tmp_path)).convert("L")
    assert (np.asarray(image) < 64).sum() > 500


def test_a_bad_pdf_costs_only_itself(tmp_path: Path, pdf: Path) -> None:
    """One that cannot be read, or that does not have the page asked for."""
    for number, bad in enumerate((one_page(b"<<>>"), b"%PDF-1.4 nothing", b"", b"<html>not found</html>")):
        other = tmp_path / f"other{number}.pdf"
        other.write_bytes(bad)
        pages = expand([other, pdf], "2", tmp_path / "work")
        assert [pages.name(at) for at in range(2)] == [other.name, "my paper.pdf#2"]
        assert pages[1].path.is_file()
        with pytest.raises(DocumentError, match=rf"{other.name}: "):
            pages[0]


def test_folder_in_natural_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("page10.png", "page2.PNG", "Page1.jpg", ".hidden.png", "notes.txt"):
        noise().save(tmp_path / name, format="PNG") if "notes" not in name else (tmp_path / name).touch()
    (tmp_path / "folder.png").mkdir()
    for name in ("a.HEIC", "b.heic", "c.j2k", "scan"):
        (tmp_path / name).touch()
    assert [page.source for page in expand([tmp_path])] == ["Page1.jpg", "page2.PNG", "page10.png"]
    (message,) = caplog.messages
    others = message.partition(": 6 not read: ")[2].split(", ")
    assert others == ["a.HEIC", "b.heic", "c.j2k", "notes.txt", "scan", "folder.png/"]


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    names = ["a/new/page.png", "b/new/page.png", "b/old/page.png", "b/old/other.png"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    pages = expand([tmp_path / name for name in names])
    assert [page.source for page in pages] == [
        "a/new/page.png", "b/new/page.png", "b/old/page.png", "other.png",
    ]  # fmt: skip
    assert [page.path for page in pages] == [tmp_path / name for name in names]
    two = expand([tmp_path / "b" / "new", tmp_path / "b" / "old"])
    assert [page.source for page in two] == ["new/page.png", "other.png", "old/page.png"]
    # A name that another file has already becomes a whole path.
    shutil.copytree(tmp_path / "a", tmp_path / "folder" / "b")
    given = [tmp_path / "folder", tmp_path / "b/new/page.png", tmp_path / "a/new/page.png"]
    names = [page.source for page in expand(given, recursive=True)]
    whole = (tmp_path / "b/new/page.png").relative_to("/").as_posix()
    assert len({*names}) == 3 and names[1:] == [whole, "a/new/page.png"]


@pytest.mark.parametrize("given", [["."], [".", "below"], [".", "below/deep"]])
def test_folders_below_are_read_and_named_where_that_is_asked_for(tmp_path: Path, given: list[str]) -> None:
    (tmp_path / "below" / "deep").mkdir(parents=True)
    (tmp_path / "below" / "again").symlink_to(tmp_path)
    for name in ("b.png", "below/a.png", "below/deep/a.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    (tmp_path / "below" / ".hidden").mkdir()
    shutil.copy(tmp_path / "b.png", tmp_path / "below" / ".hidden")
    paths = [tmp_path / name for name in given]
    found = [page.source for page in expand(paths, recursive=True)]
    assert found == ["b.png", "below/a.png", "below/deep/a.png"]
    flat = [page.source for page in expand(paths)]
    assert flat == [name for name in found if Path(name).parent.as_posix() in given]


def test_a_full_disk_leaves_nothing(pdf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(DocumentError, match="No space left on device"):
        render_pdf_page(pdf, 1, tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []
