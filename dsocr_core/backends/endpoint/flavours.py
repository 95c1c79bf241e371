"""Requests to each flavour of server: address and body.

The bodies are the documented ones (docs/backends.md has the sources). Every field can be set otherwise:
settings under `body` win, and null takes a field out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dsocr_core.base.specs.kinds import EndpointSpec, Flavour, SpecError
from dsocr_core.base.specs.parsing import merge
from dsocr_core.reading.records import IMAGE_PLACEHOLDER, UNLIMITED, OcrRequest

Body = dict[str, Any]

UNLIMITED_TOKENS = 8192
"""Tokens that are asked for where a request has no limit: servers take no word for it."""


@dataclass(frozen=True)
class SentImage:
    """The bytes of a page as they are sent."""

    mime: str
    base64: str
    sha256: str

    @property
    def url(self) -> str:
        return f"data:{self.mime};base64,{self.base64}"

    @property
    def shown(self) -> str:
        """Give what stands for it in a record."""
        return f"sha256:{self.sha256}"


@dataclass(frozen=True)
class Paths:
    """Paths at which a flavour answers, below its base address."""

    chat: str = "/chat/completions"
    models: str = "/models"


NATIVE = Paths("/api/chat", "/api/tags")
"""Ollama's own protocol: its context length cannot be set in the other."""


def paths_of(flavour: Flavour) -> Paths:
    return NATIVE if flavour == "ollama" else Paths()


def base_address(spec: EndpointSpec) -> str:
    """The address that paths are appended to."""
    base = spec.target.rstrip("/")
    if spec.flavour == "ollama":
        for end in ("/v1", "/api"):
            base = base.removesuffix(end)
    return base


def check_request(spec: EndpointSpec) -> None:
    """Refuse what a side was given and its flavour cannot pass on. Raises SpecError."""
    for name in spec.infer:
        if name != "max_new_tokens":
            raise SpecError(
                f"{spec.name}: infer.{name} cannot be told to a server of flavour {spec.flavour}: "
                "set the field of its body that stands for it"
            )
    if spec.preset is not None:
        raise SpecError(
            f"{spec.name}: preset cannot be told to a server of flavour {spec.flavour}: it has its own"
        )


def body_of(
    spec: EndpointSpec,
    model: str,
    request: OcrRequest,
    image: SentImage,
    prompt: int = 0,
    context: int | None = None,
) -> Body:
    """The body of one request, the flavour's fields under those of the settings.

    The tokens asked for are those that fit beside a prompt of `prompt` tokens in the model's `context`.
    """
    asked = request.required.max_new_tokens
    limit = UNLIMITED_TOKENS if asked == UNLIMITED else asked
    if context is not None:
        limit = max(1, min(limit, context - prompt - 1))
    made = _BODIES[spec.flavour](model, request, image, limit)
    made["stream"] = spec.stream
    if spec.flavour == "ollama":
        made["options"]["num_ctx"] = prompt + limit
    elif context is None and spec.flavour in _REFUSE and limit >= UNLIMITED_TOKENS:
        del made["max_tokens"]
    return without_nulls(merge(made, spec.body), spec.body)


def sent_limit(body: Body) -> int | None:
    """The tokens that a body asks for; None where it leaves them to the server."""
    options = body.get("options")
    limit = body.get("max_tokens", options.get("num_predict") if isinstance(options, dict) else None)
    return limit if type(limit) is int else None


_REFUSE: tuple[Flavour, ...] = ("vllm", "sglang")
"""Flavours that refuse to be asked for more than their context has; not asked, they take what it has."""


def without_nulls(body: Body, given: Mapping[str, Any]) -> Body:
    """The body without the fields that the settings have as null."""
    return {
        name: without_nulls(value, given[name])
        if isinstance(value, dict) and isinstance(given.get(name), Mapping)
        else value
        for name, value in body.items()
        if not (name in given and given[name] is None)
    }


def shown_body(body: Any, image: SentImage) -> Any:
    """The body as a record has it: the image by its hash."""
    if isinstance(body, dict):
        return {name: shown_body(value, image) for name, value in body.items()}
    if isinstance(body, list):
        return [shown_body(value, image) for value in body]
    return image.shown if body in (image.url, image.base64) else body


# --- messages -------------------------------------------------------------------------------------


def around_image(prompt: str) -> tuple[str, str]:
    """A prompt's text before and after the image, without the line end that the server's template adds."""
    before, _, after = prompt.partition(IMAGE_PLACEHOLDER)
    return before.strip("\n"), after.removeprefix("\n")


def _text(text: str) -> list[Body]:
    return [{"type": "text", "text": text}] if text else []


def _picture(image: SentImage) -> Body:
    return {"type": "image_url", "image_url": {"url": image.url}}


def _messages(content: list[Body]) -> list[Body]:
    return [{"role": "user", "content": content}]


# --- bodies ---------------------------------------------------------------------------------------


def _plain(model: str, request: OcrRequest, image: SentImage, limit: int, flavour: Flavour = "plain") -> Body:
    before, after = around_image(request.required.prompt)
    content = [*_text(before), _picture(image), *_text(after)]
    if flavour in request.family.served.placeholder:
        content = [_picture(image), *_text(request.required.prompt)]
    return {"model": model, "temperature": 0, "max_tokens": limit, "messages": _messages(content)}


def _rule(request: OcrRequest) -> Body:
    return {"ngram_size": request.required.no_repeat_ngram_size, "window_size": request.ngram_window}


def _vllm(model: str, request: OcrRequest, image: SentImage, limit: int) -> Body:
    rule = request.family.served.rule
    return _plain(model, request, image, limit, "vllm") | {
        "skip_special_tokens": False,
        "vllm_xargs": _rule(request) if rule is None else dict(rule),
        "return_token_ids": True,
    }


def _sglang(model: str, request: OcrRequest, image: SentImage, limit: int) -> Body:
    """The rule's class comes with the server's package and is sent as text: `body.custom_logit_processor`."""
    return _plain(model, request, image, limit, "sglang") | {"skip_special_tokens": False}


def _llamacpp(model: str, request: OcrRequest, image: SentImage, limit: int) -> Body:
    """The text first, as its documents have it. No rule: DRY stands in for it where it is set."""
    before, after = around_image(request.required.prompt)
    return _plain(model, request, image, limit) | {
        "cache_prompt": False,
        "messages": _messages([*_text(before + after), _picture(image)]),
    }


def _ollama(model: str, request: OcrRequest, image: SentImage, limit: int) -> Body:
    before, after = around_image(request.required.prompt)
    return {
        "model": model,
        "messages": [{"role": "user", "content": before + after, "images": [image.base64]}],
        "options": {"temperature": 0, "num_predict": limit},
    }


_BODIES: Mapping[Flavour, Callable[[str, OcrRequest, SentImage, int], Body]] = {
    "plain": _plain,
    "vllm": _vllm,
    "sglang": _sglang,
    "llamacpp": _llamacpp,
    "ollama": _ollama,
}
