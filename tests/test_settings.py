"""Settings: ranges, defaults of the checkpoint, what a request takes from them, and settings of a side."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.reading.records import UNLIMITED
from dsocr_core.settings import InferSettings, Settings, VendorSettings, settings_of

PAGE = Path("page.png")
Given = dict[str, Any]


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        *((InferSettings, {"max_new_tokens": value}, "max_new_tokens")
          for value in (0, -1, "", "many", "-inf", "1e3", True)),
        (InferSettings, {"tile_size": 650}, "tile_size"), (InferSettings, {"max_tiles": 65}, "max_tiles"),
        (VendorSettings, {"timeout_s": 0}, "timeout_s"),
        *((Settings, {name: value}, name) for name, value in (
            ("preset", "huge"), ("prompt", "no picture"), ("max_megapixels", 0.0), ("pdf_dpi", 5),
            ("pdf_dpi", 5000), ("checkpoint", None))),
        *((Settings, {"draft": each}, "give folder:PATH or lookup")
          for each in ("text", "folder", "folder:", "text-layer", "run:x", "a")),
        (Settings, {"a": "turbo"}, "is not known"),
        (Settings, {"b": {"spec": "eager", "infer": {"tokens": 3}}}, "eager-2: Group 'infer' does not acc"),
        (Settings, {"b": {"spec": "eager", "infer.max_new_tokens": 0}}, "infer.max_new_tokens is 0"),
        (Settings, {"b": {"spec": "vendor", "timeout_s": 0}}, "vendor.timeout_s is 0"),
        (Settings, {"b": {"spec": "eager", "preset": "huge"}}, "huge"),
        (Settings, {"backends": {"x": {"spec": "endpoint:nowhere"}}}, "not like http"),
        (Settings, {"a": "x", "backends": {"y": "eager"}}, "folder:PATH, y"),
        (lambda colour: settings_of({"colour": colour}), {"colour": 1}, "'colour' is no setting"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(kind: Callable[..., object], given: Given, says: str) -> None:
    with pytest.raises(DsocrError) as error:
        kind(**given)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_defaults_suit_the_checkpoint_and_settings_come_back_from_their_document() -> None:
    assert Settings().preset_name == "small"
    assert Settings(checkpoint="elsewhere").preset_name == "gundam"
    assert Settings(infer=InferSettings(max_new_tokens=" INF ")).request(PAGE).max_new_tokens == UNLIMITED
    infer, vendor = InferSettings(max_new_tokens="inf", ngram_whitelist=["<td>"]), VendorSettings("py", 7.5)
    settings = Settings(preset="tiny", infer=infer, vendor=vendor, b={"spec": "eager", "dtype": "float32"})
    assert settings_of(json.loads(json.dumps(asdict(settings)))) == settings


RUNS = """
from dsocr_core.runs.history import DEFAULT_LOCATION
from dsocr_core.base.paths import RUNS_DIRECTORY
from dsocr_core.settings import Settings, history_location
print(RUNS_DIRECTORY, history_location(Settings()), DEFAULT_LOCATION)
"""


def test_the_runs_directory_may_be_named_by_the_environment(tmp_path: Path) -> None:
    environment = os.environ | {"DSOCR_RUNS": str(tmp_path)}
    command = [sys.executable, "-c", RUNS]
    said = subprocess.check_output(command, cwd=PROJECT_ROOT, env=environment, text=True)
    assert said.split() == [str(tmp_path), str(tmp_path / "history"), str(tmp_path / "history")]


@pytest.mark.parametrize(
    ("infer", "size"),
    [({}, 20), ({"eval_mode": True}, 35), ({"eval_mode": True, "no_repeat_ngram_size": 20}, 20),
     ({"no_repeat_ngram_size": 0}, 0)],
)  # fmt: skip
def test_the_ngram_size_is_the_published_modes_own_unless_one_is_given(infer: Given, size: int) -> None:
    assert Settings(infer=InferSettings(**infer)).request(PAGE).no_repeat_ngram_size == size


UNLIMITED_OCR = "UnlimitedOCRForCausalLM"


@pytest.mark.parametrize(
    ("architecture", "others", "more", "expected"),
    [
        (UNLIMITED_OCR, {}, None, ("gundam", "<image>document parsing.", 128)),
        (UNLIMITED_OCR, {}, 2, ("base", "<image>Multi page parsing.", 1024)),
        (UNLIMITED_OCR, {}, 0, ("base", "<image>Multi page parsing.", 1024)),  # a document of one page
        (UNLIMITED_OCR, {"preset": "Base", "prompt": "<image>Mine."}, 0, ("base", "<image>Mine.", 1024)),
        ("DeepseekOCR2ForCausalLM", {}, 1, "DeepSeek-OCR-2 takes at most 1"),
        (UNLIMITED_OCR, {}, 119, "120 pages: a prompt of Unlimited-OCR takes at most 119"),
        (UNLIMITED_OCR, {"preset": "gundam"}, 1, "'gundam' cuts its pages.*base"),
        (UNLIMITED_OCR, {"preset": "small"}, 1, "choose one of base, gundam"),
    ],
)
def test_pages_in_one_prompt_have_settings_of_their_own_or_are_refused(
    architecture: str, others: Given, more: int | None, expected: object, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    settings, pages = Settings(checkpoint=str(tmp_path), **others), None if more is None else (PAGE,) * more
    if isinstance(expected, str):
        with pytest.raises(DsocrError, match=expected):
            settings.request(PAGE, more=pages)
        return
    request = settings.request(PAGE, more=pages)
    assert (request.preset, request.prompt, request.ngram_window) == expected
    assert request.images == (PAGE,) * (1 + (more or 0))


# --- what reads as A and as B ------------------------------------------------------------------------


def test_a_side_has_its_own_settings_and_the_run_s_where_it_has_none() -> None:
    usual = Settings()
    assert usual.side_names == ("eager", "vendor") and usual.of_side("a") is usual
    own = {"spec": "eager", "dtype": "bfloat16", "infer.max_new_tokens": "9"}
    infer = InferSettings(max_new_tokens=50, no_repeat_ngram_size=35)
    settings = Settings(preset="tiny", infer=infer, b=own)
    a, b = settings.of_side("a"), settings.of_side("b")
    assert (a.engine, a.dtype, a.infer.max_new_tokens) == ("eager", "auto", 50)
    assert (b.engine, b.dtype, b.preset) == ("eager", "bfloat16", "tiny")
    assert (b.request(PAGE).max_new_tokens, b.request(PAGE).no_repeat_ngram_size) == (9, 35)
    assert settings.side_names == ("eager", "eager-2")
    of_worker = Settings(b={"spec": "vendor", "timeout_s": 7, "interpreter": "/usr/bin/python3"})
    assert of_worker.of_side("b").vendor == VendorSettings("/usr/bin/python3", 7.0)
    named = Settings(a="exact", b="exact", backends={"exact": {"spec": "eager", "dtype": "float32"}})
    assert named.side_names == ("exact", "exact-2") and named.of_side("b").dtype == "float32"


SDPA = {"spec": "eager", "attention": "sdpa"}


@pytest.mark.parametrize(
    ("given", "a", "b"),
    [
        ({}, "eager", "eager"),
        ({"attention": "flash_attention_2"}, "flash_attention_2", "flash_attention_2"),
        ({"attention": "sdpa"}, "sdpa", "eager"), ({"a": SDPA}, "sdpa", "eager"),
        ({"a": "fast", "b": "eager"}, "sdpa", "eager"), ({"b": "endpoint:http://h/v1"}, "eager", None),
    ],
)  # fmt: skip
def test_a_comparison_takes_an_attention_that_both_sides_have(given: Given, a: str, b: str | None) -> None:
    compared = Settings(**given).for_comparison()
    of_b = compared.of_side("b")
    assert compared.of_side("a").own_attention == a
    assert b in (None, of_b.own_attention if given.get("b") == "eager" else of_b.vendor_attention)
