"""Our own server, with the embedded checkpoint: what `endpoint` gets is what the engine gives."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dsocr_core.backends.backend import Opening
from dsocr_core.backends.on_device import engine_backend
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.read.session import Session
from dsocr_core.reading.markup import END_MARKER
from dsocr_core.reading.records import SilentObserver
from dsocr_core.settings import InferSettings, Settings
from tests.support.planted_causes import made_pages
from tests.support.served import Served, body_for, served


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(Settings(device="cpu", preset="tiny").for_comparison()) as running:
        yield running


def sample() -> Path:
    return next(iter(sorted((PROJECT_ROOT / "data" / "samples").glob("06-*.png"))))


@pytest.mark.parametrize("stream", [True, False])
def test_an_endpoint_gives_the_engine_s_tokens_margins_and_boxes(
    server: Served, tmp_path: Path, stream: bool
) -> None:
    far = {"spec": f"endpoint:{server.address}", "flavour": "dsocr", "stream": stream}
    infer = InferSettings(max_new_tokens=40)
    settings = Settings(device="cpu", preset="tiny", infer=infer, a="eager", b=far).for_comparison()
    comparison = Session(settings, Opening(tmp_path)).compare(settings.request(sample()))
    assert comparison.errors == {} and comparison.a is not None and comparison.b is not None
    assert comparison.verdict == "identical"
    assert comparison.b.token_ids == comparison.a.token_ids and len(comparison.a.required_tokens) == 40
    assert comparison.b.top_two == comparison.a.top_two
    assert comparison.b.finish_reason == comparison.a.finish_reason == "length"
    assert comparison.b.text_raw == comparison.a.text_raw.removesuffix(END_MARKER)
    prompt = comparison.b.environment["prompt_ids"].split()
    assert list(map(int, prompt)) == list(comparison.a.required_inputs.prompt_ids)


def test_a_window_and_a_whitelist_are_those_of_the_engine(server: Served, tmp_path: Path) -> None:
    """Asked as vLLM is, by ids, and as our own flavour does, by texts, against the engine called directly."""
    page = made_pages(tmp_path)[0].path  # six times the same line
    infer = InferSettings(max_new_tokens=64)
    settings = Settings(device="cpu", preset="tiny", prompt="free_ocr", infer=infer).for_comparison()
    engine = engine_backend(settings, Opening(tmp_path)).engine
    request = settings.request(page)
    published = engine.recognize(request).required_tokens
    free = engine.recognize(replace(request, no_repeat_ngram_size=0)).required_tokens
    forbidden = next(token for token, other in zip(free, published, strict=True) if token != other)
    exempt = engine.checkpoint.tokenizer.decode((forbidden,))
    cell = engine.checkpoint.tokenizer.encode("<td>")
    asked = [((30, 90, ("<td>",)), cell), ((20, 40, ()), []), ((20, 90, (exempt,)), [forbidden])]
    found = set()
    for (size, window, texts), ids in asked:
        own = replace(request, no_repeat_ngram_size=size, ngram_window=window, ngram_whitelist=texts)
        wanted = engine.recognize(own).required_tokens
        rule = {"ngram_size": size, "window_size": window, "whitelist_token_ids": ids}
        given = {"max_tokens": 64, "return_token_ids": True, "vllm_xargs": rule}
        answer = server.post(body_for(page, request.prompt, **given)).json()
        assert tuple(answer["choices"][0]["token_ids"]) == wanted
        far = {
            "spec": f"endpoint:{server.address}", "flavour": "dsocr", "infer.no_repeat_ngram_size": size,
            "infer.ngram_window": window, "infer.ngram_whitelist": list(texts),
        }  # fmt: skip
        comparison = Session(replace(settings, b=far), Opening(tmp_path)).compare(request, ("b",))
        assert comparison.b is not None and comparison.b.token_ids == wanted
        found.add(wanted)
    assert len(found) > 1 and published not in found


def test_a_token_that_is_none_is_refused(server: Served) -> None:
    response = server.post(body_for(sample(), vllm_xargs={"whitelist_token_ids": [2**31 - 1]}))
    assert response.status_code == 400
    assert "2147483647 is no token of mini" in response.json()["error"]["message"]


def test_the_text_comes_as_it_is_read(server: Served, tmp_path: Path) -> None:
    class Pieces(SilentObserver):
        def __init__(self) -> None:
            self.found: list[str] = []

        def text(self, delta: str) -> None:
            self.found.append(delta)

    pieces = Pieces()
    far = {"spec": f"endpoint:{server.address}", "flavour": "dsocr", "infer.max_new_tokens": 12}
    settings = Settings(device="cpu", preset="tiny", b=far)
    session = Session(settings, Opening(tmp_path))
    comparison = session.compare(settings.request(sample()), ("b",), {"b": pieces})
    assert comparison.b is not None and "".join(pieces.found) == comparison.b.text_raw
    assert len(pieces.found) > 6


def test_a_file_that_is_no_image_is_refused(server: Served) -> None:
    response = server.post(body_for(b"no image at all"))
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("the image: not an image of a known format")
    assert server.get("/health").json()["status"] == "ok"
