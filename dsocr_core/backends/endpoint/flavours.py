"""Requests to each flavour of server, in one table.

The bodies are the documented ones (docs/backends.md has the sources). Every field can be set otherwise:
settings under `body` win, and null takes a field out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dsocr_core.base.specs import EndpointSpec, Flavour, SettingsError, merge
from dsocr_core.reading.records import IMAGE_PLACEHOLDER, UNLIMITED, OcrRequest

Body = dict[str, Any]

UNLIMITED_TOKENS = 8192
"""Tokens that are asked for where a request has no limit: servers take no word for it."""


@dataclass(frozen=True)
class Form:
    """Differences of a flavour from the others."""

    chat: str = "/chat/completions"
    models: str = "/models"
    model_fields: tuple[str, str] = ("data", "id")
    """Fields of the list of models and of a name in it."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its body beside those that all have."""
    text_first: bool = False
    own_limit: bool = False
    """True where more tokens than its context has are refused: without the field it gives what it has."""


FORMS: Mapping[Flavour, Form] = {
    "plain": Form(),
    "vllm": Form(more={"skip_special_tokens": False, "return_token_ids": True}, own_limit=True),
    # The rule's class comes with the server's package and is sent as text: `body.custom_logit_processor`.
    "sglang": Form(more={"skip_special_tokens": False}, own_limit=True),
    # No rule: DRY stands in for it where it is set.
    "llamacpp": Form(more={"cache_prompt": False}, text_first=True),
    # Its own protocol: its context length cannot be set in the other.
    "ollama": Form("/api/chat", "/api/tags", ("models", "name")),
}


def base_address(spec: EndpointSpec) -> str:
    """The address that paths are appended to."""
    base = spec.target.rstrip("/")
    return base.removesuffix("/v1").removesuffix("/api") if spec.flavour == "ollama" else base


def check_request(spec: EndpointSpec) -> None:
    """Refuse what a side was given and its flavour cannot pass on. Raises SettingsError."""
    refused = [f"infer.{name}" for name in spec.infer if name != "max_new_tokens"]
    refused += ["preset"] if spec.preset is not None else []
    for name in refused:
        way = "it has its own" if name == "preset" else "set the field of its body that stands for it"
        raise SettingsError(
            f"{spec.name}: {name} cannot be told to a server of flavour {spec.flavour}: {way}"
        )


def body_of(
    spec: EndpointSpec,
    model: str,
    request: OcrRequest,
    image: tuple[str, str],
    prompt: int = 0,
    context: int | None = None,
) -> Body:
    """The body of one request, the flavour's fields under those of the settings.

    `image` is its content in Base64 and its URL. The tokens asked for are those that fit beside a prompt of
    `prompt` tokens in the model's `context`.
    """
    form, known = FORMS[spec.flavour], request.required
    limit = UNLIMITED_TOKENS if known.max_new_tokens == UNLIMITED else known.max_new_tokens
    if context is not None:
        limit = max(1, min(limit, context - prompt - 1))
    # The text before and after the image, without the line end that the server's template adds.
    before, _, after = known.prompt.partition(IMAGE_PLACEHOLDER)
    before, after = before.strip("\n"), after.removeprefix("\n")
    body: Body = {"model": model, "stream": spec.stream}
    if spec.flavour == "ollama":
        body["messages"] = [{"role": "user", "content": before + after, "images": [image[0]]}]
        body["options"] = {"temperature": 0, "num_predict": limit, "num_ctx": prompt + limit}
        return _without_nulls(merge(body, spec.body), spec.body)
    picture = {"type": "image_url", "image_url": {"url": image[1]}}
    if form.text_first:
        content = [before + after, picture]
    elif spec.flavour in request.family.served.placeholder:
        content = [picture, known.prompt]
    else:
        content = [before, picture, after]
    parts = [{"type": "text", "text": each} if isinstance(each, str) else each for each in content if each]
    body |= {"temperature": 0, "messages": [{"role": "user", "content": parts}], **form.more}
    if context is not None or not form.own_limit or limit < UNLIMITED_TOKENS:
        body["max_tokens"] = limit
    if spec.flavour == "vllm":
        rule = request.family.served.rule
        own = {"ngram_size": known.no_repeat_ngram_size, "window_size": request.ngram_window}
        body["vllm_xargs"] = own if rule is None else dict(rule)
    return _without_nulls(merge(body, spec.body), spec.body)


def sent_limit(body: Body) -> int | None:
    """The tokens that a body asks for; None where it leaves them to the server."""
    options = body.get("options")
    limit = body.get("max_tokens", options.get("num_predict") if isinstance(options, dict) else None)
    return limit if type(limit) is int else None


def _without_nulls(body: Body, given: Mapping[str, Any]) -> Body:
    """The body without the fields that the settings have as null."""
    return {
        name: _without_nulls(value, given[name])
        if isinstance(value, dict) and isinstance(given.get(name), Mapping)
        else value
        for name, value in body.items()
        if given.get(name, "") is not None
    }
