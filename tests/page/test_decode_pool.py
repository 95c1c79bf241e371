"""The processes that open hostile files: limits hold, and one file's trouble stays its own."""

import json
import os
import resource
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from PIL import Image, PngImagePlugin

from dsocr_core.base.system import SharedMemory
from dsocr_core.page import decode_pool
from dsocr_core.page.decoding import Unreadable
from dsocr_core.page.documents import DocumentError, expand, load_image, pdf_page_count, render_pdf_page
from tests.hostile import pages


@pytest.fixture(autouse=True)
def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one core is."""
    monkeypatch.setattr(decode_pool, "MOST_PROCESSES", 2)
    monkeypatch.setattr(decode_pool, "_workers", decode_pool._Workers())


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.png"
    Image.effect_noise((60, 40), 80).convert("RGB").save(path)
    return path


def warm() -> int:
    (one,) = decode_pool._workers.idle
    return one.child.pid


def test_a_page_that_computes_for_ever_is_ended_and_holds_nobody_up(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_pool, "CPU_SECONDS", 1)
    (tmp_path / "endless.pdf").write_bytes(pages.many_operators(400_000))
    with ThreadPoolExecutor(1) as executor:
        rendering = executor.submit(render_pdf_page, tmp_path / "endless.pdf", 1, tmp_path / "pages")
        opened = 0
        while not rendering.done():
            load_image(page)
            opened += 1
            time.sleep(0.02)
    with pytest.raises(DocumentError, match=r"endless\.pdf: takes more than 1 s of computing to open"):
        rendering.result()
    assert opened > 3 and load_image(page).size == (60, 40)


@pytest.mark.parametrize(("how", "says"), [("waits", r"not open within 0\.1 s"), ("interrupted", "^$")])
def test_a_process_that_waits_for_ever_or_was_interrupted_is_ended(
    page: Path, monkeypatch: pytest.MonkeyPatch, how: str, says: str
) -> None:
    load_image(page)
    before = warm()
    os.kill(before, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(decode_pool, "WALL_SECONDS", 0.1)
        if how == "interrupted":
            patch.setattr(decode_pool.Child, "receive", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises((DocumentError, KeyboardInterrupt), match=says):
            load_image(page)
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)
    assert load_image(page).size == (60, 40)


def test_a_page_that_swells_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_pool, "CPU_SECONDS", 1)
    path = tmp_path / "bomb.pdf"
    for content in (pages.flate_bomb(400_000_000, 2), pages.nested_forms(24, 10)):
        path.write_bytes(content)
        assert len(content) < 10_000
        with pytest.raises(DocumentError, match=r"bomb\.pdf: (takes more than 1 s|took the memory)"):
            render_pdf_page(path, 1, tmp_path / "pages", dpi=72, max_pixels=1_000_000)


def test_a_pdf_that_claims_a_million_pages_is_not_listed(tmp_path: Path) -> None:
    path = tmp_path / "claims.pdf"
    path.write_bytes(pages.claiming(10**6, 100))
    with pytest.raises(DocumentError, match=r"claims\.pdf: the PDF has 1,000,000 pages; at most 20,000"):
        expand([path])
    path.write_bytes(pages.claiming(1, 100))
    assert pdf_page_count(path) == 1


def test_one_process_stays_warm_and_a_dead_one_is_replaced(page: Path) -> None:
    load_image(page)
    first = warm()
    load_image(page)
    assert warm() == first and b"torch" not in Path(f"/proc/{first}/maps").read_bytes()
    os.kill(first, signal.SIGKILL)
    decode_pool._workers.idle[0].child.wait(60)
    load_image(page)
    assert warm() != first


def test_after_a_fork_no_process_is_shared_and_the_machines_limits_stay(page: Path) -> None:
    """As after `ulimit -v 8000000 -t 500`: no process can have more."""
    load_image(page)
    there, child = warm(), os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_AS, (8 * 10**9, 8 * 10**9))
            resource.setrlimit(resource.RLIMIT_CPU, (500, 500))
            os._exit(0 if load_image(page).size == (60, 40) and warm() != there else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    load_image(page)
    assert warm() == there


def test_modules_of_the_current_folder_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be one that was downloaded."""
    (tmp_path / "json.py").write_text("raise SystemExit('foreign code')")
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (7, 5)).save("page.png")
    assert load_image(Path("page.png")).size == (7, 5)


def page_line(*page: Any) -> bytes:
    return json.dumps({"page": [*page, *(2, 2, False)[len(page) :]]}).encode() + b"\n"


@pytest.mark.parametrize(
    "line",
    [
        b"", b"N12\n", b"[]\n", b"[" * 1000 + b"\n", b'{"count": 1e9}\n', b'{"page": 3}\n', b'{"page": []}\n',
        page_line(0, 4), page_line(-1, -4), page_line(2.0), page_line(True), page_line(4, 0),
        page_line(2, 2, 2), page_line(2, 2, []), page_line(2, 2, 0, 1), page_line(2**40, 2**40),
        page_line(3000, 3000),
    ],
)  # fmt: skip
def test_an_answer_that_makes_no_sense_costs_its_page(
    page: Path, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may have taken the process over, which may shrink memory that is not sealed, too."""
    if not line:
        monkeypatch.delattr("os.memfd_create", raising=False)
    load_image(page)
    (one,) = decode_pool._workers.idle
    monkeypatch.setattr(decode_pool.Child, "receive", lambda *_: page_line())
    assert decode_pool.open_image(page, 100).image.size == (2, 2)
    monkeypatch.setattr(decode_pool.Child, "receive", lambda *_: line or page_line())
    if not line:
        os.ftruncate(one.memory.descriptor, 3)
    for ask in (partial(decode_pool.open_image, page, 100), partial(decode_pool.count_pages, page)):
        with pytest.raises(Unreadable, match="made no sense"):
            ask()


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no memory that can be sealed")
def test_memory_of_pixels_is_not_cut_off_by_its_process_and_is_given_back() -> None:
    """Reading what was cut off would end this process; nor does it grow."""
    memory = SharedMemory(2**22)
    os.pwrite(memory.descriptor, b"\1" * 2**22, 0)
    for size in (2**12, 2**23):
        with pytest.raises(PermissionError):
            os.ftruncate(memory.descriptor, size)
    memory.give_back(2**20)
    assert os.fstat(memory.descriptor).st_blocks * 512 == 2**20
    assert memory.mapped is not None and memory.mapped[2**20 - 1 : 2**20 + 1] == b"\1\0"
    memory.give_back(2**22)


def test_memory_that_cannot_be_mapped_is_read_and_given_back(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under `ulimit -v`."""
    monkeypatch.setattr("mmap.mmap", Mock(side_effect=OSError(12, "Cannot allocate memory")))
    assert load_image(page).tobytes() == Image.open(page).tobytes()
    memory = SharedMemory(2**22)
    os.pwrite(memory.descriptor, b"\1" * 2**22, 0)
    memory.give_back(2**20)
    assert memory.mapped is None and os.fstat(memory.descriptor).st_blocks * 512 == 2**20


def test_a_png_with_much_text_opens(tmp_path: Path) -> None:
    for packed in (False, True):
        info = PngImagePlugin.PngInfo()
        info.add_text("notes", "n" * 3_000_000, zip=packed)
        Image.new("RGB", (60, 40)).save(tmp_path / "page.png", pnginfo=info)
        assert load_image(tmp_path / "page.png").size == (60, 40)


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


def test_a_name_opens_the_file_that_the_system_finds(tmp_path: Path) -> None:
    """`link/..` is the folder above the link's target."""
    (tmp_path / "there" / "deep").mkdir(parents=True)
    name = tmp_path / "there" / os.fsdecode(b"caf\xe9 \n.png")
    Image.new("RGB", (7, 5)).save(name)
    (tmp_path / "link").symlink_to(tmp_path / "there" / "deep")
    assert load_image(tmp_path / "link" / ".." / name.name).size == (7, 5)
