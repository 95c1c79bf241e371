"""What each flavour is sent, field by field, and token limits: what is asked fits a server's context."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.specs import parse_backend
from dsocr_core.reading.parity import compare_results
from tests.backends.endpoint.conftest import Ask, endpoint_of
from tests.backends.endpoint.scripted_server import TEXT, limited, native, scripted_server, whole

TASK = "<|grounding|>Convert the document to markdown."
OPEN = {"model": "m", "temperature": 0, "stream": False}
BODY = {**OPEN, "max_tokens": 8192}
"""What every server is told beside the messages; vllm and sglang no limit where they list no context."""
SGLANG = {**OPEN, "skip_special_tokens": False}
VLLM = {**SGLANG, "return_token_ids": True}
RULE = {"custom_logit_processor": "{...}", "custom_params": {"ngram_size": 30, "window_size": 90}}
CELLS = {"whitelist_token_ids": [128821, 128822]}
PICTURE = object()
"""Stands for the page's picture."""


def messages(page: Path, *content: object) -> list[dict[str, Any]]:
    url = f"data:image/png;base64,{base64.b64encode(page.read_bytes()).decode()}"
    parts = [
        {"type": "image_url", "image_url": {"url": url}}
        if each is PICTURE
        else {"type": "text", "text": each}
        for each in content
    ]
    return [{"role": "user", "content": parts}]


@pytest.mark.parametrize(
    ("given", "content", "expected"),
    [
        ({}, (PICTURE, TASK), BODY),
        ({"prompt": "Before.\n<image>\nAfter."}, ("Before.", PICTURE, "After."), BODY),
        ({"infer.max_new_tokens": "inf"}, (PICTURE, TASK), BODY),
        ({"flavour": "vllm"}, (PICTURE, TASK),
         {**VLLM, "vllm_xargs": {"ngram_size": 30, "window_size": 90, **CELLS}}),
        ({"flavour": "vllm", "body.vllm_xargs.window_size": 50, "body.vllm_xargs.ngram_size": None},
         (PICTURE, TASK), {**VLLM, "vllm_xargs": {"window_size": 50, **CELLS}}),
        ({"flavour": "vllm", "infer.max_new_tokens": 100, "body.vllm_xargs": None}, (PICTURE, TASK),
         {**VLLM, "max_tokens": 100}),
        ({"flavour": "sglang", "body": RULE}, (PICTURE, f"<image>\n{TASK}"),
         {**SGLANG, **RULE}),
        ({"flavour": "llamacpp", "body.dry_multiplier": 2.0, "prompt": "<image>\n<|grounding|>OCR"},
         ("<|grounding|>OCR", PICTURE), {**BODY, "cache_prompt": False, "dry_multiplier": 2.0}),
        # Each model's own prompt and rule.
        ({"of": "UnlimitedOCR", "flavour": "vllm"}, (PICTURE, "<image>document parsing."),
         {**VLLM, "vllm_xargs": {"ngram_size": 35, "window_size": 128}}),
        ({"of": "UnlimitedOCR", "flavour": "sglang"}, (PICTURE, "document parsing."), SGLANG),
        ({"of": "DeepseekOCR2", "flavour": "vllm"}, (PICTURE, TASK),
         {**VLLM, "vllm_xargs": {"ngram_size": 20, "window_size": 90, **CELLS}}),
        ({"of": "DeepseekOCR2", "flavour": "sglang"}, (PICTURE, f"<image>\n{TASK}"), SGLANG),
    ],
)  # fmt: skip
def test_each_flavour_is_asked_as_its_documents_say(
    ask: Ask, page: Path, given: dict[str, Any], content: tuple[object, ...], expected: dict[str, Any]
) -> None:
    if model := given.pop("of", ""):
        (page.parent / "config.json").write_text(json.dumps({"architectures": [f"{model}ForCausalLM"]}))
        given |= {"run": {"checkpoint": str(page.parent)}}
    _, server = ask(whole(), **given)
    assert server.bodies == [{**expected, "messages": messages(page, *content)}]


def test_ollama_is_asked_in_its_own_protocol(ask: Ask, page: Path) -> None:
    result, server = ask(native(), flavour="ollama", model="")
    assert [sent.path for sent in server.sent] == ["/api/tags", "/api/chat"]
    content = base64.b64encode(page.read_bytes()).decode()
    assert server.bodies == [{
        "model": "the-model", "stream": False,
        "messages": [{"role": "user", "content": TASK, "images": [content]}],
        "options": {"temperature": 0, "num_ctx": 8192 + 309, "num_predict": 8192},
    }]  # fmt: skip
    assert (result.finish_reason, result.token_ids) == ("eos", None)
    assert result.environment["completion_tokens"] == "6"
    _, server = ask(native(), flavour="ollama", **{"infer.max_new_tokens": 300})
    assert server.bodies[0]["options"] == {"temperature": 0, "num_predict": 300, "num_ctx": 300 + 309}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"infer.no_repeat_ngram_size": 30}, "infer.no_repeat_ngram_size cannot be told"),
        ({"infer.eval_mode": True}, "infer.eval_mode cannot be told"),
        ({"preset": "base"}, "preset cannot be told to a server of flavour vllm"),
        ({"key_variable": "NO_SUCH_KEY"}, "the environment has no key in NO_SUCH_KEY"),
    ],
)
def test_what_cannot_be_is_refused_before_the_first_page(ask: Ask, given: dict[str, Any], says: str) -> None:
    with pytest.raises(DsocrError, match=says):
        ask(flavour="vllm", **given)


def test_what_was_sent_is_in_the_result_with_the_image_by_its_hash(ask: Ask, page: Path) -> None:
    result, _ = ask(whole(), flavour="vllm")
    sent = json.loads(result.environment["request"])
    assert sent["vllm_xargs"]["window_size"] == 90
    assert sent["messages"][0]["content"][0]["image_url"]["url"] == "sha256"
    assert result.environment["image_sent"] == hashlib.sha256(page.read_bytes()).hexdigest()
    assert base64.b64encode(page.read_bytes()).decode()[:40] not in str(result)
    Image.new("RGB", (40, 30), "white").save(page.with_suffix(".bmp"))  # not every server opens it
    _, server = ask(whole(), image=page.with_suffix(".bmp"))
    url = server.bodies[0]["messages"][0]["content"][0]["image_url"]["url"]
    assert url.startswith("data:image/png;base64,iVBOR")


def test_a_key_comes_from_the_environment_and_is_nowhere_else(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    result, server = ask(whole(), key_variable="MY_KEY")
    assert [sent.headers["Authorization"] for sent in server.sent] == ["Bearer sk-very-secret"] * 2
    assert "secret" not in str(result) and "secret" not in str(parse_backend("endpoint:http://h/v1"))


def test_what_decides_a_result_is_in_its_key(page: Path) -> None:
    with scripted_server() as server:

        def key(**given: Any) -> str:
            backend = endpoint_of(server, **({"model": "m"} | given))
            return backend.cache_key(backend.settings.request(page))

        settings: list[dict[str, Any]] = [
            {}, {"flavour": "vllm"}, {"model": "other"}, {"body": {"seed": 1}}, {"prompt": "free_ocr"},
            {"infer.max_new_tokens": 5},
        ]  # fmt: skip
        assert len({key(**given) for given in settings}) == len(settings)
        assert key(concurrency=9, timeout_s=5) == key()


# --- token limits -----------------------------------------------------------------------------------

CONTEXT = 8192


@pytest.fixture
def large(tmp_path: Path) -> Path:
    Image.new("RGB", (1000, 1400), "white").save(tmp_path / "large.png")
    return tmp_path / "large.png"


def card(context: Any = CONTEXT) -> dict[str, Any]:
    cards = [{"id": "other", "max_model_len": 100}, {"id": "m", "max_model_len": context}]
    return {"data": cards if context else [{"id": "m", "parent": "other"}]}


def prompt_of(ask: Ask, image: Path) -> int:
    """Tokens of the prompt as our engines count them: asked of a server with a roomy context."""
    _, server = ask(limited("vllm", 10**6, 900), models=card(5000), image=image, flavour="vllm")
    return int(5000 - server.bodies[0]["max_tokens"] - 1)


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
@pytest.mark.parametrize("context", [CONTEXT, None])
def test_a_page_is_read_within_the_context(ask: Ask, large: Path, kind: str, context: int | None) -> None:
    prompt = prompt_of(ask, large)
    server = limited(kind, CONTEXT, prompt)
    result, sent = ask(server, models=card(context), image=large, flavour=kind)
    limit = CONTEXT - prompt - 1 if context else None
    assert sent.bodies[0].get("max_tokens") == limit
    assert (result.text_raw, result.finish_reason) == (TEXT, "eos")
    assert result.environment.get("input: token limit") == (limit and str(limit))


def test_a_prompt_is_counted_with_its_tiles(ask: Ask, large: Path, page: Path) -> None:
    small = prompt_of(ask, page)
    assert (prompt_of(ask, large) - small, 256 < small < 330) == ((10 * 2 + 1) * 10 * 3, True)


@pytest.mark.parametrize(("kind", "end"), [("vllm", "(parameter=input_tokens)"), ("sglang", "9105 tokens")])
def test_a_refusal_is_whole_and_names_the_option(ask: Ask, kind: str, end: str) -> None:
    refuses, body = limited(kind, CONTEXT, 913), {"max_tokens": 8192}
    with pytest.raises(DsocrError) as error:
        ask(refuses, models=card(None), flavour=kind, body=body)
    words = str(error.value)
    assert "--infer.max-new-tokens" in words and "--b.body.max_tokens" in words and end in words


def test_a_servers_own_limit_is_a_difference_of_inputs_and_one_that_was_asked_is_none(ask: Ask) -> None:
    """vLLM clips silently where its prompt is longer than ours, or its configuration says so."""
    clipped, _ = ask(limited("vllm", CONTEXT, 8000, wants=500), models=card(), flavour="vllm")
    assert (clipped.finish_reason, clipped.environment["input: token limit"]) == ("length", "192")
    environment = clipped.environment | {"input: token limit": "8192"}
    whole = replace(clipped, backend="eager", finish_reason="eos", environment=environment)
    report = compare_results(whole, clipped)
    assert "settings differ: token limit (8192 and 192)" in report.reasons, report.reasons
    server = limited("vllm", CONTEXT, 900, wants=500)
    result, _ = ask(server, models=card(), flavour="vllm", **{"infer.max_new_tokens": 100})
    assert result.finish_reason == "length" and "input: token limit" not in result.environment
