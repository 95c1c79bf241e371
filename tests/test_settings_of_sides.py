"""What reads as A and as B, and the settings each has for itself."""

from pathlib import Path

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.settings import InferSettings, Settings


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
    request = b.request(Path("p.png"))
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
