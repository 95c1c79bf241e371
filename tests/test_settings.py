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


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        *((InferSettings, "max_new_tokens", value) for value in (0, -1, "", "many", "-inf", "1e3", True)),
        (InferSettings, "tile_size", 650), (InferSettings, "max_tiles", 65), (VendorSettings, "timeout_s", 0),
        (Settings, "preset", "huge"), (Settings, "prompt", "no picture"), (Settings, "max_megapixels", 0.0),
        (Settings, "pdf_dpi", 5), (Settings, "pdf_dpi", 5000), (Settings, "checkpoint", None),
    ],
)  # fmt: skip
def test_values_out_of_range_are_named(kind: Callable[..., object], field: str, value: object) -> None:
    with pytest.raises(DsocrError, match=field) as error:
        kind(**{field: value})
    assert "\n" not in str(error.value)


def test_defaults_suit_the_checkpoint_and_inf_is_no_limit() -> None:
    assert Settings().preset_name == "small"
    assert Settings(checkpoint="elsewhere").preset_name == "gundam"
    assert Settings(infer=InferSettings(max_new_tokens=" INF ")).request(PAGE).max_new_tokens == UNLIMITED


def test_settings_come_back_from_their_document_and_an_unknown_one_is_refused() -> None:
    infer, vendor = InferSettings(max_new_tokens="inf", ngram_whitelist=["<td>"]), VendorSettings("py", 7.5)
    settings = Settings(preset="tiny", infer=infer, vendor=vendor, b={"spec": "eager", "dtype": "float32"})
    assert settings_of(json.loads(json.dumps(asdict(settings)))) == settings
    with pytest.raises(DsocrError, match="'colour' is no setting"):
        settings_of({"colour": 1})


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
def test_the_ngram_size_is_the_published_modes_own_unless_one_is_given(infer: Any, size: int) -> None:
    assert Settings(infer=InferSettings(**infer)).request(PAGE).no_repeat_ngram_size == size


# --- pages in one prompt ----------------------------------------------------------------------------


def settings_of_model(directory: Path, architecture: str, **others: Any) -> Settings:
    (directory / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    return Settings(checkpoint=str(directory), **others)


def test_pages_in_one_prompt_have_a_preset_a_prompt_and_a_window_of_their_own(tmp_path: Path) -> None:
    settings = settings_of_model(tmp_path, "UnlimitedOCRForCausalLM")
    one, pages = settings.request(PAGE), settings.request(PAGE, more=(PAGE, PAGE))
    assert (one.preset, one.prompt, one.ngram_window) == ("gundam", "<image>document parsing.", 128)
    assert (pages.preset, pages.prompt, pages.ngram_window) == ("base", "<image>Multi page parsing.", 1024)
    assert pages.images == (PAGE, PAGE, PAGE) and one.images == (PAGE,)
    alone = settings.request(PAGE, more=())  # a document of one page
    assert (alone.prompt, alone.ngram_window, alone.images) == (pages.prompt, 1024, (PAGE,))
    own = settings_of_model(tmp_path, "UnlimitedOCRForCausalLM", preset="Base", prompt="<image>Mine.")
    assert (own.request(PAGE, more=()).preset, own.request(PAGE, more=()).prompt) == ("base", "<image>Mine.")


@pytest.mark.parametrize(
    ("architecture", "others", "count", "words"),
    [
        ("DeepseekOCR2ForCausalLM", {}, 2, "DeepSeek-OCR-2 takes at most 1"),
        ("UnlimitedOCRForCausalLM", {}, 120, "120 pages: a prompt of Unlimited-OCR takes at most 119"),
        ("UnlimitedOCRForCausalLM", {"preset": "gundam"}, 2, "'gundam' cuts its pages.*base"),
        ("UnlimitedOCRForCausalLM", {"preset": "small"}, 2, "choose one of base, gundam"),
    ],
)
def test_pages_that_a_model_cannot_read_together_are_refused(
    architecture: str, others: dict[str, Any], count: int, words: str, tmp_path: Path
) -> None:
    settings = settings_of_model(tmp_path, architecture, **others)
    with pytest.raises(DsocrError, match=words):
        settings.request(PAGE, more=(PAGE,) * (count - 1))


# --- what reads as A and as B ------------------------------------------------------------------------


def test_a_side_has_its_own_settings_and_the_run_s_where_it_has_none() -> None:
    usual = Settings()
    assert usual.side_names == ("eager", "vendor") and usual.of_side("a") is usual
    settings = Settings(
        preset="tiny", infer=InferSettings(max_new_tokens=50, no_repeat_ngram_size=35),
        b={"spec": "eager", "dtype": "bfloat16", "infer.max_new_tokens": "9"},
    )  # fmt: skip
    a, b = settings.of_side("a"), settings.of_side("b")
    assert (a.engine, a.dtype, a.infer.max_new_tokens) == ("eager", "auto", 50)
    assert (b.engine, b.dtype, b.preset) == ("eager", "bfloat16", "tiny")
    request = b.request(PAGE)
    assert (request.max_new_tokens, request.no_repeat_ngram_size) == (9, 35)
    assert settings.side_names == ("eager", "eager-2")
    of_worker = Settings(b={"spec": "vendor", "timeout_s": 7, "interpreter": "/usr/bin/python3"})
    assert of_worker.of_side("b").vendor == VendorSettings("/usr/bin/python3", 7.0)
    named = Settings(a="exact", b="exact", backends={"exact": {"spec": "eager", "dtype": "float32"}})
    assert named.side_names == ("exact", "exact-2") and named.of_side("b").dtype == "float32"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"a": "turbo"}, "is not known"),
        (
            {"b": {"spec": "eager", "infer": {"tokens": 3}}},
            "eager-2: Group 'infer' does not accept",
        ),
        ({"b": {"spec": "eager", "infer.max_new_tokens": 0}}, "infer.max_new_tokens is 0"),
        ({"b": {"spec": "vendor", "timeout_s": 0}}, "vendor.timeout_s is 0"),
        ({"b": {"spec": "eager", "preset": "huge"}}, "huge"),
        ({"backends": {"x": {"spec": "endpoint:nowhere"}}}, "not like http"),
        ({"a": "x", "backends": {"y": "eager"}}, "folder:PATH, y"),
    ],
)
def test_a_backend_that_cannot_be_is_refused_with_the_settings(given: dict[str, object], says: str) -> None:
    with pytest.raises(DsocrError) as error:
        Settings(**given)  # type: ignore[arg-type]
    assert says in str(error.value) and "\n" not in str(error.value)


SDPA = {"spec": "eager", "attention": "sdpa"}


@pytest.mark.parametrize(
    ("given", "a", "b"),
    [
        ({}, "eager", "eager"),
        ({"attention": "flash_attention_2"}, "flash_attention_2", "flash_attention_2"),
        ({"attention": "sdpa"}, "sdpa", "eager"),
        ({"a": SDPA}, "sdpa", "eager"),
        ({"a": "fast", "b": "eager"}, "sdpa", "eager"),
        ({"a": "fast", "b": SDPA}, "sdpa", "eager"),
        ({"b": "endpoint:http://h/v1"}, "eager", "eager"),
    ],
)
def test_a_comparison_takes_an_attention_that_both_sides_have(given: dict[str, Any], a: str, b: str) -> None:
    compared = Settings(**given).for_comparison()
    assert compared.of_side("a").own_attention == a
    if "b" not in given:
        assert compared.of_side("b").vendor_attention == b
    elif given["b"] == "eager":
        assert compared.of_side("b").own_attention == b
