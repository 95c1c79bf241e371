"""The routes: /v1/chat/completions, /v1/models, /health, /metrics."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.own_address import OwnAddress, Scope
from dsocr_core.base.untrusted import Refused, parse_json
from dsocr_core.reading.markup import END_MARKER
from dsocr_core.reading.records import OcrResult
from dsocr_core.serve.requests import BadRequest, ChatRequest, chat_request
from dsocr_core.serve.service import Service

MOST_BODY_BYTES = 48 * 1024 * 1024
BODY_S = 60
"""In which a body must have arrived."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def build_app(service: Service, hosts: Sequence[str] = (), any_address: bool = False) -> Starlette:
    """The application.

    It answers to the names of this machine itself and to `hosts`; with `any_address` also to the address at
    which a client reached it. No page of the web may reach it by another name, nor from another origin.
    """

    def names(scope: Scope) -> list[str]:
        server = scope.get("server")
        return [*LOOPBACK, *hosts, *([server[0]] if any_address and server else [])]

    routes = _Routes(service)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", routes.chat, methods=["POST"]),
            Route("/v1/models", routes.models),
            Route("/health", routes.health),
            Route("/metrics", routes.metrics),
        ],
        middleware=[Middleware(OwnAddress, hosts=names)],
        exception_handlers={HTTPException: _no_such_path},
    )


async def _no_such_path(http: Request, error: Exception) -> Response:
    """Answer to a path or a method that is not there."""
    assert isinstance(error, HTTPException)
    message = f"{http.method} {http.url.path[:100]}: {error.detail}"
    return JSONResponse(error_document(message, error.status_code), error.status_code, error.headers)


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service, self._began = service, int(time.time())

    async def chat(self, http: Request) -> Response:
        try:
            asked = await _asked(http, self._service)
            answer = Answer(self._service.name, replace(asked, image=b""))
            pieces = self._service.read(asked)
            del asked  # the image, which is a file soon
            watched = _Watched(http, pieces)
            if answer.request.stream:
                # What is wrong with the request itself is told with its status, before the stream begins.
                try:
                    first = await watched.next()
                finally:
                    await watched.close()
                return StreamingResponse(
                    _events(answer, first, pieces),
                    media_type="text/event-stream",
                    headers={"Cache-Control": "no-store"},
                )
            try:
                return JSONResponse(answer.whole(await watched.result()))
            finally:
                await watched.close()
                await pieces.aclose()
        except ClientDisconnect:
            return Response(status_code=499)
        except DsocrError as error:
            status = error.status if isinstance(error, BadRequest) else 400
            headers = {"Retry-After": "1"} if status == 503 else None
            return JSONResponse(error_document(str(error), status), status, headers)

    async def models(self, http: Request) -> Response:
        name = self._service.name
        model = {"id": name, "object": "model", "created": self._began, "owned_by": "dsocr", "root": name}
        return JSONResponse({"object": "list", "data": [model]})

    async def health(self, http: Request) -> Response:
        service = self._service
        return JSONResponse({"status": "ok", "engine": service.engine, "waiting": service.waiting})

    async def metrics(self, http: Request) -> Response:
        return Response(self._service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _asked(http: Request, service: Service) -> ChatRequest:
    """The request of a body. Raises BadRequest, ClientDisconnect."""
    kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # nothing that a page of another site may send without asking
        raise BadRequest("give the content type application/json", 415)
    content = bytearray()
    with service.arriving() as count:
        try:
            async with asyncio.timeout(BODY_S):
                async for chunk in http.stream():
                    if len(content) + len(chunk) > MOST_BODY_BYTES:
                        raise BadRequest(f"the body is larger than {MOST_BODY_BYTES // 2**20} MB", 413)
                    count(len(chunk))
                    content += chunk
        except TimeoutError:
            raise BadRequest(f"the body did not arrive within {BODY_S} s", 408) from None
        async with service.parsing:
            try:
                return await asyncio.to_thread(lambda: chat_request(parse_json(content, any_number=True)))
            except Refused as error:
                raise BadRequest(f"the body: {error}") from None


class _Watched:
    """Pieces, as long as their client is there."""

    def __init__(self, http: Request, pieces: AsyncGenerator[str | OcrResult]) -> None:
        self._pieces = pieces
        self._gone = asyncio.ensure_future(_left(http))

    async def next(self) -> str | OcrResult:
        """The next piece. Raises DsocrError, also when the client has gone."""
        waiting = asyncio.ensure_future(anext(self._pieces))
        try:
            await asyncio.wait([waiting, self._gone], return_when=asyncio.FIRST_COMPLETED)
            if self._gone.done():
                raise BadRequest("the client has gone", 499)
            return await waiting
        finally:
            await _end(waiting)

    async def result(self) -> OcrResult:
        while True:
            piece = await self.next()
            if isinstance(piece, OcrResult):
                return piece

    async def close(self) -> None:
        """Watch no longer: a stream sees by itself when nobody takes it."""
        await _end(self._gone)


async def _left(http: Request) -> None:
    """Ends when the client has gone; its request has been read."""
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def _end(task: asyncio.Future[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, DsocrError):
        await task


async def _events(
    answer: Answer, first: str | OcrResult, pieces: AsyncGenerator[str | OcrResult]
) -> AsyncIterator[bytes]:
    """The stream of an answer. It is cancelled when the client goes, and the reading with it."""
    yield answer.first()
    sent = False
    piece: str | OcrResult = first
    try:
        while isinstance(piece, str):
            sent = True
            yield answer.piece(piece)
            piece = await anext(pieces)
        if not sent:  # pages that are read together come whole
            yield answer.piece(piece.text_raw)
        yield answer.last(piece)
    except DsocrError as error:
        status = error.status if isinstance(error, BadRequest) else 400
        yield event(error_document(str(error), status))
    finally:
        await pieces.aclose()


SPECIALS = ("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<|grounding|>", "<image>")


def content_of(text: str, skip_special_tokens: bool) -> str:
    """A text, or a piece of it that holds whole tokens, as servers give it: without the end marker."""
    text = text.removesuffix(END_MARKER)
    for special in SPECIALS if skip_special_tokens else ():
        text = text.replace(special, "")
    return text


@dataclass(frozen=True)
class Answer:
    """One answer in the making; its pieces have one id."""

    model: str
    request: ChatRequest
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, result: OcrResult) -> dict[str, Any]:
        content = content_of(result.text_raw, self.request.skip_special_tokens)
        message = {"role": "assistant", "content": content}
        return self._document("chat.completion", [{"message": message} | self._choice(result)]) | {
            "usage": usage(result),
            **self._prompt_ids(result),
        }

    # --- a stream -------------------------------------------------------------------------------

    def first(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, delta: str) -> bytes:
        return self._chunk({"content": content_of(delta, self.request.skip_special_tokens)})

    def last(self, result: OcrResult) -> bytes:
        """Say how it ended, with what is known only then; and the end of the stream."""
        choice = {"delta": {}} | self._choice(result)
        end = self._document("chat.completion.chunk", [choice]) | self._prompt_ids(result)
        chunks = [end]
        if self.request.include_usage:
            chunks.append(self._document("chat.completion.chunk", []) | {"usage": usage(result)})
        return b"".join(map(event, chunks)) + b"data: [DONE]\n\n"

    def _chunk(self, delta: dict[str, str]) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        return event(self._document("chat.completion.chunk", [choice]))

    # --- parts ----------------------------------------------------------------------------------

    def _document(self, kind: str, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": list(choices),
        }

    def _choice(self, result: OcrResult) -> dict[str, Any]:
        found: dict[str, Any] = {
            "index": 0,
            "finish_reason": "stop" if result.finish_reason == "eos" else result.finish_reason,
        }
        if self.request.return_token_ids:
            found["token_ids"] = list(result.required_tokens)
        if self.request.top_two:
            steps = result.top_two
            found["top_two"] = {
                "ids": [token for step in steps for token in step.ids],
                "logits": [logit for step in steps for logit in step.logits],
            }
        return found

    def _prompt_ids(self, result: OcrResult) -> dict[str, Any]:
        if not self.request.return_token_ids or result.inputs is None:
            return {}
        return {"prompt_token_ids": list(result.inputs.prompt_ids)}


def usage(result: OcrResult) -> dict[str, int]:
    prompt = len(result.inputs.prompt_ids) if result.inputs else 0
    new = result.new_tokens or 0
    return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}


def event(data: dict[str, Any]) -> bytes:
    """One Server-Sent Event."""
    return b"data: " + json.dumps(data, ensure_ascii=False).encode(errors="replace") + b"\n\n"


def error_document(message: str, status: int) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    message = " ".join(message.split()).encode(errors="backslashreplace").decode()
    return {"error": {"message": message, "type": kind, "code": status}}
