"""Systems that lack what Linux has: pages are opened there, too, and what has no limit is said."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.base.system import memory_limit, memory_of
from dsocr_core.page.documents import load_image

SYSTEMS = PROJECT_ROOT / "tests" / "support"
OPEN = """
import hashlib, json, os, sys
from dsocr_core.base.system import memory_limit, memory_of
from dsocr_core.base.paths import Temporary
from dsocr_core.page.documents import load_image
from dsocr_core.page.decode_pool import count_pages, render_page
from pathlib import Path
*images, pdf = map(Path, sys.argv[1:])
pages = [load_image(path) for path in images] + [render_page(pdf, 1, 50, 10**6)]
with memory_limit(2**20), Temporary("x"):
    pass
print(json.dumps({
    "pages": [[page.size, hashlib.sha256(page.tobytes()).hexdigest()] for page in pages],
    "count": count_pages(pdf), "memory": memory_of(),
}))
"""


def on(name: str, *command: object) -> subprocess.CompletedProcess[str]:
    """A command of this Python as it is on another system."""
    path = os.pathsep.join([str(SYSTEMS / name), str(PROJECT_ROOT)])
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=PROJECT_ROOT, env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_pages_have_the_same_pixels_on_macos(tmp_path: Path) -> None:
    images = [tmp_path / f"{name}.png" for name in ("rgb", "gray", "alpha", "large")]
    for path, mode, side in zip(images, ("RGB", "L", "RGBA", "L"), (20, 30, 40, 3000), strict=True):
        Image.radial_gradient("L").resize((side, side)).convert(mode).save(path, compress_level=1)
    pdf = tmp_path / "page.pdf"
    Image.new("RGB", (200, 100)).save(pdf)
    done = on("macos", "-c", OPEN, *images, pdf)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for path, (size, digest) in zip(images, found["pages"], strict=False):
        page = load_image(path)
        assert (list(page.size), hashlib.sha256(page.tobytes()).hexdigest()) == (size, digest)
    assert len(found["pages"]) == 5 and found["count"] == 1
    assert found["memory"] is None


@pytest.mark.parametrize("command", [["-m", "dsocr_core", "--help"], ["app.py"]], ids=["dsocr", "app"])
def test_windows_is_one_line_that_names_wsl(command: list[str]) -> None:
    done = on("windows", *command)
    assert done.returncode == 1 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and "WSL" in done.stderr, done.stderr


def test_a_block_has_less_memory_and_gives_it_back() -> None:
    before, used = resource.getrlimit(resource.RLIMIT_AS), memory_of()
    assert used is not None and used[0] >= used[1] > 0
    with memory_limit(2**30):
        assert used[0] < resource.getrlimit(resource.RLIMIT_AS)[0] <= used[0] + 2**30 + 2**28
        with memory_limit(2**40):  # the smaller limit stays
            assert resource.getrlimit(resource.RLIMIT_AS)[0] <= used[0] + 2**30 + 2**28
    assert resource.getrlimit(resource.RLIMIT_AS) == before
