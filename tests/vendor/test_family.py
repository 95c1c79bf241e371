"""The worker beside the eager engine on the further models of the family, and what it refuses of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dsocr_core.base.errors import DsocrError
from dsocr_core.engine.base import EagerEngine
from dsocr_core.models.taps.files import Dump
from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.records import OcrRequest
from dsocr_core.settings import InferSettings, Settings
from dsocr_core.trace.run import compare_dumps
from dsocr_core.trace.sides import Task, trace_engine, trace_vendor
from dsocr_core.vendor.backend import VendorBackend
from dsocr_core.vendor.errors import VendorError
from tests.support.seeded_weights import tiny_ocr2_config, tiny_unlimited_config, write_seeded_checkpoint
from tests.vendor.both_backends import noise_page, open_backends

Both = tuple[EagerEngine, VendorBackend]


@pytest.fixture(scope="module")
def ocr2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeded_checkpoint(tiny_ocr2_config(), tmp_path_factory.mktemp("ocr2") / "tiny_ocr2")


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def both(request: pytest.FixtureRequest, ocr2: Path, interpreter: Path) -> Iterator[Both]:
    with open_backends(ocr2, "cpu", request.param, interpreter) as sides:
        yield sides


def request_of(checkpoint: Path, page: Path, preset: str, tokens: int = 16) -> OcrRequest:
    """Random weights repeat themselves: no two tokens may come twice."""
    infer = InferSettings(max_new_tokens=tokens, no_repeat_ngram_size=2)
    return Settings(checkpoint=str(checkpoint), preset=preset, infer=infer).request(page)


@pytest.mark.parametrize(
    ("preset", "size", "grid", "count"),
    [
        ("default", (700, 300), (1, 1), 257),
        ("default", (1000, 2000), (1, 2), 545),
        ("768", (500, 900), (1, 1), 145),
        ("1024", (500, 900), (1, 1), 257),
    ],
)
def test_inputs_and_tokens_are_those_of_the_published_code(
    both: Both, ocr2: Path, tmp_path: Path, preset: str, size: tuple[int, int], grid: object, count: int
) -> None:
    request = request_of(ocr2, noise_page(tmp_path, *size), preset)
    ours, theirs = (side.recognize(request) for side in both)
    assert ours.required_inputs.image_token_count == count and ours.required_inputs.grid == grid
    assert ours.inputs == theirs.inputs
    assert ours.token_ids == theirs.token_ids and len(set(ours.required_tokens)) > 2
    logits = [torch.tensor([step.logits for step in each.top_two]) for each in (ours, theirs)]
    torch.testing.assert_close(*logits, rtol=0, atol=1e-5 if ours.inputs.dtype == "float32" else 0)
    assert {*ours.request.family.vision} < {each.stage for each in theirs.timings}


def test_every_tap_is_equal(both: Both, ocr2: Path, tmp_path: Path) -> None:
    request = request_of(ocr2, noise_page(tmp_path, 1000, 2000), "default")
    tokens = trace_engine(both[0], Task(request, 3, tmp_path / "a"))
    assert trace_vendor(both[1], Task(request, 3, tmp_path / "b", tokens)) == tokens
    summary = compare_dumps(Dump(tmp_path / "a"), Dump(tmp_path / "b"))
    assert [row.name for row in summary.tensors if row.differs] == []
    names = {row.name for row in summary.tensors}
    assert {"encoder.block1.k", "encoder.norm", "projector", "decoder.layer2.keys"} <= names
    assert summary.only_b == () and {name.rpartition(".")[2] for name in summary.only_a} == {"queries"}


def test_what_the_published_code_would_read_otherwise_is_refused(ocr2: Path, tmp_path: Path) -> None:
    page = noise_page(tmp_path, 300, 200)
    backend = VendorBackend(ocr2, trusted_directories=(ocr2,))
    usual = request_of(ocr2, page, "default")
    for request, words in (
        (OcrRequest(page, "gundam"), "no preset 'gundam' of DeepSeek-OCR; choose one of default, 768, 1024"),
        (replace(usual, tile_size=704), r"no infer\.tile_size"),
        (replace(usual, ngram_window=90), r"no infer\.ngram_window"),
        (replace(usual, preset="1024", more=(page,)), "2 images, and a prompt takes 1"),
    ):
        with pytest.raises(DsocrError, match=words):
            backend.recognize(request)
    with pytest.raises(VendorError, match="no attention 'sdpa'; give --attention eager"):
        VendorBackend(ocr2, attention="sdpa", trusted_directories=(ocr2,)).check()


def test_a_ring_that_has_turned_is_equal_tap_by_tap(tmp_path: Path, interpreter: Path) -> None:
    """Under a window of 8, bfloat16, 20 steps; the rule is `infer`'s own argument, and so is `max_length`."""
    checkpoint = write_seeded_checkpoint(tiny_unlimited_config(8), tmp_path / "tiny_unlimited")
    page = noise_page(tmp_path, 900, 700)
    settings = Settings(checkpoint=str(checkpoint), preset="base", infer=InferSettings(max_new_tokens=24))
    request = settings.request(page)
    with open_backends(checkpoint, "cpu", "bfloat16", interpreter) as (ours, vendor):
        result = vendor.recognize(request)
        assert result.inputs == ours.recognize(request).inputs
        assert result.environment["overridden"] == "max_length"
        assert (result.inputs.ngram_window, result.inputs.rotary_dtype) == (128, "float32")
        tokens = trace_engine(ours, Task(request, 20, tmp_path / "a"))
        trace_vendor(vendor, Task(request, 20, tmp_path / "b", tokens))
    a, b = Dump(tmp_path / "a"), Dump(tmp_path / "b")
    summary = compare_dumps(a, b)
    assert [row.name for row in summary.tensors if row.differs] == []
    keys = [a.tensor(call, "decoder.layer2.keys") for call in range(1, 21)]
    assert all(key.shape[0] == 1 for key in keys)
    assert len({key.numpy(force=True).tobytes() for key in map(torch.Tensor.float, keys)}) == 20


def test_three_pages_in_one_prompt_are_read_alike_past_the_rings_turn(
    tmp_path: Path, interpreter: Path
) -> None:
    directory = write_seeded_checkpoint(tiny_unlimited_config(8), tmp_path / "unlimited")
    pages = [noise_page(tmp_path, 300 + 50 * number, 400) for number in range(3)]
    request = Settings(checkpoint=str(directory)).request(pages[0], more=tuple(pages[1:]))
    request = replace(request, max_new_tokens=24, no_repeat_ngram_size=1)  # no id of the prompt either
    with open_backends(directory, "cpu", "float32", interpreter) as (ours, vendor):
        a, b = ours.recognize(request), vendor.recognize(request)
    report = compare_results(a, b)
    assert len(a.required_inputs.prompt_ids) > 3 * 273 and len(a.required_tokens) > 16
    assert (report.verdict, report.tokens_equal, report.input_parity) == ("identical", True, True), (
        report.reasons
    )
    assert a.sizes == b.sizes == ((300, 400), (350, 400), (400, 400))
