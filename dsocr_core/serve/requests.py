"""A chat completion as it is asked for, checked field by field: what this server cannot do it refuses.

A field that is passed over in silence is how servers come to differ; so an unknown one is an error here,
unless its value is null.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.specs.conversion import converted
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.reading.records import IMAGE_PLACEHOLDER, MOST_EXEMPT, VENDOR_TOKEN_CEILING, prompt_problem
from dsocr_core.settings import InferSettings

MOST_NEW_TOKENS = VENDOR_TOKEN_CEILING
MOST_IMAGE_BYTES = 32 * 1024 * 1024
MOST_NGRAM = 10_000
"""Tokens of an n-gram, and of the window that it is looked for in."""
MOST_PROMPT = 10_000
"""Characters."""

_DATA_URL = re.compile(r"data:image/[a-zA-Z0-9.+-]{1,40};base64,")

_NO_BLANKS = dict.fromkeys(map(ord, " \t\r\n"))

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "temperature": (0,),
    "top_p": (1,),
    "n": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "top_k": (-1, 0, 1),
    "stop": ([],),
    "stop_token_ids": ([],), "bad_words": ([],), "min_tokens": (0,), "min_p": (0,), "length_penalty": (1,),
    "best_of": (1,), "use_beam_search": (False,), "ignore_eos": (False,), "logit_bias": ({},),
    "include_stop_str_in_output": (False,), "detokenize": (True,), "echo": (False,), "suffix": ("",),
    "add_generation_prompt": (True,), "continue_final_message": (False,), "add_special_tokens": (False,),
    "response_format": ({"type": "text"},), "modalities": (["text"],), "reasoning_effort": ("none",),
    "tools": ([],), "tool_choice": ("none", "auto"), "functions": ([],), "function_call": ("none", "auto"),
    "mm_processor_kwargs": ({},), "chat_template_kwargs": ({},),
}  # fmt: skip
"""Fields that may only say what is done anyhow."""

_IGNORED = (
    "user", "seed", "store", "metadata", "request_id", "priority", "cache_prompt", "cache_salt",
    "service_tier", "parallel_tool_calls", "spaces_between_special_tokens", "safety_identifier",
    "prompt_cache_key",
)  # fmt: skip
"""Fields that change nothing in greedy decoding of one page."""

_LIKE = {int: (int, float), bool: (bool,), list: (list,), dict: (dict,), str: (str,)}

_TAKEN = (
    "model", "messages", "max_tokens", "max_completion_tokens", "stream", "stream_options",
    "skip_special_tokens", "vllm_xargs", "return_token_ids", "top_two", "preset", "logprobs", "top_logprobs",
    "ngram_whitelist", "max_tiles", "tile_size", "template", "exif",
)  # fmt: skip

_RULE = {"ngram_size": "no_repeat_ngram_size", "window_size": "ngram_window"}
"""Fields of `vllm_xargs`, and what our settings call them."""

_POLICIES = {"ngram_whitelist": list, "max_tiles": int, "tile_size": int, "template": str, "exif": bool}
"""Fields of our own, called as our settings are."""


class BadRequest(DsocrError):
    """A request that is refused; `status` is what HTTP calls it."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class ChatRequest:
    """Request of a client. None is the server's own."""

    image: bytes
    prompt: str
    model: str = ""
    max_tokens: int | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Choices of reading and decoding, by fields of `OcrRequest`: what is not in it is the server's own."""
    exempt_ids: tuple[int, ...] | None = None
    """Ids of tokens that the n-gram rule never forbids, as vLLM's processor is told them."""
    preset: str | None = None
    stream: bool = False
    include_usage: bool = False
    skip_special_tokens: bool = False
    return_token_ids: bool = False
    top_two: bool = False


def chat_request(data: Mapping[str, Any]) -> ChatRequest:
    """The request of a body's JSON object. Raises BadRequest: one line that names the field."""
    _check_fields(data)
    image, prompt = _message(data.get("messages"))
    return ChatRequest(
        image=image,
        prompt=prompt,
        model=_of_type(data, "model", str, ""),
        max_tokens=_max_tokens(data),
        policy=_policy(data),
        exempt_ids=_exempt_ids(data),
        preset=_preset(data),
        stream=_of_type(data, "stream", bool, False),
        include_usage=_of_type(_of_type(data, "stream_options", dict, {}), "include_usage", bool, False),
        skip_special_tokens=_of_type(data, "skip_special_tokens", bool, False),
        return_token_ids=_of_type(data, "return_token_ids", bool, False),
        top_two=_of_type(data, "top_two", bool, False),
    )


def _check_texts(value: Any, field_: str) -> None:
    """Refuse half a character (a lone surrogate) in any text: no encoding has it. Raises BadRequest."""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise BadRequest(f"{field_}: a text holds half a character (a lone surrogate)")
    elif isinstance(value, dict):
        for name, each in value.items():
            _check_texts(name, f"{field_}: a name" if field_ else "a field's name")
            _check_texts(each, f"{field_}.{name}" if field_ else name)
    elif isinstance(value, list):
        for each in value:
            _check_texts(each, field_)


def _check_fields(data: Mapping[str, Any]) -> None:
    _check_texts(data, "")
    for name, value in data.items():
        if value is None:  # asks for nothing, whatever it is called
            continue
        if name in _NEUTRAL:
            if not any(value == each and type(value) in _LIKE[type(each)] for each in _NEUTRAL[name]):
                only = json.dumps(_NEUTRAL[name][0])
                raise BadRequest(
                    f"{name} is {str(value)[:40]}: decoding is greedy; give {only} or leave it out"
                )
        elif name not in _TAKEN and name not in _IGNORED:
            raise BadRequest(f"{str(name)[:40]} is no field of this server; it takes {', '.join(_TAKEN)}")
    if data.get("logprobs") or data.get("top_logprobs"):
        raise BadRequest("logprobs are not computed; top_two: true gives each step's two best logits")


def _of_type(data: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    value = data.get(name)
    if value is None:
        return default
    if type(value) is not kind:
        words = {
            bool: "true or false",
            int: "a whole number",
            str: "a text",
            dict: "an object",
            list: "a list",
        }[kind]
        raise BadRequest(f"{name} is {str(value)[:40]}: give {words}")
    return value


def _max_tokens(data: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = _of_type(data, name, int, None)
        if value is not None:
            if not 1 <= value <= MOST_NEW_TOKENS:
                raise BadRequest(f"{name} is {str(value)[:40]}: give 1 to {MOST_NEW_TOKENS}")
            return int(value)
    return None


def _preset(data: Mapping[str, Any]) -> str | None:
    value = _of_type(data, "preset", str, None)
    if value is not None and value not in PRESETS:
        raise BadRequest(f"preset is '{value[:40]}': give one of {', '.join(PRESETS)}")
    return None if value is None else str(value)


def _policy(data: Mapping[str, Any]) -> dict[str, Any]:
    """The n-gram rule as vLLM's processor is told it, and what else engines differ in."""
    rule = _of_type(data, "vllm_xargs", dict, {})
    for name in rule:
        if name not in (*_RULE, "whitelist_token_ids"):
            raise BadRequest(
                f"vllm_xargs has no {str(name)[:40]}: give {', '.join((*_RULE, 'whitelist_token_ids'))}"
            )
    found = {field_: _of_type(rule, name, int, None) for name, field_ in _RULE.items()}
    found |= {name: _of_type(data, name, kind, None) for name, kind in _POLICIES.items()}
    given = {name: value for name, value in found.items() if value is not None}
    if any(given.get(name, 0) > MOST_NGRAM for name in _RULE.values()):
        raise BadRequest(f"vllm_xargs: a size or a window is above {MOST_NGRAM:,}")
    try:
        given = converted(InferSettings, given, "the request")
        InferSettings(**given)
    except DsocrError as error:
        raise BadRequest(str(error).replace("infer.", "")) from None
    if "ngram_whitelist" in given:
        given["ngram_whitelist"] = tuple(given["ngram_whitelist"])
    return given


def _exempt_ids(data: Mapping[str, Any]) -> tuple[int, ...] | None:
    ids = _of_type(_of_type(data, "vllm_xargs", dict, {}), "whitelist_token_ids", list, None)
    if ids is None:
        return None
    if data.get("ngram_whitelist") is not None:
        raise BadRequest("ngram_whitelist and whitelist_token_ids say the same: give one of them")
    if not all(type(each) is int and 0 <= each < 2**31 for each in ids) or len(ids) > MOST_EXEMPT:
        raise BadRequest(f"vllm_xargs: whitelist_token_ids: give at most {MOST_EXEMPT} ids of tokens")
    return tuple(ids)


# --- messages -------------------------------------------------------------------------------------


def _message(messages: Any) -> tuple[bytes, str]:
    """The one image and the prompt of the one message."""
    if not isinstance(messages, list) or len(messages) != 1 or not isinstance(messages[0], dict):
        raise BadRequest("messages: give one message with one image: the published prompt has no roles")
    if messages[0].get("role") != "user":
        raise BadRequest("messages: give the role user: the published prompt has no others")
    content = messages[0].get("content")
    if not isinstance(content, list):
        raise BadRequest("messages: the content is no list of parts; give an image_url and a text")
    images, texts = [], []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "image_url":
            images.append(_image(part.get("image_url")))
        else:
            raise BadRequest("messages: a part is neither a text nor an image_url")
    if len(images) != 1:
        raise BadRequest(f"messages: {len(images)} images; a page is one image")
    return images[0], _prompt("".join(texts))


def _prompt(text: str) -> str:
    """As published: image, line end, text; or the text as it is where it has the placeholder."""
    prompt = text if IMAGE_PLACEHOLDER in text else f"{IMAGE_PLACEHOLDER}\n{text}"
    if len(prompt) > MOST_PROMPT:
        raise BadRequest(f"the prompt has {len(prompt):,} characters; at most {MOST_PROMPT:,} are taken")
    if (problem := prompt_problem(prompt)) is not None:
        raise BadRequest(f"the prompt {problem}")
    return prompt


def _image(value: Any) -> bytes:
    """The bytes of a data: URL. No address is fetched."""
    url = value.get("url") if isinstance(value, dict) else value
    if not isinstance(url, str):
        raise BadRequest("image_url has no url")
    match = _DATA_URL.match(url)
    if match is None:
        raise BadRequest("image_url: give data:image/...;base64,...; addresses are not fetched")
    if (len(url) - match.end()) // 4 * 3 > MOST_IMAGE_BYTES + 2:
        raise BadRequest(f"the image is larger than {MOST_IMAGE_BYTES // 2**20} MB", 413)
    try:
        encoded = url[match.end() :].translate(_NO_BLANKS)  # some encoders break lines
        content = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("image_url: what follows base64, is not base64") from None
    if not content:
        raise BadRequest("image_url: the image is empty")
    return content
