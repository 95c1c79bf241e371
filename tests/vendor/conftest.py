"""A tiny checkpoint whose remote code misbehaves when the prompt says so."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.vendor.backend import VendorBackend
from tests.published.remote_code import published_page
from tests.support.seeded_weights import tiny_config, write_seeded_checkpoint

MISCHIEF = """

import os
import sys
import threading

_infer = DeepseekOCRForCausalLM.infer


def infer(self, tokenizer, prompt="", **arguments):
    if "NOISE" in prompt:
        print('{"type":"Loaded","environment":{}}', flush=True)
        os.write(1, b'{"type":"Failure"}\\n' + b"\\x00\\xff" * 40_000 + b"\\n")
        sys.__stdout__.write("not for you\\n")
        os.system("echo a child speaks")
        print(sys.stdin.read(), flush=True)
    if "RAISE" in prompt:
        raise RuntimeError("first line\\nsecond line")
    if "LEAVE" in prompt:
        sys.exit(3)
    if "MEMORY" in prompt:
        raise MemoryError("no room")
    if "HANG" in prompt:
        threading.Event().wait()
    if "SILENT" in prompt:
        return None
    if "TWICE" in prompt:
        _infer(self, tokenizer, prompt, **arguments)
    if "AFTERWARDS" in prompt:  # as the published code does with a text that names line types
        _infer(self, tokenizer, prompt, **arguments)
        raise NameError("name 'line_type'\\nis not defined")
    if "KEEP" in prompt:
        self.returned = _infer(self, tokenizer, prompt, **arguments)
        print("infer returned", repr(self.returned))
        raise ValueError(repr((self.returned, sorted(os.listdir(arguments["output_path"])))))
    return _infer(self, tokenizer, prompt, **arguments)


DeepseekOCRForCausalLM.infer = infer
"""


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its name has a dot, which a Python module's must not have."""
    directory = write_seeded_checkpoint(tiny_config(), tmp_path_factory.mktemp("vendor") / "tiny.v1")
    with (directory / "modeling_deepseekocr.py").open("a") as code:
        code.write(MISCHIEF)
    return directory


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stored lying on its side: 500 x 700 once turned upright."""
    path = tmp_path_factory.mktemp("page") / "page.png"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(published_page(700, 500)).save(path, exif=exif)
    return path


@pytest.fixture(scope="module")
def backend(checkpoint: Path, interpreter: Path) -> Iterator[VendorBackend]:
    backend = VendorBackend(checkpoint, interpreter=interpreter, trusted_directories=(checkpoint,))
    yield backend
    backend.close()
