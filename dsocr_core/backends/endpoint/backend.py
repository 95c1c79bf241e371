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
from typing import TYPE_CHECKING, Any

from dsocr_core.backends.backend import Backend, OnWait
from dsocr_core.backends.endpoint.answers import Reading, shown
from dsocr_core.backends.endpoint.connection import EndpointError, Server, Sleep
from dsocr_core.backends.endpoint.flavours import (
    NATIVE,
    Body,
    SentImage,
    base_address,
    body_of,
    check_request,
    paths_of,
    sent_limit,
    shown_body,
)
from dsocr_core.backends.left_behind import size_of
from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.base.specs.kinds import EndpointSpec
from dsocr_core.page.documents import load_image
from dsocr_core.page.inputs import Encode, longest_prompt
from dsocr_core.page.tokenizer import Tokenizer
from dsocr_core.reading.fingerprints import required_files, result_key
from dsocr_core.reading.input_parity import KNOWN_INPUT, LIMIT
from dsocr_core.reading.records import CancelToken, Observer, OcrRequest, OcrResult, SilentObserver
from dsocr_core.settings import Settings

if TYPE_CHECKING:
    from dsocr_core.engine.page import PreparedPage

MOST_FILE_BYTES = 64 * 1024 * 1024
_SENT_AS_THEY_ARE = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
"""Formats that every server opens, by their first bytes. Others are sent as PNG."""


class Endpoint(Backend):
    """A server behind the protocol. Thread-safe; each page is a connection of its own."""

    def __init__(self, spec: EndpointSpec, settings: Settings, sleep: Sleep | None = None) -> None:
        """`sleep` passes the time before another attempt. Raises DsocrError for settings that cannot be."""
        check_request(spec)
        super().__init__(spec, settings)
        self.spec = spec
        key = os.environ.get(spec.key_variable, "") if spec.key_variable else ""
        self._server = Server(base_address(spec), key.strip(), spec.timeout_s, spec.attempts)
        if sleep is not None:
            self._server.sleep = sleep
        self._paths = paths_of(spec.flavour)
        self._model, self._asked = spec.model, False
        self._context: int | None = None
        self._asking = threading.Lock()

    @property
    def concurrency(self) -> int:
        return self.spec.concurrency

    def check(self) -> None:
        if self.spec.key_variable and not self._server.key:
            raise EndpointError(
                f"{self.name}: the environment has no {self.spec.key_variable}; put the key there, or leave "
                "key_variable out"
            )
        if self._server.key and not self._server.key.isprintable():
            raise EndpointError(f"{self.name}: the key in {self.spec.key_variable} has signs no header takes")

    def load(self) -> None:
        self.model()

    def model(self, cancel: CancelToken | None = None) -> str:
        """The model's name: the one of the settings, else the first that the server lists.

        Its context is asked for with it; a server that lists nothing needs a name alone. Raises EndpointError
        or Cancelled.
        """
        with self._asking:
            if not self._asked:
                try:
                    data = self._server.get(self._paths.models, cancel)
                except EndpointError:
                    if not self._model:
                        raise
                    data = {}
                self._model, self._context = _model_of(data, self._model, native=self._paths is NATIVE)
                if not self._model:
                    raise EndpointError(f"{self._server.address}: lists no model; name one with model")
                self._asked = True
            return self._model

    def key(self, request: OcrRequest) -> str:
        facts = {
            "endpoint": self._server.address,
            "flavour": self.spec.flavour,
            "model": self.spec.model,
            "body": dict(self.spec.body),
            "image": required_files(request)[0].sha256,
            "prompt": request.prompt,
            "max_new_tokens": request.max_new_tokens,
        }
        return result_key(facts)

    def read(
        self,
        request: OcrRequest,
        observer: Observer | None = None,
        cancel: CancelToken | None = None,
        on_wait: OnWait | None = None,
        prepared: PreparedPage | None = None,
    ) -> OcrResult:
        """Read one page. Raises EndpointError and other DsocrErrors, Cancelled when `cancel` is set."""
        observer = observer or SilentObserver()
        if cancel is not None and cancel.is_set():
            raise Cancelled
        size = size_of(request, self.settings, prepared)
        image = sent_image(request.image, self.settings.max_pixels)
        model, prompt = self.model(cancel), longest_prompt(request, size, _encoder(self.settings.checkpoint))
        body = body_of(self.spec, model, request, image, prompt, self._context)
        reading = Reading()
        take = reading.take_native if self._paths is NATIVE else reading.take

        def on_data(data: dict[str, Any] | None) -> None:
            if data is None:
                reading.end_of_stream()
            elif delta := take(data):
                observer.text(delta)

        began = time.monotonic()
        server = self._server.post(
            self._paths.chat,
            json.dumps(body).encode(),
            on_data,
            events=self._paths is not NATIVE,
            on_wait=on_wait or (lambda words: None),
            cancel=cancel,
        )
        if not reading.answered:
            raise EndpointError(f"{self._server.address}: the answer has no choices")
        if not reading.ended:
            raise EndpointError(
                f"{self._server.address}: the answer ended after {reading.characters:,} characters without "
                "saying that it is complete"
            )
        return self._result(request, size, image, body, reading, server, (time.monotonic() - began) * 1000)

    def _result(
        self,
        request: OcrRequest,
        size: tuple[int, int],
        image: SentImage,
        body: Body,
        reading: Reading,
        server: str,
        wall_ms: float,
    ) -> OcrResult:
        ids = reading.ids_of_steps()
        texts = reading.token_texts if ids is not None and len(ids) == len(reading.token_texts) else []
        return OcrResult(
            backend=self.name,
            request=request,
            image_size=size,
            text_raw=reading.text,
            token_ids=None if ids is None else tuple(ids),
            token_texts=tuple(texts),
            finish_reason=reading.finish_reason,
            inputs=None,
            timings=(),
            environment=self._environment(image, body, reading, server)
            | _own_limit(request, body, reading, ids)
            | {"wall_ms": f"{wall_ms:.1f}"},
        )

    def _environment(self, image: SentImage, body: Body, reading: Reading, server: str) -> dict[str, str]:
        """Record what was really sent and what the server says of itself; the image by its hash."""
        sent = json.dumps(shown_body(body, image), ensure_ascii=False).replace(image.shown, "sha256")
        found = {
            "engine": f"endpoint {self.spec.flavour}",
            "endpoint": self._server.address,
            "model": shown(reading.model or str(body.get("model", "")), 120),
            "request": self._server.hidden(sent),
            "image_sent": image.sha256,
            "server": server,
            **{name: str(count) for name, count in sorted(reading.usage.items())[:8]},
        }
        if reading.prompt_ids is not None:
            found["prompt_ids"] = " ".join(map(str, reading.prompt_ids[:_MOST_PROMPT_IDS]))
        if reading.log_probabilities:
            found["least_log_probability"] = f"{min(reading.log_probabilities):.4g}"
        if reading.aside:
            found["text_from" if not any(reading.texts) else "left_out"] = reading.aside_name
        if reading.finish_words:
            found["finish_reason"] = reading.finish_words
        return found


_MOST_PROMPT_IDS = 20_000


_MOST_CONTEXT = 10_000_000


def _model_of(data: dict[str, Any], named: str, native: bool) -> tuple[str, int | None]:
    """The named model, else the first that is listed, and the length of its context, where that is said."""
    models, field = (data.get("models"), "name") if native else (data.get("data"), "id")
    cards = [card for card in models if isinstance(card, dict)] if isinstance(models, list) else []
    card = next((card for card in cards if named in ("", card.get(field))), {})
    name, context = named or card.get(field), card.get("max_model_len")
    if not isinstance(name, str) or not name.isprintable() or len(name) > 300:
        name = ""
    return name, context if type(context) is int and 0 < context < _MOST_CONTEXT else None


@functools.lru_cache(maxsize=2)
def _encoder(checkpoint: str) -> Encode:
    """The checkpoint's tokenizer; without one a token a byte, which no text has more of."""
    try:
        return Tokenizer.load(Path(checkpoint.removeprefix("random:"))).encode
    except DsocrError:
        return lambda text: list(text.encode())


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


@functools.lru_cache(maxsize=4)
def _as_png(path: Path, max_pixels: int, changed_ns: int) -> bytes:
    buffer = io.BytesIO()
    load_image(path, max_pixels).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def sent_image(path: Path, max_pixels: int) -> SentImage:
    """A page's file as it is sent: PNG and JPEG unchanged, anything else as PNG.

    Raises DsocrError for a file that is no page.
    """
    try:
        content = read_bytes(path, MOST_FILE_BYTES, follow_links=True)
        changed = path.stat().st_mtime_ns
    except (InvalidFile, OSError) as error:
        raise DsocrError(f"{path}: {error}") from error
    mime = next((kind for start, kind in _SENT_AS_THEY_ARE.items() if content.startswith(start)), None)
    if mime is None:
        mime, content = "image/png", _as_png(path, max_pixels, changed)
    digest = hashlib.sha256(content).hexdigest()
    return SentImage(mime, base64.b64encode(content).decode("ascii"), digest)
