"""Settings: ranges, defaults that depend on the checkpoint, and what a request takes from them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsocr_core.errors import DsocrError
from dsocr_core.records import GROUNDING_PROMPT
from dsocr_core.settings import EMBEDDED_CHECKPOINT, PROJECT_ROOT, InferSettings, Settings, VendorSettings


@pytest.mark.parametrize("text", ["inf", "INF", "Inf", " inf "])
def test_inf_in_any_case_means_no_limit_of_ones_own(text: str) -> None:
    assert InferSettings(max_new_tokens=text).token_limit is None


@pytest.mark.parametrize("value", [0, -1, "", "many", "-inf", "1e3", True])
def test_other_token_limits_are_refused(value: int | str) -> None:
    with pytest.raises(DsocrError, match=r"infer\.max_new_tokens"):
        InferSettings(max_new_tokens=value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("preset", "huge"),
        ("prompt", "no picture"),
        ("max_megapixels", 0.0),
        ("pdf_dpi", 5),
        ("pdf_dpi", 5000),
    ],
)
def test_values_out_of_range_are_named(field: str, value: object) -> None:
    with pytest.raises(DsocrError) as error:
        Settings(**{field: value})  # type: ignore[arg-type]
    assert str(value).split()[0] in str(error.value) and "\n" not in str(error.value)


def test_a_timeout_is_positive() -> None:
    with pytest.raises(DsocrError, match=r"vendor\.timeout_s"):
        VendorSettings(timeout_s=0)


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


@pytest.mark.parametrize("named", [True, False])
def test_the_runs_directory_may_be_named_by_the_environment(named: bool, tmp_path: Path) -> None:
    ask = [sys.executable, "-c", "from dsocr_core.settings import RUNS_DIRECTORY; print(RUNS_DIRECTORY)"]
    environment = os.environ | {"DSOCR_RUNS": str(tmp_path) if named else ""}
    said = subprocess.run(ask, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str(tmp_path if named else PROJECT_ROOT / "data" / "runs")
