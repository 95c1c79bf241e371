"""A server that answers as a script says, in each flavour's documented form, and records what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TEXT = "<|ref|>title<|/ref|><|det|>[[1, 2, 300, 400]]<|/det|>\n# Hello\n"


@dataclass
class Sent:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Reply:
    """The connection of one request, on which a script writes; `over` is set once the test is."""

    def __init__(self, handler: BaseHTTPRequestHandler, over: threading.Event) -> None:
        self._handler, self.over = handler, over

    def write(
        self, content: bytes, status: int = 200, kind: str = "application/json", length: int = -1, **more: str
    ) -> None:
        """Write an answer whose header says that it has `length` bytes."""
        self._handler.send_response(status)
        known = {"Content-Type": kind, "Content-Length": str(length if length >= 0 else len(content))}
        for name, value in {**known, **more, "Connection": "close"}.items():
            self._handler.send_header(name.replace("_", "-"), value)
        self._handler.end_headers()
        self._handler.wfile.write(content)

    def json(self, data: Any, status: int = 200) -> None:
        self.write(json.dumps(data).encode(), status)


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
    address = f"http://127.0.0.1:{listening.server_address[1]}/v1"
    server = ScriptedServer(address, list(scripts) or [whole()])
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


def whole(text: str = TEXT, finish: Any = "stop", used: tuple[int, int] = (4, 6), **more: Any) -> Script:
    """A chat completion, which used tokens of prompt and text."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish, **more}
    usage = {"prompt_tokens": used[0], "completion_tokens": used[1], "total_tokens": sum(used)}
    return lambda reply, sent: reply.json({"model": "said-model", "choices": [choice], "usage": usage})


def native(reason: str = "stop") -> Script:
    """Ollama's own form."""
    said = {"model": "m", "message": {"role": "assistant", "content": TEXT}, "done": True}
    said |= {"done_reason": reason, "prompt_eval_count": 4, "eval_count": 6}
    return lambda reply, sent: reply.json(said)


def limited(server: str, context: int, prompt: int, wants: int = 6, text: int = 20) -> Script:
    """A page of `wants` tokens read within a context, of whose prompt `text` tokens are text.

    As the servers' sources have it: "vllm" counts the text alone before it refuses, and clips to what the
    whole prompt leaves; "sglang" counts the whole prompt.
    """

    def script(reply: Reply, sent: Sent) -> None:
        rest = context - prompt - (server == "sglang")
        asked = sent.body.get("max_tokens", rest)
        length = f"maximum context length {'of' if server == 'sglang' else 'is'} {context} tokens"
        if server == "sglang" and asked > rest:
            words = f"Requested token count exceeds the model's {length}. You requested a total of"
            error = {"message": f"{words} {prompt + asked} tokens", "type": "BadRequestError", "code": 400}
            reply.json(error, 400)
        elif server == "vllm" and asked > context - text:
            words = f"This model's {length}. However, you requested {asked} output tokens and your prompt "
            words += f"contains at least {context - asked + 1} input tokens. Please reduce the length of the "
            words += "input prompt or the number of requested output tokens. (parameter=input_tokens)"
            reply.json({"error": {"message": words, "type": "BadRequestError", "code": 400}}, 400)
        else:
            tokens = min(wants, asked, rest)
            whole(finish="stop" if tokens == wants else "length", used=(prompt, tokens))(reply, sent)

    return script


def busy(status: int) -> Script:
    return lambda reply, sent: reply.json({"error": {"message": "overloaded"}}, status)


def raw(content: bytes, kind: str = "application/json", status: int = 200, **headers: str) -> Script:
    return lambda reply, sent: reply.write(content, status, kind, **headers)


def begins(waits: bool = False) -> Script:
    """The beginning of an answer, after which the connection ends, or nothing follows."""

    def script(reply: Reply, sent: Sent) -> None:
        reply.write(b'{"choices": [', length=1000)
        reply.over.wait(30 * waits)

    return script


def silent(reply: Reply, sent: Sent) -> None:
    reply.over.wait(30)


def endless(reply: Reply, sent: Sent) -> None:
    """A gigabyte."""
    reply.write(b"{", length=2**30)
    for _ in range(1024):
        reply._handler.wfile.write(b" " * 2**20)
