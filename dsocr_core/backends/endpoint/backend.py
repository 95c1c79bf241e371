"""A server as a backend: a page goes out as one request, its text comes back as one result."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from dsocr_core.backends.backend import Backend, PageRead
from dsocr_core.backends.endpoint.answers import EndpointError, Reading, shown
from dsocr_core.backends.endpoint.client import Client, Sleep
from dsocr_core.backends.endpoint.flavours import (
    FORMS,
    Body,
    base_address,
    body_of,
    check_request,
    sent_limit,
)
from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import paired
from dsocr_core.base.specs import EndpointSpec
from dsocr_core.page.documents import load_image
from dsocr_core.page.inputs import Encode, longest_prompt
from dsocr_core.page.tokenizer import Tokenizer
from dsocr_core.reading.fingerprints import required_files, result_key
from dsocr_core.reading.input_parity import KNOWN_INPUT, LIMIT
from dsocr_core.reading.records import CancelToken, OcrRequest, OcrResult
from dsocr_core.settings import Settings

MOST_FILE_BYTES = 64 * 1024 * 1024
_MOST_PROMPT_IDS = 20_000
_MOST_CONTEXT = 10_000_000
_SENT_AS_THEY_ARE = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
"""Formats that every server opens, by their first bytes. Others are sent as PNG."""


class Endpoint(Backend):
    """A server behind the protocol. Thread-safe; each page is a connection of its own."""

    def __init__(self, spec: EndpointSpec, settings: Settings, sleep: Sleep | None = None) -> None:
        """`sleep` passes the time before another attempt. Raises DsocrError for settings that cannot be."""
        check_request(spec)
        super().__init__(spec, settings)
        self.spec, self.concurrency = spec, spec.concurrency
        key = os.environ.get(spec.key_variable, "") if spec.key_variable else ""
        self._client = Client(base_address(spec), key.strip(), spec.timeout_s, spec.attempts)
        if sleep is not None:
            self._client.sleep = sleep
        self._model: str | None = None
        self._context: int | None = None
        self._asking = threading.Lock()

    def check(self) -> None:
        if self.spec.key_variable and not self._client.key:
            raise EndpointError(
                f"{self.name}: the environment has no {self.spec.key_variable}; put the key there, or leave "
                "key_variable out"
            )
        if self._client.key and not self._client.key.isprintable():
            raise EndpointError(f"{self.name}: the key in {self.spec.key_variable} has signs no header takes")

    def load(self) -> None:
        self.model()

    def model(self, cancel: CancelToken | None = None) -> str:
        """The model's name: the one of the settings, else the first that the server lists.

        Its context is asked for with it; a server that lists nothing needs a name alone. Raises EndpointError
        or Cancelled.
        """
        with self._asking:
            if self._model is None:
                found: list[dict[str, Any] | None] = []
                path, named = FORMS[self.spec.flavour].models, self.spec.model
                try:
                    self._client.ask(path, found.append, cancel=cancel, timeout_s=30.0)
                except EndpointError:
                    if not named:
                        raise
                model, self._context = _model_of((found or [{}])[0] or {}, self.spec)
                if not model:
                    raise EndpointError(f"{self._client.address}: lists no model; name one with model")
                self._model = model
            return self._model

    def key(self, request: OcrRequest) -> str:
        facts = {
            "endpoint": self._client.address,
            "flavour": self.spec.flavour,
            "model": self.spec.model,
            "body": dict(self.spec.body),
            "image": required_files(request)[0].sha256,
            "prompt": request.prompt,
            "max_new_tokens": request.max_new_tokens,
        }
        return result_key(facts)

    def read_page(self, page: PageRead) -> OcrResult:
        """Read one page. Raises EndpointError and other DsocrErrors, Cancelled when `cancel` is set."""
        request, size = page.request, page.size(self.settings.max_pixels)
        mime, image = sent_image(request.image, self.settings.max_pixels)
        model = self.model(page.cancel)
        prompt = longest_prompt(request, size, _encoder(self.settings.checkpoint))
        encoded = base64.b64encode(image).decode("ascii")
        body, recorded = (
            body_of(self.spec, model, request, sent, prompt, self._context)
            for sent in ((encoded, f"data:{mime};base64,{encoded}"), ("sha256", "sha256"))
        )
        reading = Reading()

        def on_document(data: dict[str, Any] | None) -> None:
            if delta := reading.add(data):
                page.say(paired(delta))

        began, content, path = time.monotonic(), json.dumps(body).encode(), FORMS[self.spec.flavour].chat
        server = self._client.ask(path, on_document, content, page.cancel, page.on_wait)
        wall_ms = (time.monotonic() - began) * 1000
        if not reading.answered:
            raise EndpointError(f"{self._client.address}: the answer has no choices")
        if not reading.ended:
            raise EndpointError(
                f"{self._client.address}: the answer ended after {reading.characters:,} characters without "
                "saying that it is complete"
            )
        ids = reading.ids_of_steps()
        texts = reading.token_texts if ids is not None and len(ids) == len(reading.token_texts) else []
        facts = {
            "engine": f"endpoint {self.spec.flavour}",
            "endpoint": self._client.address,
            "model": shown(reading.model or str(body.get("model", "")), 120),
            "request": self._client.hidden(json.dumps(recorded, ensure_ascii=False)),
            "image_sent": hashlib.sha256(image).hexdigest(),
            "server": server,
            "wall_ms": f"{wall_ms:.1f}",
        }
        return OcrResult(
            backend=self.name, request=request, image_size=size, text_raw=reading.text,
            token_ids=None if ids is None else tuple(ids), token_texts=tuple(map(paired, texts)),
            finish_reason=reading.finish_reason, inputs=None, timings=(),
            environment=facts | _said(reading) | _own_limit(request, body, reading, ids),
        )  # fmt: skip


def _model_of(data: dict[str, Any], spec: EndpointSpec) -> tuple[str, int | None]:
    """The named model, else the first that is listed, and the length of its context, where that is said."""
    listed, field = FORMS[spec.flavour].model_fields
    models = data.get(listed)
    cards = [card for card in models if isinstance(card, dict)] if isinstance(models, list) else []
    card = next((card for card in cards if spec.model in ("", card.get(field))), {})
    name, context = spec.model or card.get(field), card.get("max_model_len")
    if not isinstance(name, str) or not name.isprintable() or len(name) > 300:
        name = ""
    return name, context if type(context) is int and 0 < context < _MOST_CONTEXT else None


def _said(reading: Reading) -> dict[str, str]:
    """Facts that the server says of a page."""
    found = {name: str(count) for name, count in sorted(reading.usage.items())[:8]}
    if reading.prompt_ids is not None:
        found["prompt_ids"] = " ".join(map(str, reading.prompt_ids[:_MOST_PROMPT_IDS]))
    if reading.thoughts_field:
        found["text_from" if not any(reading.texts) else "left_out"] = reading.thoughts_field
    if reading.finish_words:
        found["finish_reason"] = reading.finish_words
    return found


def _own_limit(request: OcrRequest, body: Body, reading: Reading, ids: list[int] | None) -> dict[str, str]:
    """The server's token limit, a fact of its inputs, where it is known to be another than the request's."""
    limit = sent_limit(body)
    count = reading.usage.get("completion_tokens", None if ids is None else len(ids))
    if reading.finish_reason == "length" and count is not None:
        asked = request.max_new_tokens
        limit = min(count, asked if isinstance(asked, int) else count, *([] if limit is None else [limit]))
    if limit is None or limit == request.max_new_tokens:
        return {}
    return {f"{KNOWN_INPUT}{LIMIT}": str(limit)}


@functools.lru_cache(maxsize=2)
def _encoder(checkpoint: str) -> Encode:
    """The checkpoint's tokenizer; without one a token a byte, which no text has more of."""
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
