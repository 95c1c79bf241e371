"""Token limits of servers: what is asked fits their context; a limit of theirs is a difference of inputs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dsocr_core.backends.endpoint.answers import EndpointError
from dsocr_core.backends.endpoint.backend import Endpoint
from dsocr_core.base.specs.kinds import EndpointSpec
from dsocr_core.cli.main import main
from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.records import OcrResult
from dsocr_core.settings import Settings
from tests.support.scripted_server import TEXT, ScriptedServer, limited, native, scripted_server

CONTEXT = 8192


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.png"
    Image.new("RGB", (1000, 1400), "white").save(path)
    return path


def card(context: int | None = CONTEXT, name: str = "the-model") -> dict[str, Any]:
    base = {"data": [{"id": "other", "max_model_len": 100}, {"id": name, "max_model_len": context}]}
    return base if context else {"data": [{"id": name, "parent": "other"}]}


def read(server: ScriptedServer, page: Path, **settings: Any) -> OcrResult:
    choice = {"spec": f"endpoint:{server.address}", "model": "the-model", **settings}
    run = Settings(device="cpu", b=choice)
    spec = run.spec("b")
    assert isinstance(spec, EndpointSpec)
    backend = Endpoint(spec, run.of_side("b"))
    return backend.read(backend.settings.request(page))


def prompt_of(page: Path) -> int:
    """Tokens of the prompt as our engines count them: asked of a server with a roomy context."""
    with scripted_server(limited("vllm", 10**6, 900), models=card(5000)) as server:
        read(server, page, flavour="vllm")
        return int(5000 - server.bodies[0]["max_tokens"] - 1)


@pytest.mark.parametrize("kind", ["vllm", "older vllm", "sglang"])
@pytest.mark.parametrize("context", [CONTEXT, None])
def test_a_page_is_read_within_the_context(page: Path, kind: str, context: int | None) -> None:
    prompt = prompt_of(page)
    with scripted_server(limited(kind, CONTEXT, prompt), models=card(context)) as server:
        result = read(server, page, flavour=kind.split()[-1])
        (body,) = server.bodies
    assert body.get("max_tokens") == (CONTEXT - prompt - 1 if context else None)
    assert (result.text_raw, result.finish_reason) == (TEXT, "eos")
    assert result.environment.get("input: token limit") == (str(CONTEXT - prompt - 1) if context else None)


def test_a_prompt_is_counted_with_its_tiles(page: Path, tmp_path: Path) -> None:
    Image.new("RGB", (300, 300)).save(tmp_path / "small.png")
    small, large = prompt_of(tmp_path / "small.png"), prompt_of(page)
    assert (large - small, 256 < small < 330) == ((10 * 2 + 1) * 10 * 3, True)


@pytest.mark.parametrize(("asked", "sent"), [(100, 100), (8000, 8000), ("inf", None)])
def test_a_limit_of_the_users_is_sent_where_the_context_is_not_known(
    page: Path, asked: int | str, sent: int | None
) -> None:
    with scripted_server(limited("vllm", CONTEXT, 900, wants=50), models=card(None)) as server:
        read(server, page, flavour="vllm", **{"infer.max_new_tokens": asked})
        assert server.bodies[0].get("max_tokens") == sent


@pytest.mark.parametrize("kind", ["vllm", "older vllm", "sglang"])
def test_a_refusal_is_whole_and_names_the_option(page: Path, kind: str) -> None:
    with scripted_server(limited(kind, CONTEXT, 913), models=card(None)) as server:
        with pytest.raises(EndpointError) as error:
            read(server, page, flavour=kind.split()[-1], body={"max_tokens": 8192})
        assert server.bodies[0]["max_tokens"] == 8192
    words = str(error.value)
    assert "--infer.max-new-tokens" in words and "--b.body.max_tokens" in words
    ends = {"vllm": "(parameter=input_tokens)", "older vllm": "913 input tokens", "sglang": "9105 tokens"}
    assert ends[kind] in words


def test_a_servers_own_limit_is_a_difference_of_inputs(page: Path) -> None:
    """vLLM clips silently where its prompt is longer than ours, or its configuration says so."""
    with scripted_server(limited("vllm", CONTEXT, 8000, wants=500), models=card()) as server:
        clipped = read(server, page, flavour="vllm")
    assert (clipped.finish_reason, clipped.environment["input: token limit"]) == ("length", "192")
    environment = clipped.environment | {"input: token limit": "8192"}
    whole = replace(clipped, backend="eager", finish_reason="eos", environment=environment)
    report = compare_results(whole, clipped)
    assert "settings differ: token limit (8192 and 192)" in report.reasons, report.reasons


def test_a_stop_at_the_limit_that_was_asked_is_no_other_input(page: Path) -> None:
    with scripted_server(limited("vllm", CONTEXT, 900, wants=500), models=card()) as server:
        result = read(server, page, flavour="vllm", **{"infer.max_new_tokens": 100})
    assert result.finish_reason == "length" and "input: token limit" not in result.environment


def test_ollamas_context_holds_prompt_and_limit(page: Path) -> None:
    with scripted_server(native()) as server:
        read(server, page, flavour="ollama", **{"infer.max_new_tokens": 300})
        options = server.bodies[0]["options"]
    assert (options["num_predict"], options["num_ctx"]) == (300, 300 + prompt_of(page))


@pytest.mark.parametrize("models", [{}, {"data": 3}, {"data": [{"id": "the-model", "max_model_len": "8"}]}])
def test_a_named_model_needs_no_list(page: Path, models: Any) -> None:
    with scripted_server(limited("vllm", CONTEXT, 900), models=models) as server:
        assert read(server, page, flavour="plain", **{"infer.max_new_tokens": 50}).text_raw == TEXT


@pytest.mark.parametrize("context", [CONTEXT, None])
def test_the_documented_command_passes(
    page: Path, tmp_path: Path, context: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "page.md").write_text(TEXT)
    with scripted_server(limited("vllm", CONTEXT, 913), models=card(context)) as server:
        code = main(
            ["compare", str(page), "--a", f"folder:{tmp_path / 'texts'}", "--b", f"endpoint:{server.address}",
             "--b.flavour", "vllm", "--b.model", "the-model", "--history", ""]
        )  # fmt: skip
    said = capsys.readouterr()
    assert code == 0 and re.search(r"1 passed", said.out + said.err), said
