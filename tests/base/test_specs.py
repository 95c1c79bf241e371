"""Specifications of backends: what a person writes, and what is refused in one line."""

import pytest

from dsocr_core.base.specs import BackendSpec, SettingsError, parse_backend, parse_backends

SERVED = "endpoint:http://h/v1"


@pytest.mark.parametrize(
    ("text", "kind", "target"),
    [
        ("eager", "eager", ""),
        (SERVED, "endpoint", "http://h/v1"),
        ("folder:/data/a:b", "folder", "/data/a:b"),
    ],
)
def test_a_specification_is_a_kind_and_what_stands_after_its_colon(text: str, kind: str, target: str) -> None:
    assert parse_backend(text) == BackendSpec(kind=kind, name=kind, target=target)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ("", "backend '' is not known"),
        ("turbo", "backend 'turbo' is not known: give eager, fast, vendor, endpoint:URL"),
        ("eager:now", "backend 'eager:now' is not known"),
        ("endpoint: ", "endpoint:URL"),
        ("endpoint:ftp://host/v1", "not like http://HOST"),
        ("endpoint:http:///v1", "not like http://HOST"),
        ("endpoint:http://host:port/v1", "not like http://HOST"),
        ("endpoint:http://host/v 1", "not like http://HOST"),
        ("endpoint:http://me:secret@host/v1", "not like http://HOST"),
        ("endpoint:http://host/v1?key=secret", "not like http://HOST"),
        ({"spec": "vendor", "attention": "sdpa"}, "attention is sdpa: give eager or flash_attention_2"),
        ({"flavor": "vllm"}, "endpoint has no setting 'flavor': it takes name, preset"),
        ({"target": "http://other/v1"}, "endpoint has no setting 'target'"),
        ({"flavour": "turbo"}, "Expected a typing.Literal['plain', 'vllm'"),
        ({"concurrency": "many"}, "Expected a <class 'int'>. Got value: many"),
        ({"concurrency": 1.5}, "Got value: 1.5"),
        ({"concurrency": 0}, "endpoint: concurrency is 0: give 1 to 64"),
        ({"concurrency": True}, "Got value: True"),
        ({"timeout_s": float("nan")}, "timeout_s is nan: give 0.001 to"),
        ({"body": "[1]"}, "Mapping"),
        ({"model": 1}, "Expected a <class 'str'>"),
        ({"key_variable": "sk-1234"}, "no name of an environment variable"),
        ({"name": "../up"}, "endpoint: name is ../up"),
    ],
)
def test_what_is_no_backend_is_refused_in_one_line(choice: str | dict[str, object], says: str) -> None:
    with pytest.raises(SettingsError) as error:
        parse_backend(choice if isinstance(choice, str) else {"spec": SERVED, **choice})
    assert says in str(error.value) and "\n" not in str(error.value) and "secret" not in str(error.value)


def test_settings_are_nested_or_dotted_and_take_their_field_s_type() -> None:
    choice = {
        "spec": SERVED, "flavour": "vllm", "concurrency": "4", "timeout_s": "9.5",
        "prompt": "<image>: [", "infer.max_new_tokens": "inf", "body": {"temperature": 0},
        "body.vllm_xargs.ngram_size": 30, "body.vllm_xargs.window_size": 90,
    }  # fmt: skip
    spec = parse_backend(choice)
    assert (spec.flavour, spec.concurrency, spec.timeout_s) == ("vllm", 4, 9.5)
    assert spec.own == {"prompt": "<image>: [", "infer": {"max_new_tokens": "inf"}}
    assert spec.body == {"temperature": 0, "vllm_xargs": {"ngram_size": 30, "window_size": 90}}


def test_a_configured_name_stands_for_its_specification_can_be_added_to_and_leads_to_no_other() -> None:
    here = {"spec": SERVED, "flavour": "vllm", "body": {"top_p": 1, "seed": 1}}
    configured = {"here": here, "ours": "eager", "loop": {"spec": "loop"}, "none": 3}
    spec = parse_backend({"spec": "here", "body.seed": 2, "concurrency": 3}, configured)
    assert (spec.name, spec.target, spec.flavour, spec.concurrency) == ("here", "http://h/v1", "vllm", 3)
    assert spec.body == {"top_p": 1, "seed": 2}
    assert parse_backend("ours", configured) == BackendSpec(kind="eager", name="ours")
    for name, says in (("loop", "'loop' is not known"), ("none", "backend '3' is not known")):
        with pytest.raises(SettingsError, match=says):
            parse_backend(name, configured)


def test_no_two_backends_of_a_run_have_one_name() -> None:
    specs = parse_backends(["eager", "eager", "fast", {"spec": "eager", "name": "eager-2"}, "eager"])
    assert [spec.name for spec in specs] == ["eager", "eager-2", "fast", "eager-2-2", "eager-3"]
