"""Settings: ranges, defaults of the checkpoint, what a request takes from them, and settings of a side."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT, PROJECT_ROOT
from dsocr_core.reading.records import GROUNDING_PROMPT, UNLIMITED
from dsocr_core.settings import InferSettings, Settings, VendorSettings

PAGE = Path("page.png")


def test_inf_in_any_case_means_no_limit_of_ones_own() -> None:
    for text in ("inf", "INF", "Inf", " inf "):
        assert InferSettings(max_new_tokens=text).token_limit == UNLIMITED


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


def test_the_default_preset_suits_the_checkpoint() -> None:
    assert Settings().preset_name == "small"
    assert Settings(checkpoint=str(EMBEDDED_CHECKPOINT)).is_embedded
    assert Settings(checkpoint="elsewhere").preset_name == "gundam"
    assert Settings(checkpoint="elsewhere", preset="Base").preset_name == "base"


def test_a_request_carries_what_decides_a_page() -> None:
    settings = Settings(preset="tiny", infer=InferSettings(max_new_tokens=9, no_repeat_ngram_size=35))
    request = settings.request(Path("a.png"), "paper.pdf#2")
    assert (request.preset, request.prompt, request.name) == ("tiny", GROUNDING_PROMPT, "paper.pdf#2")
    assert (request.max_new_tokens, request.no_repeat_ngram_size) == (9, 35)


RUNS = """
from dsocr_core.runs.history import DEFAULT_LOCATION
from dsocr_core.base.paths import RUNS_DIRECTORY
from dsocr_core.reading.records import UNLIMITED
from dsocr_core.settings import Settings, history_location
print(RUNS_DIRECTORY, history_location(Settings()), DEFAULT_LOCATION)
"""


@pytest.mark.parametrize("named", [True, False])
def test_the_runs_directory_may_be_named_by_the_environment(named: bool, tmp_path: Path) -> None:
    ask = [sys.executable, "-c", RUNS]
    environment = os.environ | {"DSOCR_RUNS": str(tmp_path) if named else ""}
    said = subprocess.run(ask, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=True)
    runs = tmp_path if named else PROJECT_ROOT / "data" / "runs"
    assert said.stdout.split() == [str(runs), str(runs / "history"), str(runs / "history")]


def test_a_prompt_with_no_or_two_images_is_refused_with_the_reason() -> None:
    for prompt, reason in (
        ("Free OCR.", "before the page and after it again"),
        ("<image> a <image> b", "leave out the text between"),
    ):
        with pytest.raises(DsocrError, match=reason):
            Settings(prompt=prompt)


def test_the_ngram_size_is_the_published_modes_own_unless_one_is_given() -> None:
    def size(**infer: Any) -> int:
        return Settings(infer=InferSettings(**infer)).request(Path("a.png")).no_repeat_ngram_size

    assert (size(), size(eval_mode=True)) == (20, 35)
    assert (size(eval_mode=True, no_repeat_ngram_size=20), size(no_repeat_ngram_size=0)) == (20, 0)
    asked = Settings(infer=InferSettings(eval_mode=True, test_compress=True)).request(Path("a.png"))
    assert (asked.eval_mode, asked.test_compress, asked.no_repeat_ngram_size) == (True, True, 35)


@pytest.mark.parametrize(
    ("given", "own", "published", "note"),
    [
        ({}, "eager", "eager", ""),
        ({"attention": "flash_attention_2"}, "flash_attention_2", "flash_attention_2", ""),
        ({"attention": "sdpa"}, "sdpa", "eager", "sdpa against eager"),
        ({"engine": "fast"}, "sdpa", "eager", ""),
    ],
)
def test_a_comparison_takes_an_attention_that_both_sides_have(
    given: dict[str, Any], own: str, published: str, note: str
) -> None:
    compared = Settings(**given).for_comparison()
    assert (compared.own_attention, compared.vendor_attention) == (own, published)
    assert note in compared.attention_note and bool(note) == bool(compared.attention_note)


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
        ("DeepseekOCRForCausalLM", {}, 2, "reads one image a prompt"),
        ("DeepseekOCR2ForCausalLM", {}, 2, "reads one image a prompt"),
        ("UnlimitedOCRForCausalLM", {}, 120, "120 pages, and a prompt of Unlimited-OCR takes 119"),
        ("UnlimitedOCRForCausalLM", {"preset": "gundam"}, 2, "'gundam' cuts pages.*give base"),
        ("UnlimitedOCRForCausalLM", {"preset": "small"}, 2, "choose one of base, gundam"),
    ],
)
def test_pages_that_a_model_cannot_read_together_are_refused(
    architecture: str, others: dict[str, Any], count: int, words: str, tmp_path: Path
) -> None:
    settings = settings_of_model(tmp_path, architecture, **others)
    with pytest.raises(DsocrError, match=words):
        settings.request(PAGE, more=(PAGE,) * (count - 1))


def test_an_unknown_preset_is_told_the_presets_of_every_model() -> None:
    with pytest.raises(
        DsocrError, match=r"gundam \(DeepSeek-OCR\); default, 768, 1024 \(DeepSeek-OCR-2\); base"
    ):
        Settings(preset="640")


# --- what reads as A and as B ------------------------------------------------------------------------


def test_without_a_choice_the_engine_is_compared_with_the_vendor() -> None:
    settings = Settings()
    assert settings.side_names == ("eager", "vendor")
    assert settings.of_side("a") is settings and settings.of_side("b") is settings


def test_a_side_has_its_own_settings_and_the_run_s_where_it_has_none() -> None:
    settings = Settings(
        preset="tiny",
        infer=InferSettings(max_new_tokens=50, no_repeat_ngram_size=35),
        b={"spec": "eager", "dtype": "bfloat16", "infer.max_new_tokens": "9"},
    )
    a, b = settings.of_side("a"), settings.of_side("b")
    assert (a.engine, a.dtype, a.infer.max_new_tokens) == ("eager", "auto", 50)
    assert (b.engine, b.dtype, b.preset) == ("eager", "bfloat16", "tiny")
    request = b.request(PAGE)
    assert (request.max_new_tokens, request.no_repeat_ngram_size) == (9, 35)
    assert settings.side_names == ("eager", "eager-2")


def test_the_vendor_s_worker_is_set_per_side() -> None:
    settings = Settings(b={"spec": "vendor", "timeout_s": 7, "interpreter": "/usr/bin/python3"})
    own = settings.of_side("b").vendor
    assert (own.timeout_s, own.interpreter) == (7.0, "/usr/bin/python3")
    assert settings.vendor.timeout_s == 900.0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"a": "turbo"}, "backend 'turbo' is not known"),
        ({"b": {"spec": "eager", "infer": {"tokens": 3}}}, "eager-2: infer has no setting 'tokens'"),
        ({"b": {"spec": "eager", "infer.max_new_tokens": 0}}, "infer.max_new_tokens is 0"),
        ({"b": {"spec": "vendor", "timeout_s": 0}}, "vendor: timeout_s is 0"),
        ({"b": {"spec": "eager", "preset": "huge"}}, "huge"),
        ({"backends": {"x": {"spec": "endpoint:nowhere"}}}, "no address"),
        ({"backends": {"x": None}}, "backends: x is no backend"),
        ({"a": "x", "backends": {"y": "eager"}}, "or one of y"),
    ],
)
def test_a_backend_that_cannot_be_is_refused_with_the_settings(given: dict[str, object], says: str) -> None:
    with pytest.raises(DsocrError) as error:
        Settings(**given)  # type: ignore[arg-type]
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_backend_of_the_configuration_is_named() -> None:
    settings = Settings(a="exact", b="exact", backends={"exact": {"spec": "eager", "dtype": "float32"}})
    assert settings.side_names == ("exact", "exact-2")
    assert settings.of_side("b").dtype == "float32"


def test_only_the_eager_engine_takes_the_published_attention_in_a_comparison() -> None:
    both = Settings(a="fast", b="eager").for_comparison()
    assert both.of_side("a").own_attention == "sdpa" and both.of_side("b").own_attention == "eager"
    chosen = Settings(a="fast", b={"spec": "eager", "attention": "sdpa"}).for_comparison()
    assert chosen.of_side("b").own_attention == "sdpa"
    served = Settings(b="endpoint:http://h/v1").for_comparison()
    assert served.of_side("a").own_attention == "eager"


def test_unlike_attention_of_the_engine_and_the_vendor_is_said() -> None:
    assert "sdpa against eager" in Settings(a={"spec": "eager", "attention": "sdpa"}).attention_note
    assert Settings(a="eager", b="fast").attention_note == ""
