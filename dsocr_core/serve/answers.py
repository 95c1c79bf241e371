"""Answers in the form of OpenAI's chat completions, with vLLM's token ids."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dsocr_core.reading.markup import END_MARKER
from dsocr_core.reading.records import OcrResult
from dsocr_core.serve.requests import ChatRequest

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
