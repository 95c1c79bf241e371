"""A server as a backend: a page is sent as one request, and its text comes back as one result.

The request bodies are the documented ones (docs/backends.md has the sources). The setting `body` replaces any
field; a null removes it.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dsocr_core.backends.backend import Backend, PageRead
from dsocr_core.backends.exchange import Answer, Client, EndpointError, answer_of, shown
from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.specs import BackendSpec, Flavour, SettingsError, merge
from dsocr_core.page.documents import load_image
from dsocr_core.page.prompt import Encode, longest_prompt
from dsocr_core.page.tokenizer import Tokenizer
from dsocr_core.reading.fingerprints import result_key
from dsocr_core.reading.input_parity import KNOWN_INPUT, LIMIT
from dsocr_core.reading.records import IMAGE_PLACEHOLDER, UNLIMITED, CancelToken, OcrRequest, OcrResult
from dsocr_core.settings import Settings

MOST_FILE_BYTES = 64 * 1024 * 1024
UNLIMITED_TOKENS = 8192
"""Token limit that is sent for an unlimited request: servers have no word for unlimited."""
_MOST_CONTEXT = 10_000_000
_SENT_AS_THEY_ARE = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
"""First bytes of formats that every server opens. Files of other formats are sent as PNG."""
Body = dict[str, Any]


@dataclass(frozen=True)
class Form:
    """Form of the requests of one flavour of servers."""

    chat: str = "/chat/completions"
    models: str = "/models"
    model_fields: tuple[str, str] = ("data", "id")
    """Key of the list of models in an answer, and key of a model's name."""
    more: Mapping[str, Any] = field(default_factory=dict)
    text_first: bool = False
    own_limit: bool = False
    """True where a limit beyond the server's context is refused, and no limit means all that fits."""


FORMS: Mapping[Flavour, Form] = {
    "plain": Form(),
    "vllm": Form(more={"skip_special_tokens": False, "return_token_ids": True}, own_limit=True),
    # The rule's class comes with the server's package and is sent as text: `body.custom_logit_processor`.
    "sglang": Form(more={"skip_special_tokens": False}, own_limit=True),
    # It has no n-gram rule: `body` may set its DRY sampler.
    "llamacpp": Form(more={"cache_prompt": False}, text_first=True),
    # Ollama's own protocol: the other has no field for the context length.
    "ollama": Form("/api/chat", "/api/tags", ("models", "name")),
}


class Endpoint(Backend):
    """A server as a backend. Thread-safe: each page has a connection of its own."""

    def __init__(self, spec: BackendSpec, settings: Settings) -> None:
        """Raises SettingsError for a setting that the flavour has no field for."""
        refused = [f"infer.{name}" for name in spec.own.get("infer", ()) if name != "max_new_tokens"]
        for name in refused + ["preset"] * ("preset" in spec.own):
            way = "it has its own" if name == "preset" else "set the field of its body that stands for it"
            words = f"{name} cannot be told to a server of flavour {spec.flavour}: {way}"
            raise SettingsError(f"{spec.name}: {words}")
        super().__init__(spec, settings)
        self.concurrency, self.form = spec.concurrency, FORMS[spec.flavour]
        key = os.environ.get(spec.key_variable, "") if spec.key_variable else ""
        address = spec.target.rstrip("/")
        if spec.flavour == "ollama":
            address = address.removesuffix("/v1").removesuffix("/api")
        self.client = Client(address, key.strip(), spec.timeout_s)
        self._model: str | None = None
        self._context: int | None = None
        self._asking = threading.Lock()

    def check(self, together: bool = False) -> None:
        super().check(together)
        named, key = self.spec.key_variable, self.client.key
        if named and not (key and key.isprintable()):
            words = f"the environment has no key in {named}; put it there, or leave key_variable out"
            raise EndpointError(f"{self.name}: {words}")

    def load(self) -> None:
        self.model()

    def model(self, cancel: CancelToken | None = None) -> str:
        """Name of the model: the setting, else the first that the server lists, with its context length.

        Where it lists none the setting is needed. Raises EndpointError or Cancelled.
        """
        with self._asking:
            if self._model is None:
                listed, name = self.form.model_fields
                models: Any = None
                try:
                    models = self.client.ask(self.form.models, cancel=cancel)[0].get(listed)
                except EndpointError:
                    if not self.spec.model:
                        raise
                cards = [each for each in models if isinstance(each, dict)] if type(models) is list else []
                card = next((card for card in cards if self.spec.model in ("", card.get(name))), {})
                model, context = self.spec.model or card.get(name), card.get("max_model_len")
                if not isinstance(model, str) or not model.isprintable() or not 0 < len(model) <= 300:
                    raise EndpointError(f"{self.client.address}: lists no model; name one with model")
                known = type(context) is int and 0 < context < _MOST_CONTEXT
                self._model, self._context = model, context if known else None
            return self._model

    def cache_key(self, request: OcrRequest) -> str:
        facts = {"flavour": self.spec.flavour, "model": self.spec.model, "body": dict(self.spec.body)}
        asked = {"prompt": request.prompt, "max_new_tokens": request.max_new_tokens}
        return result_key(facts | asked | {"of": super().cache_key(request)})

    def read_page(self, page: PageRead) -> OcrResult:
        """Read one page. Raises EndpointError and other DsocrErrors, Cancelled when `cancel` is set."""
        request, size, address = page.request, page.size(self.settings.max_pixels), self.client.address
        mime, image = sent_image(request.image, self.settings.max_pixels)
        model = self.model(page.cancel)
        prompt = longest_prompt(request, size, _encoder(self.settings.checkpoint))
        encoded = base64.b64encode(image).decode("ascii")
        body = self._body(model, request, (encoded, f"data:{mime};base64,{encoded}"), prompt)
        recorded = self._body(model, request, ("sha256", "sha256"), prompt)
        began, content = time.monotonic(), json.dumps(body).encode()
        data, server = self.client.ask(self.form.chat, content, page.cancel)
        wall_ms = (time.monotonic() - began) * 1000
        try:
            answer = answer_of(data)
        except EndpointError as error:
            raise EndpointError(self.client.hidden(f"{address}: {error}")) from error
        page.say(answer.text)
        facts = {
            "engine": f"endpoint {self.spec.flavour}", "endpoint": address, "server": server,
            "model": shown(answer.model or str(body.get("model", "")), 120),
            "request": self.client.hidden(json.dumps(recorded, ensure_ascii=False)),
            "image_sent": hashlib.sha256(image).hexdigest(), "wall_ms": f"{wall_ms:.1f}",
            **{name: str(count) for name, count in sorted(answer.usage.items())[:8]},
        }  # fmt: skip
        if answer.finish_words:
            facts["finish_reason"] = answer.finish_words
        if (limit := _own_limit(request, body, answer)) is not None:
            facts[f"{KNOWN_INPUT}{LIMIT}"] = str(limit)
        return OcrResult(
            backend=self.name, request=request, image_size=size, text_raw=answer.text,
            token_ids=None if answer.token_ids is None else tuple(answer.token_ids), token_texts=(),
            finish_reason=answer.finish_reason, inputs=None, timings=(), environment=facts,
        )  # fmt: skip

    def _body(self, model: str, request: OcrRequest, image: tuple[str, str], prompt: int) -> Body:
        """Body of a request: the fields of the flavour, replaced by those of the settings.

        `image` is the picture in Base64 and as a URL. The token limit is what fits beside `prompt` tokens.
        """
        form, flavour, known, family = self.form, self.spec.flavour, request.required, request.family
        limit = UNLIMITED_TOKENS if known.max_new_tokens == UNLIMITED else known.max_new_tokens
        if self._context is not None:
            limit = max(1, min(limit, self._context - prompt - 1))
        # The text before and after the image, without the line end that the server's template adds.
        before, _, after = known.prompt.partition(IMAGE_PLACEHOLDER)
        before, after = before.strip("\n"), after.removeprefix("\n")
        body: Body = {"model": model, "stream": False}
        if flavour == "ollama":
            body["messages"] = [{"role": "user", "content": before + after, "images": [image[0]]}]
            body["options"] = {"temperature": 0, "num_predict": limit, "num_ctx": prompt + limit}
            return _without_nulls(merge(body, self.spec.body), self.spec.body)
        picture = {"type": "image_url", "image_url": {"url": image[1]}}
        content: list[Any] = [before, picture, after]
        if form.text_first:
            content = [before + after, picture]
        elif flavour in family.placeholder:
            content = [picture, known.prompt]
        parts = [
            {"type": "text", "text": each} if isinstance(each, str) else each for each in content if each
        ]
        body |= {"temperature": 0, "messages": [{"role": "user", "content": parts}], **form.more}
        if self._context is not None or not form.own_limit or limit < UNLIMITED_TOKENS:
            body["max_tokens"] = limit
        if flavour == "vllm":
            own = {"ngram_size": known.no_repeat_ngram_size, "window_size": request.ngram_window}
            body["vllm_xargs"] = own if family.served_rule is None else dict(family.served_rule)
        return _without_nulls(merge(body, self.spec.body), self.spec.body)


def _without_nulls(body: Body, given: Mapping[str, Any]) -> Body:
    found = {name: value for name, value in body.items() if given.get(name, "") is not None}
    for name, value in found.items():
        if isinstance(value, dict) and isinstance(below := given.get(name), Mapping):
            found[name] = _without_nulls(value, below)
    return found


def _own_limit(request: OcrRequest, body: Body, answer: Answer) -> int | None:
    """Token limit of the server where it is known to differ from the request's, else None."""
    options = body.get("options")
    sent = body.get("max_tokens", options.get("num_predict") if isinstance(options, dict) else None)
    limits = [limit for limit in (sent,) if type(limit) is int]
    ids, asked = answer.token_ids, request.max_new_tokens
    count = answer.usage.get("completion_tokens", None if ids is None else len(ids))
    if answer.finish_reason == "length" and count is not None:
        limits += [count, asked if isinstance(asked, int) else count]
    return min(limits) if limits and min(limits) != asked else None


@functools.lru_cache(maxsize=2)
def _encoder(checkpoint: str) -> Encode:
    """Tokenizer of the checkpoint. Without one each byte counts as a token, and no text has more."""
    try:
        return Tokenizer.load(Path(checkpoint.removeprefix("random:"))).encode
    except DsocrError:
        return lambda text: list(text.encode())


def sent_image(path: Path, max_pixels: int) -> tuple[str, bytes]:
    """A page's file as it is sent, with its MIME type: PNG and JPEG unchanged, anything else as PNG.

    Raises DsocrError for a file that is no page.
    """
    try:
        content = read_bytes(path, MOST_FILE_BYTES, follow_links=True)
    except InvalidFile as error:
        raise DsocrError(f"{path}: {error}") from error
    for start, mime in _SENT_AS_THEY_ARE.items():
        if content.startswith(start):
            return mime, content
    buffer = io.BytesIO()
    load_image(path, max_pixels).save(buffer, format="PNG", compress_level=1)
    return "image/png", buffer.getvalue()
