"""What each flavour is sent, field by field, as it came to a server."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any, get_args

import pytest
from PIL import Image

from dsocr_core.backends.endpoint.backend import Endpoint
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.specs.kinds import EndpointSpec, Flavour
from dsocr_core.base.specs.parsing import parse_backend
from dsocr_core.reading.records import OcrResult
from dsocr_core.settings import Settings
from tests.support.scripted_server import ScriptedServer, native, scripted_server, streamed

TASK = "<|grounding|>Convert the document to markdown."


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.png"
    Image.new("RGB", (40, 30), "white").save(path)
    return path


def read(server: ScriptedServer, page: Path, **settings: Any) -> OcrResult:
    choice = {"spec": f"endpoint:{server.address}", **settings}
    run = Settings(device="cpu", b=choice)
    spec = run.spec("b")
    assert isinstance(spec, EndpointSpec)
    backend = Endpoint(spec, run.of_side("b"))
    backend.check()
    return backend.read(backend.settings.request(page))


def sent_body(page: Path, flavour: str, **settings: Any) -> dict[str, Any]:
    with scripted_server(native() if flavour == "ollama" else streamed()) as server:
        read(server, page, flavour=flavour, **settings)
        (body,) = server.bodies
        return body


def picture(page: Path) -> dict[str, Any]:
    content = base64.b64encode(page.read_bytes()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{content}"}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


OPEN = {"model": "the-model", "temperature": 0, "stream": True}
BODY = {**OPEN, "max_tokens": 8192}
"""What every server is told beside the messages; vllm and sglang no limit where they list no context."""


def asked(*content: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*content]}]


def test_plain_is_what_every_server_takes(page: Path) -> None:
    assert sent_body(page, "plain") == {**BODY, "messages": asked(picture(page), text(TASK))}


def test_vllm_is_asked_as_its_recipe_says(page: Path) -> None:
    assert sent_body(page, "vllm", model="deepseek-ai/DeepSeek-OCR") == {
        **OPEN, "model": "deepseek-ai/DeepSeek-OCR", "skip_special_tokens": False, "return_token_ids": True,
        "vllm_xargs": {"ngram_size": 30, "window_size": 90, "whitelist_token_ids": [128821, 128822]},
        "messages": asked(picture(page), text(TASK)),
    }  # fmt: skip


def test_sglang_has_the_placeholder_in_the_text_and_its_processor_from_the_settings(page: Path) -> None:
    rule = {"custom_logit_processor": "{...}", "custom_params": {"ngram_size": 30, "window_size": 90}}
    messages = asked(picture(page), text(f"<image>\n{TASK}"))
    expected = {**OPEN, **rule, "skip_special_tokens": False, "messages": messages}
    assert sent_body(page, "sglang", body=rule) == expected


def test_llamacpp_has_the_text_first_and_dry_from_the_settings(page: Path) -> None:
    given = {"body.dry_multiplier": 2.0, "prompt": "<image>\n<|grounding|>OCR"}
    messages = asked(text("<|grounding|>OCR"), picture(page))
    expected = {**BODY, "cache_prompt": False, "dry_multiplier": 2.0, "messages": messages}
    assert sent_body(page, "llamacpp", **given) == expected


def test_ollama_is_asked_in_its_own_protocol(page: Path) -> None:
    with scripted_server(native()) as server:
        result = read(server, page, flavour="ollama")
        assert [sent.path for sent in server.sent] == ["/api/tags", "/api/chat"]
        content = base64.b64encode(page.read_bytes()).decode()
        assert server.bodies == [
            {
                "model": "the-model",
                "stream": True,
                "messages": [{"role": "user", "content": TASK, "images": [content]}],
                "options": {"temperature": 0, "num_ctx": 8192 + 309, "num_predict": 8192},
            }
        ]
    assert (result.finish_reason, result.token_ids) == ("eos", None)
    assert result.environment["completion_tokens"] == "6"


@pytest.mark.parametrize("flavour", [flavour for flavour in get_args(Flavour) if flavour != "ollama"])
def test_every_field_can_be_set_and_null_takes_one_out(page: Path, flavour: str) -> None:
    given = {"temperature": None, "max_tokens": 7, "messages": [], "extra": {"deep": [1]}}
    body = sent_body(page, flavour, body=given)
    assert "temperature" not in body
    assert (body["max_tokens"], body["messages"], body["extra"]) == (7, [], {"deep": [1]})


def test_a_field_in_a_field_is_set_without_the_others(page: Path) -> None:
    body = sent_body(page, "vllm", **{"body.vllm_xargs.window_size": 50, "body.vllm_xargs.ngram_size": None})
    assert body["vllm_xargs"] == {"window_size": 50, "whitelist_token_ids": [128821, 128822]}


def test_a_prompt_is_divided_at_the_image(page: Path) -> None:
    body = sent_body(page, "plain", prompt="Before.\n<image>\nAfter.")
    assert body["messages"][0]["content"] == [text("Before."), picture(page), text("After.")]


def test_no_limit_is_the_published_one_for_a_server(page: Path) -> None:
    assert sent_body(page, "plain", **{"infer.max_new_tokens": "inf"})["max_tokens"] == 8192


def test_what_a_server_cannot_be_told_is_refused(page: Path) -> None:
    for given, says in (
        ({"infer.no_repeat_ngram_size": 30}, "infer.no_repeat_ngram_size cannot be told"),
        ({"infer.eval_mode": True}, "infer.eval_mode cannot be told"),
        ({"preset": "base"}, "preset cannot be told to a server of flavour vllm"),
    ):
        with scripted_server() as server, pytest.raises(DsocrError, match=says):
            read(server, page, flavour="vllm", **given)


def test_what_was_sent_is_in_the_result_with_the_image_by_its_hash(page: Path) -> None:
    with scripted_server() as server:
        result = read(server, page, flavour="vllm")
    digest = hashlib.sha256(page.read_bytes()).hexdigest()
    sent = json.loads(result.environment["request"])
    assert sent["vllm_xargs"]["window_size"] == 90
    assert sent["messages"][0]["content"][0]["image_url"]["url"] == "sha256"
    assert result.environment["image_sent"] == digest
    assert base64.b64encode(page.read_bytes()).decode()[:40] not in str(result)


def test_a_format_that_not_every_server_opens_is_sent_as_png(tmp_path: Path) -> None:
    path = tmp_path / "page.bmp"
    Image.new("RGB", (40, 30), "white").save(path)
    body = sent_body(path, "plain")
    url = body["messages"][0]["content"][0]["image_url"]["url"]
    assert url.startswith("data:image/png;base64,iVBOR")


def test_a_key_comes_from_the_environment_and_is_nowhere_else(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    with scripted_server() as server:
        result = read(server, page, key_variable="MY_KEY")
        assert [sent.headers["Authorization"] for sent in server.sent] == ["Bearer sk-very-secret"] * 2
    assert "secret" not in str(result) and "secret" not in str(parse_backend("endpoint:http://h/v1"))


def test_a_key_that_is_not_there_is_missed_before_the_first_page(page: Path) -> None:
    with scripted_server() as server:
        with pytest.raises(DsocrError, match="the environment has no NO_SUCH_KEY"):
            read(server, page, key_variable="NO_SUCH_KEY")
        assert server.sent == []


CELLS = {"whitelist_token_ids": [128821, 128822]}


@pytest.mark.parametrize(
    ("model", "flavour", "words", "rule"),
    [
        ("UnlimitedOCR", "vllm", "<image>document parsing.", {"ngram_size": 35, "window_size": 128}),
        ("UnlimitedOCR", "sglang", "document parsing.", None),
        ("DeepseekOCR2", "vllm", TASK, {"ngram_size": 20, "window_size": 90, **CELLS}),
        ("DeepseekOCR2", "sglang", f"<image>\n{TASK}", None),
    ],
)
def test_a_models_own_prompt_and_rule_are_sent(
    page: Path, model: str, flavour: str, words: str, rule: dict[str, Any] | None
) -> None:
    config = page.parent / "config.json"
    config.write_text(json.dumps({"architectures": [f"{model}ForCausalLM"]}), encoding="utf-8")
    with scripted_server(streamed()) as server:
        choice = {"spec": f"endpoint:{server.address}", "flavour": flavour}
        settings = Settings(checkpoint=str(page.parent), device="cpu", b=choice)
        spec = settings.spec("b")
        assert isinstance(spec, EndpointSpec)
        Endpoint(spec, settings.of_side("b")).read(settings.request(page))
        (body,) = server.bodies
    assert body["skip_special_tokens"] is False and body.get("vllm_xargs") == rule
    assert body["messages"][0]["content"] == [picture(page), text(words)]
