"""A chat completion's fields: what is taken, and what is refused in one line."""

from typing import Any

import pytest

from dsocr_core.serve.requests import MOST_IMAGE_BYTES, BadRequest, ChatRequest, chat_request
from tests.support.served import body_for


def test_a_request_is_its_image_and_the_published_prompt() -> None:
    assert chat_request(body_for(b"pixels")) == ChatRequest(b"pixels", "<image>\nFree OCR.", "mini")


def test_a_prompt_with_the_placeholder_stays_as_it_is() -> None:
    assert chat_request(body_for(b"x", "A <image> B")).prompt == "A <image> B"


def test_the_text_may_come_before_the_image_and_in_parts() -> None:
    body = body_for(b"x", "One, ")
    content = body["messages"][0]["content"]
    content.reverse()
    content.append({"type": "text", "text": "two."})
    assert chat_request(body).prompt == "<image>\nOne, two."


def test_vllm_s_fields_are_taken() -> None:
    xargs = {"ngram_size": 35, "window_size": 90, "whitelist_token_ids": [128821, 128822]}
    body = body_for(
        b"x", temperature=0, top_p=1.0, n=1, seed=7, max_tokens=9, stream=True, vllm_xargs=xargs,
        stream_options={"include_usage": True}, skip_special_tokens=True, return_token_ids=True,
        preset="base", user="somebody",
    )  # fmt: skip
    asked = chat_request(body)
    assert (asked.max_tokens, asked.preset) == (9, "base")
    assert asked.policy == {"no_repeat_ngram_size": 35, "ngram_window": 90}
    assert asked.exempt_ids == (128821, 128822)
    assert (asked.stream, asked.include_usage, asked.skip_special_tokens) == (True, True, True)
    assert asked.return_token_ids


def test_what_engines_differ_in_is_taken_under_the_settings_names() -> None:
    own = {"max_tiles": 6, "tile_size": 512, "template": "roles", "exif": False}
    asked = chat_request(body_for(b"x", ngram_whitelist=["<td>"], **own))
    assert asked.policy == {**own, "ngram_whitelist": ("<td>",)} and asked.exempt_ids is None


@pytest.mark.parametrize(
    "neutral",
    [
        {"response_format": {"type": "text"}, "tools": [], "tool_choice": "none", "logit_bias": {}},
        {"min_p": 0.0, "ignore_eos": False, "best_of": 1, "priority": 0, "add_generation_prompt": True},
        {"guided_json": None, "never_heard_of": None, "cache_prompt": False, "echo": False},
    ],
)
def test_fields_that_ask_for_nothing_are_taken(neutral: dict[str, Any]) -> None:
    assert chat_request(body_for(b"x", **neutral)) == chat_request(body_for(b"x"))


@pytest.mark.parametrize("end", ["\n", "\r\n", " "])
def test_base64_may_have_line_ends(end: str) -> None:
    body = body_for(b"pixels" * 100)
    part = body["messages"][0]["content"][0]["image_url"]
    head, comma, encoded = part["url"].partition(",")
    lines = end.join(encoded[start : start + 76] for start in range(0, len(encoded), 76))
    part["url"] = head + comma + lines + end
    assert chat_request(body).image == b"pixels" * 100


def _with_content(content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (body_for(b"x", temperature=0.7), "temperature is 0.7: decoding is greedy"),
        (body_for(b"x", temperature=True), "temperature is True"),
        (body_for(b"x", top_p=0.9), "top_p is 0.9"),
        (body_for(b"x", n=2), "n is 2"),
        (body_for(b"x", repetition_penalty=1.1), "repetition_penalty"),
        (body_for(b"x", stop=["\n"]), "stop is"),
        (body_for(b"x", max_tokens=0), "max_tokens is 0: give 1 to 8192"),
        (body_for(b"x", max_tokens=10**9), "max_tokens is 1000000000"),
        (body_for(b"x", max_tokens="many"), "max_tokens is many: give a whole number"),
        (body_for(b"x", stream="yes"), "stream is yes: give true or false"),
        (body_for(b"x", logprobs=True), "logprobs are not computed; top_two"),
        (body_for(b"x", preset="huge"), "preset is 'huge'"),
        (body_for(b"x", best_of=3), "best_of is 3"),
        (body_for(b"x", tools=[{}]), "tools is "),
        (body_for(b"x", ignore_eos=0), "ignore_eos is 0"),
        (body_for(b"x", guided_json={}), "guided_json is no field of this server"),
        (body_for(b"x", vllm_xargs={"window_size": -1}), "ngram_window is -1"),
        (body_for(b"x", vllm_xargs={"window_size": True}), "window_size is True: give a whole number"),
        (body_for(b"x", vllm_xargs={"window_size": 10**9}), "above 10,000"),
        (body_for(b"x", vllm_xargs={"whitelist_token_ids": ["<td>"]}), "at most 8 ids of tokens"),
        (body_for(b"x", vllm_xargs={"whitelist_token_ids": [1] * 9}), "at most 8 ids of tokens"),
        (
            body_for(b"x", ngram_whitelist=["<td>"], vllm_xargs={"whitelist_token_ids": [1]}),
            "say the same: give one",
        ),
        (body_for(b"x", ngram_whitelist=[7]), "the request: ngram_whitelist"),
        (body_for(b"x", max_tiles=1), "max_tiles is 1: give 2 to 64"),
        (body_for(b"x", tile_size=100), "tile_size is 100: give a multiple of 64"),
        (body_for(b"x", template="chat"), "one of plain, no_newline, roles"),
        (body_for(b"x", exif="no"), "exif is no: give true or false"),
        (body_for(b"x", vllm_xargs={"ngram_size": -1}), "ngram_size is -1"),
        (body_for(b"x", vllm_xargs={"n": 1}), "vllm_xargs has no n"),
        ({}, "give one message"),
        ({"messages": []}, "give one message"),
        ({"messages": [{"role": "system", "content": []}]}, "give the role user"),
        (_with_content("read this"), "no list of parts"),
        (_with_content([{"type": "text", "text": "a"}]), "0 images"),
        (_with_content([{"type": "input_audio"}]), "neither a text nor an image_url"),
        (_with_content([{"type": "image_url", "image_url": {"url": "http://h/a.png"}}]), "not fetched"),
        (_with_content([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]), "not fetched"),
        (_with_content([{"type": "image_url", "image_url": 3}]), "has no url"),
        (
            _with_content([{"type": "image_url", "image_url": {"url": "data:image/png;base64,§"}}]),
            "not base64",
        ),
        (_with_content([{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]), "empty"),
        (body_for(b"x", "<image> <image>"), "exactly one <image>"),
        (body_for(b"x", "a" * 10_001), "the prompt has 10,009 characters"),
    ],
)
def test_what_cannot_be_done_is_refused(body: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRequest) as error:
        chat_request(body)
    assert says in str(error.value) and "\n" not in str(error.value) and error.value.status == 400


def test_two_images_are_two_pages() -> None:
    body = body_for(b"x")
    body["messages"][0]["content"] *= 2
    with pytest.raises(BadRequest, match="2 images; a page is one image"):
        chat_request(body)


def test_an_image_has_a_largest_size() -> None:
    with pytest.raises(BadRequest, match="larger than 32 MB") as error:
        chat_request(body_for(b"x" * (MOST_IMAGE_BYTES + 4)))
    assert error.value.status == 413
