"""A server that answers as a script says, in each flavour's documented form, and records what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PIECES = ("<|ref|>title<|/ref|>", "<|det|>[[1, 2, 300, 400]]<|/det|>\n", "# Hello\n")
TEXT = "".join(PIECES)


@dataclass
class Sent:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Reply:
    """The connection of one request, on which a script writes."""

    def __init__(self, handler: BaseHTTPRequestHandler, gone: threading.Event) -> None:
        self._handler, self._gone = handler, gone

    def head(self, status: int = 200, kind: str = "application/json", **headers: str) -> None:
        self._handler.send_response(status)
        self._handler.send_header("Content-Type", kind)
        for name, value in headers.items():
            self._handler.send_header(name.replace("_", "-"), value)
        self._handler.send_header("Connection", "close")

    def whole(self, content: bytes, status: int = 200, kind: str = "application/json", **more: str) -> None:
        self.head(status, kind, Content_Length=str(len(content)), **more)
        self._handler.end_headers()
        self._handler.wfile.write(content)

    def json(self, data: Any, status: int = 200, **more: str) -> None:
        self.whole(json.dumps(data).encode(), status, **more)

    def begin(self, kind: str = "text/event-stream") -> None:
        self.head(200, kind, Transfer_Encoding="chunked")
        self._handler.end_headers()

    def chunk(self, content: bytes) -> None:
        self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        self._handler.wfile.flush()

    def event(self, data: Any) -> None:
        self.chunk(b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n")

    def end(self) -> None:
        self._handler.wfile.write(b"0\r\n\r\n")

    def wait(self) -> None:
        """Say nothing until the test is over."""
        self._gone.wait(30)


Script = Callable[[Reply, Sent], None]


@dataclass
class ScriptedServer:
    """`scripts` are used in turns, the last one for ever."""

    address: str
    scripts: list[Script]
    sent: list[Sent] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [sent.body for sent in self.sent if sent.method == "POST"]


@contextmanager
def scripted_server(*scripts: Script, models: Any = None) -> Iterator[ScriptedServer]:
    """Listens on a free port of this machine until the block ends."""
    over, lock = threading.Event(), threading.Lock()
    listed = {"data": [{"id": "the-model"}], "models": [{"name": "the-model"}]} if models is None else models

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            server.sent.append(Sent("GET", self.path, dict(self.headers), None))
            Reply(self, over).json(listed)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                sent = Sent("POST", self.path, dict(self.headers), body)
                server.sent.append(sent)
                script = server.scripts.pop(0) if len(server.scripts) > 1 else server.scripts[0]
                server.in_flight += 1
                server.most_in_flight = max(server.most_in_flight, server.in_flight)
            try:
                script(Reply(self, over), sent)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client has gone, as it may
            finally:
                with lock:
                    server.in_flight -= 1
                self.close_connection = True

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    server = ScriptedServer(
        f"http://127.0.0.1:{listening.server_address[1]}/v1", list(scripts) or [streamed()]
    )
    thread = threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        over.set()
        listening.shutdown()
        listening.server_close()
        thread.join()


# --- scripts --------------------------------------------------------------------------------------


def chunk_of(piece: str | None = None, finish: Any = None, **more: Any) -> dict[str, Any]:
    """A chunk of chat completions."""
    delta = {} if piece is None else {"content": piece}
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **more}
    return {"id": "c", "object": "chat.completion.chunk", "model": "said-model", "choices": [choice]}


def events(*data: Any) -> Script:
    """A stream of events; a function among them does something else with the reply."""

    def script(reply: Reply, sent: Sent) -> None:
        reply.begin()
        for each in data:
            each(reply) if callable(each) else reply.event(each)
        reply.end()

    return script


def held(until: threading.Event, timeout_s: float) -> Script:
    """The text, and its end only once `until` is set: a stream that a test has time to look at."""
    return events(*map(chunk_of, PIECES), lambda _: until.wait(timeout_s), chunk_of("", "stop"), b"[DONE]")


def streamed(pieces: Sequence[str] = PIECES, finish: str = "stop", ids: bool = False) -> Script:
    """A whole stream; with `ids` each piece is two tokens, as vLLM tells them."""
    first = chunk_of("") | ({"prompt_token_ids": [0, 9, 9, 7]} if ids else {})
    chunks = [
        chunk_of(piece, **({"token_ids": [2 * number, 2 * number + 1]} if ids else {}))
        for number, piece in enumerate(pieces)
    ]
    usage = {"prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10}
    ends = chunk_of(None, finish), {"model": "said-model", "choices": [], "usage": usage}, b"[DONE]"
    return events(lambda reply: reply.chunk(b": a comment\n\n"), first, *chunks, *ends)


def whole(text: str = TEXT, finish: Any = "stop", **more: Any) -> Script:
    """One document."""

    def script(reply: Reply, sent: Sent) -> None:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": finish, **more}
        reply.json({"model": "said-model", "choices": [choice], "usage": {"completion_tokens": 6}})

    return script


def limited(server: str, context: int, prompt: int, wants: int = 6, text: int = 20) -> Script:
    """A page of `wants` tokens read within a context, of whose prompt `text` tokens are text.

    As the servers' sources have it: "vllm" counts the text alone before it refuses, and clips to what the
    whole prompt leaves; "older vllm" and "sglang" count the whole prompt.
    """
    refusals = {
        "vllm": "This model's maximum context length is {context} tokens. However, you requested {asked} "
        "output tokens and your prompt contains at least {least} input tokens. Please reduce the length of "
        "the input prompt or the number of requested output tokens. (parameter=input_tokens)",
        "older vllm": "'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum "
        "context length is {context} tokens and your request has {prompt} input tokens",
        "sglang": "Requested token count exceeds the model's maximum context length of {context} tokens. You "
        "requested a total of {total} tokens",
    }

    def script(reply: Reply, sent: Sent) -> None:
        rest = context - prompt - (server == "sglang")
        asked = sent.body.get("max_tokens", rest)
        if asked > (context - text if server == "vllm" else rest):
            words = refusals[server].format(
                context=context, asked=asked, prompt=prompt, total=prompt + asked, least=context - asked + 1
            )
            error = {"message": words, "type": "BadRequestError", "code": 400}
            reply.json(error if server == "sglang" else {"error": error}, 400)
            return
        tokens = min(wants, asked, rest)
        finish = "stop" if tokens == wants else "length"
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
        choice = {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": finish}
        reply.json({"model": "said-model", "choices": [choice], "usage": usage})

    return script


def native(pieces: Sequence[str] = PIECES, reason: str = "stop") -> Script:
    """Lines of JSON, as Ollama streams them."""
    lines: list[dict[str, Any]] = [
        {"model": "m", "message": {"role": "assistant", "content": piece}, "done": False}
        for piece in (*pieces, "")
    ]
    lines[-1] |= {"done": True, "done_reason": reason, "prompt_eval_count": 4, "eval_count": 6}
    return raw(b"".join(json.dumps(line).encode() + b"\n" for line in lines), "application/x-ndjson")


def busy(status: int, **headers: str) -> Script:
    return lambda reply, sent: reply.json({"error": {"message": "overloaded"}}, status, **headers)


def raw(content: bytes, kind: str, status: int = 200, **headers: str) -> Script:
    return lambda reply, sent: reply.whole(content, status, kind, **headers)


def _drop(reply: Reply) -> None:
    raise BrokenPipeError


cut_off = events(chunk_of("# Hel"), _drop)
"""The connection ends in the middle of a stream."""
unfinished = events(chunk_of("# Hel"))
"""The stream ends well, and the answer does not say that it is complete."""
stalls = events(chunk_of("# Hel"), Reply.wait)


def silent(reply: Reply, sent: Sent) -> None:
    reply.wait()


def endless(reply: Reply, sent: Sent) -> None:
    """A gigabyte of tokens."""
    reply.begin()
    block = 20 * (b"data: " + json.dumps(chunk_of("lorem ipsum " * 1000)).encode() + b"\n\n")
    for _ in range(2**30 // len(block)):
        reply.chunk(block)


def endless_line(reply: Reply, sent: Sent) -> None:
    """A gigabyte without a line's end."""
    reply.begin()
    for _ in range(1024):
        reply.chunk(b"x" * 2**20)
