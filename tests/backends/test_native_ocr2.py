"""transformers' own DeepSeek-OCR-2 as a witness: docs/examples/native_ocr2.py beside the eager engine.

It needs an environment with transformers 5.10.1 or later, which DSOCR_NATIVE_PYTHON names.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
import torch

from dsocr_core.backends.backend import open_backend
from dsocr_core.base.specs import parse_backend
from dsocr_core.engine.base import EngineOptions
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.settings import InferSettings, Settings
from tests.support.both_backends import noise_page, step_logits
from tests.support.paths import ROOT
from tests.support.seeded_weights import tiny_ocr2_config, write_seeded_checkpoint

PYTHON = os.environ.get("DSOCR_NATIVE_PYTHON", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="DSOCR_NATIVE_PYTHON names no interpreter")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeded_checkpoint(tiny_ocr2_config(), tmp_path_factory.mktemp("native") / "ocr2")


@pytest.mark.parametrize(
    ("size", "ngram", "grid"),
    [((700, 300), 2, (1, 1)), ((1000, 2000), 20, (1, 2)), ((1800, 1200), 2, (3, 2)), ((20, 900), 2, (1, 6))],
)
def test_tokens_are_the_same_and_logits_to_1e_5(
    checkpoint: Path, tmp_path: Path, size: tuple[int, int], ngram: int, grid: tuple[int, int]
) -> None:
    infer = InferSettings(max_new_tokens=48, no_repeat_ngram_size=ngram)
    request = Settings(checkpoint=str(checkpoint), infer=infer).request(noise_page(tmp_path, *size))
    engine = EagerEngine(
        load_checkpoint(str(checkpoint), torch.device("cpu"), torch.float32), EngineOptions("eager")
    )
    ours, logits = step_logits(engine, request)
    assert ours.required_inputs.grid == grid

    told = tmp_path / "native.pt"
    words = [PYTHON, str(ROOT / "docs/examples/native_ocr2.py"), "--checkpoint", str(checkpoint),
             "--new-tokens", "48", "--ngram-size", str(ngram), "--logits", str(told)]  # fmt: skip
    target = f"{shlex.join(words)} --image {{image}} --out {{out}}"
    native = open_backend(
        parse_backend({"spec": f"command:{target}", "name": "native", "timeout_s": 300}), Settings()
    )
    assert native.read(request).text_raw == ours.text_raw
    theirs = torch.load(told, weights_only=True)
    assert tuple(theirs["tokens"]) == ours.token_ids
    torch.testing.assert_close(logits, theirs["logits"], rtol=0, atol=1e-5)
