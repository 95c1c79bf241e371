"""The processes that open hostile files: limits hold, and one file's trouble stays its own."""

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest
from PIL import Image, ImageOps

from dsocr_core.base.system import new_memory
from dsocr_core.page import opener
from dsocr_core.page.decoding import Unreadable
from dsocr_core.page.documents import DocumentError, expand, load_image, pdf_page_count, render_pdf_page
from dsocr_core.page.opener_answers import PAGE, UPRIGHT
from tests.hostile import pdfs


@pytest.fixture(autouse=True)
def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one core is."""
    monkeypatch.setattr(opener, "MOST_PROCESSES", 2)
    monkeypatch.setattr(opener, "_openers", opener._Openers())


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.png"
    Image.effect_noise((60, 40), 80).convert("RGB").save(path)
    return path


def warm() -> int:
    (one,) = opener._openers._idle
    return one.child.pid


def endless(folder: Path) -> Path:
    path = folder / "endless.pdf"
    path.write_bytes(pdfs.many_operators(400_000))
    return path


def test_a_page_that_computes_for_ever_is_ended_and_holds_nobody_up(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opener, "CPU_SECONDS", 1)
    refused: list[str] = []

    def render() -> None:
        with pytest.raises(DocumentError) as error:
            render_pdf_page(endless(tmp_path), 1, tmp_path / "pages")
        refused.append(str(error.value))

    rendering = threading.Thread(target=render)
    rendering.start()
    opened = 0
    while rendering.is_alive():
        load_image(page)
        opened += 1
        time.sleep(0.02)
    rendering.join()
    assert opened > 3
    assert "endless.pdf: takes more than 1 s of computing to open" in refused[0]
    assert load_image(page).size == (60, 40)


def test_a_page_that_waits_for_ever_is_ended(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_image(page)
    before = warm()
    os.kill(before, signal.SIGSTOP)
    monkeypatch.setattr(opener, "WALL_SECONDS", 0.1)
    with pytest.raises(DocumentError, match=r"not open within 0\.1 s"):
        load_image(page)
    monkeypatch.undo()
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)


@pytest.mark.parametrize(
    "make",
    [partial(pdfs.flate_bomb, 400_000_000, 2), partial(pdfs.nested_forms, 24, 10)],
    ids=["flate", "forms"],
)
def test_a_page_that_swells_is_refused(
    make: Callable[[], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opener, "CPU_SECONDS", 1)
    content = make()  # not in the list above: every process that collects the tests would compress it
    path = tmp_path / "bomb.pdf"
    path.write_bytes(content)
    assert len(content) < 10_000
    with pytest.raises(DocumentError, match=r"bomb\.pdf: (takes more than 1 s|took the memory)"):
        render_pdf_page(path, 1, tmp_path / "pages", dpi=72, max_pixels=1_000_000)


def test_a_pdf_that_claims_a_million_pages_is_not_listed(tmp_path: Path) -> None:
    path = tmp_path / "claims.pdf"
    path.write_bytes(pdfs.claiming(10**6, 100))
    with pytest.raises(DocumentError, match=r"claims\.pdf: the PDF has 1,000,000 pages; at most 20,000"):
        expand([path])
    path.write_bytes(pdfs.claiming(1, 100))
    assert pdf_page_count(path) == 1


def test_one_process_stays_warm_and_a_dead_one_is_replaced(page: Path) -> None:
    load_image(page)
    first = warm()
    load_image(page)
    assert warm() == first
    assert b"torch" not in Path(f"/proc/{first}/maps").read_bytes()
    os.kill(first, signal.SIGKILL)
    opener._openers._idle[0].child.wait(60)
    load_image(page)
    assert warm() != first


def test_after_a_fork_no_process_is_shared(page: Path) -> None:
    load_image(page)
    there = warm()
    child = os.fork()
    if child == 0:
        try:
            load_image(page)
            os._exit(0 if warm() != there else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    load_image(page)
    assert warm() == there


def answer(width: int = 2, height: int = 2, mode: int = 0, turn: int = UPRIGHT, kind: bytes = b"P") -> bytes:
    return PAGE.pack(kind, width, height, mode, turn, 0)


NO_SENSE = [
    b"", b"P", b"N12", b"{}", answer() + b"0", answer(kind=b"Q"), answer(0, 4), answer(4, 0), answer(mode=3),
    answer(mode=255), answer(turn=7), answer(turn=-3), answer(2**32 - 1, 2**32 - 1), answer(3000, 3000),
]  # fmt: skip


@pytest.fixture
def pixels() -> Iterator[int]:
    """Memory of 2 x 2 pixels, as the process sends it."""
    descriptor = new_memory()
    os.write(descriptor, b"\1" * 16)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("said", [*NO_SENSE, answer(2, 1), answer(1, 2), answer(3, 3)], ids=repr)
def test_what_the_process_says_of_its_pixels_is_held_against_them(said: bytes, pixels: int) -> None:
    """A file may have taken the process over."""
    with pytest.raises(Unreadable, match="made no sense"):
        opener._shared_image(said, pixels, 100)


def test_only_memory_that_can_be_sealed_is_taken_as_pixels(tmp_path: Path) -> None:
    (tmp_path / "pixels").write_bytes(b"\1" * 16)
    with (tmp_path / "pixels").open("rb") as file, pytest.raises(Unreadable, match="made no sense"):
        opener._shared_image(answer(), file.fileno(), 100)


def test_pixels_cannot_change_once_they_are_believed(pixels: int) -> None:
    assert opener._shared_image(answer(), pixels, 100).getpixel((1, 1)) == (1, 1, 1)
    with pytest.raises(OSError):
        os.pwrite(pixels, b"\2", 0)
    with pytest.raises(OSError):
        os.ftruncate(pixels, 0)


def test_a_usual_page_is_held_against_its_memory(page: Path) -> None:
    load_image(page)
    with opener._openers.one() as one:
        for said in NO_SENSE:
            assert one.usual_page(answer()).size == (2, 2)
            with pytest.raises(Unreadable, match="made no sense"):
                one.usual_page(said)


def test_a_count_is_a_number_and_what_is_sent_along_is_closed(
    page: Path, pixels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [
        (said, os.dup(pixels)) for said in (b"N", b"N0", b"N-1", b"N1e9", b"N" + b"9" * 5000, answer())
    ]
    for said in answers:
        monkeypatch.setattr(opener._Opener, "ask", lambda *_, said=said: said)
        with pytest.raises(Unreadable, match="made no sense"):
            opener.count_pages(page)
        with pytest.raises(OSError):
            os.fstat(said[1])


def test_large_pages_leave_no_descriptor_behind(page: Path, tmp_path: Path) -> None:
    Image.new("RGB", (3000, 3000)).save(tmp_path / "large.bmp")

    def opened() -> list[int]:
        load_image(page)  # the process takes it after it is done with the one before
        return [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in (os.getpid(), warm())]

    before = opened()
    for _ in range(3):
        load_image(tmp_path / "large.bmp").close()
    assert opened() == before


def test_pages_of_every_way_back_have_the_same_pixels(tmp_path: Path) -> None:
    """Decoded into the shared memory, copied there, converted and turned after, or too large for it."""
    random = Random(3)
    for number, mode in enumerate(["RGB", "L", "RGBA", "P", "LA", "1", "CMYK", "I;16", "RGB", "L"]):
        for size in ((40, 30), (3, 2)):
            channels = {"RGB": 3, "LA": 2, "I;16": 2, "RGBA": 4, "CMYK": 4}.get(mode, 1)
            small = Image.frombytes(mode, (3, 2), random.randbytes(6 * channels))
            image = small.resize(size, Image.Resampling.NEAREST)
            for ending in ("png", "tif"):
                if (mode, ending) == ("CMYK", "png"):
                    continue
                file = tmp_path / f"{number}-{size[0]}.{ending}"
                image.save(file)
                assert_opened_alike(file)


def assert_opened_alike(file: Path) -> None:
    """With the bits of the published code's way, in one process."""
    with Image.open(file) as there:
        try:
            turned = ImageOps.exif_transpose(there)
        except Exception:  # noqa: BLE001 - as the published code
            turned = there
        published = turned.convert("RGB")
    page = load_image(file)
    assert (page.mode, page.size) == ("RGB", published.size)
    assert page.tobytes() == published.tobytes()


def test_a_page_stays_as_it_is_when_others_are_opened_and_can_be_drawn_on(tmp_path: Path) -> None:
    pages = []
    for number, side in enumerate((20, 3000, 20, 3000)):
        Image.new("RGB", (side, side), (number, number, number)).save(tmp_path / f"{number}.bmp")
        pages.append(load_image(tmp_path / f"{number}.bmp"))
    for number, page in enumerate(pages):
        assert page.getpixel((7, 7)) == (number, number, number)
        page.paste((9, 9, 9), (0, 0, 2, 2))
        page.putpixel((3, 3), (8, 8, 8))
        assert page.getpixel((1, 1)) == (9, 9, 9) and page.getpixel((3, 3)) == (8, 8, 8)


def test_names_of_any_bytes_are_opened(page: Path, tmp_path: Path) -> None:
    name = tmp_path / os.fsdecode(b"caf\xe9 \n.png")
    page.rename(name)
    assert load_image(name).size == (60, 40)


def test_a_folder_through_a_link_is_the_one_that_the_system_finds(page: Path, tmp_path: Path) -> None:
    """`link/..` is the folder above the link's target."""
    (tmp_path / "there" / "deep").mkdir(parents=True)
    Image.new("RGB", (7, 5)).save(tmp_path / "there" / "page.png")
    (tmp_path / "link").symlink_to(tmp_path / "there" / "deep")
    assert load_image(tmp_path / "link" / ".." / "page.png").size == (7, 5)


def test_a_zero_byte_in_a_name_opens_no_other_file(page: Path) -> None:
    with pytest.raises(DocumentError, match="null byte"):
        load_image(Path(f"{page}\0.png"))
    with pytest.raises(Unreadable, match="zero byte"):
        opener.open_image(Path(f"{page}\0.png"), 100_000)


def test_limits_that_the_machine_has_already_stay(page: Path) -> None:
    """As after `ulimit -v 8000000 -t 500`: no process can have more."""
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_AS, (8 * 10**9, 8 * 10**9))
            resource.setrlimit(resource.RLIMIT_CPU, (500, 500))
            os._exit(0 if load_image(page).size == (60, 40) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
