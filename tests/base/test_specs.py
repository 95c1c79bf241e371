"""Specifications of backends: what a person writes, and what is refused in one line."""

from dataclasses import make_dataclass
from typing import Any

import pytest

from dsocr_core.base.specs import (
    CommandSpec,
    EagerSpec,
    EndpointSpec,
    FolderSpec,
    SettingsError,
    converted,
    parse_backend,
    parse_backends,
)


def test_a_specification_is_a_kind_and_what_stands_after_its_colon() -> None:
    url = "http://127.0.0.1:8000/v1"
    for text, spec in (
        ("eager", EagerSpec(name="eager")),
        (f"endpoint:{url}", EndpointSpec(name="endpoint", target=url)),
        ("command:my-ocr --image {image}", CommandSpec(name="command", target="my-ocr --image {image}")),
        ("folder:/data/a:b", FolderSpec(name="folder", target="/data/a:b")),
    ):
        assert parse_backend(text) == spec


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no spec"),
        ("turbo", "backend 'turbo' is not known: give eager, fast, vendor, endpoint:URL"),
        ("Eager", "is not known"),
        ("eager:now", "give eager without a colon"),
        ("endpoint", "give endpoint:URL"),
        ("endpoint: ", "give endpoint:URL"),
        ("folder:", "give folder:PATH"),
        ("endpoint:ftp://host/v1", "no address"),
        ("endpoint:http:///v1", "no address"),
        ("endpoint:http://host:port/v1", "no address"),
        ("endpoint:http://host/v 1", "no address"),
        ("endpoint:http://me:secret@host/v1", "has a user"),
        ("endpoint:http://host/v1?key=secret", "a query"),
    ],
)
def test_what_is_no_specification_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says.replace("(", r"\(")) as error:
        parse_backend(text)
    assert "\n" not in str(error.value) and "secret" not in str(error.value)


def test_settings_are_nested_or_dotted_and_take_their_field_s_type() -> None:
    choice = {
        "spec": "endpoint:http://h/v1", "flavour": "vllm", "concurrency": "4", "timeout_s": "9.5",
        "stream": "false", "infer.max_new_tokens": "inf", "body": {"temperature": 0},
        "body.vllm_xargs.ngram_size": 30, "body.vllm_xargs.window_size": 90,
    }  # fmt: skip
    spec = parse_backend(choice)
    assert isinstance(spec, EndpointSpec)
    assert (spec.flavour, spec.concurrency, spec.timeout_s, spec.stream) == ("vllm", 4, 9.5, False)
    assert spec.infer == {"max_new_tokens": "inf"}
    assert spec.body == {"temperature": 0, "vllm_xargs": {"ngram_size": 30, "window_size": 90}}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"flavor": "vllm"}, "endpoint has no setting 'flavor': it takes name, preset"),
        ({"attention": "sdpa"}, "attention is for eager, fast, vendor"),
        ({"target": "http://other/v1"}, "endpoint has no setting 'target'"),
        ({"flavour": "turbo"}, "flavour is 'turbo': give one of plain, vllm"),
        ({"concurrency": "many"}, "concurrency is 'many': give a whole number"),
        ({"concurrency": 0}, "concurrency is 0: give 1 to 64"),
        ({"concurrency": True}, "concurrency is 'True'"),
        ({"attempts": 99}, "attempts is 99: give 1 to 10"),
        ({"timeout_s": "nan"}, "positive number of seconds"),
        ({"timeout_s": None}, "timeout_s is null: give a number"),
        ({"body": "[1]"}, "body is"),
        ({"key_variable": "sk-1234"}, "name of an environment variable"),
        ({"name": "../up"}, "backend name"),
        ({7: 1}, "'7' is no name"),
        ({"body": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": 1}}}}}}}}}}, "nested deeper"),
    ],
)
def test_settings_that_are_not_the_kind_s_are_refused_in_one_line(
    settings: dict[str, object], says: str
) -> None:
    choice = {"spec": "endpoint:http://h/v1", **settings}
    with pytest.raises(SettingsError) as error:
        parse_backend(choice)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_configured_name_stands_for_its_specification_and_can_be_added_to() -> None:
    configured = {
        "here": {"spec": "endpoint:http://h/v1", "flavour": "vllm", "body": {"top_p": 1, "seed": 1}},
        "ours": "eager",
    }
    spec = parse_backend({"spec": "here", "body.seed": 2, "concurrency": 3}, configured)
    assert spec == EndpointSpec(
        name="here", target="http://h/v1", flavour="vllm", concurrency=3, body={"top_p": 1, "seed": 2}
    )
    assert parse_backend("ours", configured) == EagerSpec(name="ours")


def test_a_configured_name_does_not_lead_to_another_one() -> None:
    with pytest.raises(SettingsError, match="'loop' is not known"):
        parse_backend("loop", {"loop": {"spec": "loop"}})
    with pytest.raises(SettingsError, match="backends: x is no backend"):
        parse_backend("x", {"x": 3})


def test_no_two_backends_of_a_run_have_one_name() -> None:
    specs = parse_backends(["eager", "eager", "fast", {"spec": "eager", "name": "eager-2"}, "eager"])
    names = [spec.name for spec in specs]
    assert names == ["eager", "eager-2", "fast", "eager-2-2", "eager-3"]


def of_type(value: object, hint: Any) -> object:
    return converted(make_dataclass("Kind", [("x", hint)]), {"x": value}, "kind")["x"]


@pytest.mark.parametrize(
    ("value", "hint", "made"),
    [
        ("7", int, 7), ("7", int | str, 7), ("inf", int | str, "inf"), (None, int | None, None),
        ("null", int | None, None), ("[1, 2]", list[int], [1, 2]), ("1e-3", float, 0.001),
        ("yes", bool, True),
        ("{a: 1}", dict[str, int], {"a": 1}),
    ],
)  # fmt: skip
def test_texts_become_the_type_that_is_wanted(value: object, hint: object, made: object) -> None:
    assert of_type(value, hint) == made


@pytest.mark.parametrize(
    ("value", "hint"),
    [("x", int), (1.5, int), (1, bool), (1, str), ("[a]", list[int]), ({1: 2}, dict[str, int])],
)
def test_a_value_of_another_type_is_refused(value: object, hint: object) -> None:
    with pytest.raises(SettingsError, match=r"^kind: x is "):
        of_type(value, hint)
