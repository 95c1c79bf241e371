"""Answers of a server, piece by piece: events of a stream, lines of JSON, or one document.

A server may be anybody's: sizes are bounded, types are checked, and nothing is filled in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.records import FinishReason

MOST_ANSWER_BYTES = 64 * 1024 * 1024
MOST_LINE_BYTES = 8 * 1024 * 1024
MOST_TEXT = 4_000_000
"""Characters of one page: the published limit of 8,192 tokens makes some 40,000."""
MOST_TOKENS = 1_000_000

_TOKEN_ID = re.compile(r"token_id:(\d{1,9})")
_ENDS: dict[str, FinishReason] = {
    "stop": "eos", "eos": "eos", "eos_token": "eos", "end_turn": "eos", "length": "length",
    "max_tokens": "length",
}  # fmt: skip
_NO_WORD = ("", "null", "none")
"""Fields that some servers write on every piece."""
_CUT = (
    "abort", "aborted", "error", "content_filter", "load", "unload", "timeout", "cancelled", "canceled",
    "disconnected", "overloaded",
)  # fmt: skip
"""Ends at which the page is not read to its own."""
_MOST_REFUSAL = 2000
"""Characters of a server's sentence on why it refuses: the advice stands at its end."""
_TOO_MANY = re.compile(r"max_(completion_|new_)?tokens|context length|output tokens", re.IGNORECASE)
_FEWER = "ask for fewer tokens: --infer.max-new-tokens N, or of this server alone --b.body.max_tokens N"
_ASIDE = ("reasoning_content", "reasoning", "thinking")
"""Fields into which a server puts text that it takes for thoughts."""


class AnswerError(DsocrError):
    """An answer that is none; the caller names the page and the server."""


class Lines:
    """Bytes as they come, made lines. Raises AnswerError for a line, or an answer, that has no end."""

    def __init__(self) -> None:
        self._rest, self._count = b"", 0

    def push(self, chunk: bytes) -> Iterator[bytes]:
        self._count += len(chunk)
        if self._count > MOST_ANSWER_BYTES:
            raise AnswerError(f"the answer is longer than {MOST_ANSWER_BYTES // 2**20} MB")
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > MOST_LINE_BYTES:
            raise AnswerError(f"a line of the answer is longer than {MOST_LINE_BYTES // 2**20} MB")
        for line in lines:
            yield line.rstrip(b"\r")

    def rest(self) -> bytes:
        """Give what came after the last line's end."""
        return self._rest


def document(content: bytes) -> dict[str, Any]:
    """A JSON object. Raises AnswerError."""
    try:
        return parse_json(content, any_number=True)
    except InvalidFile as refused:
        words = f"HTML instead of JSON ({shown(content)})" if content.lstrip()[:1] == b"<" else str(refused)
        raise AnswerError(words if "JSON" in words else f"no JSON: {words}") from None


def shown(content: bytes | str, most: int = 80) -> str:
    """The beginning of what a server said, on one line."""
    text = content[: most * 4].decode(errors="replace") if isinstance(content, bytes) else content
    return " ".join(text.split())[:most] or "nothing"


def refusal(text: str) -> str:
    """The words of a server that refuses, whole, and the option that mends too many tokens."""
    words = shown(text, _MOST_REFUSAL)
    return f"{words}; {_FEWER}" if _TOO_MANY.search(words) else words


@dataclass
class Reading:
    """Text that has been read of a page; grows while an answer comes."""

    texts: list[str] = field(default_factory=list)
    characters: int = 0
    token_ids: list[int] | None = None
    token_texts: list[str] = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)
    prompt_ids: tuple[int, ...] | None = None
    finish_reason: FinishReason | None = None
    finish_words: str | None = None
    """The server's word for its end, where it is another."""
    model: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    ended: bool = False
    """True once the answer says that it is complete."""
    answered: bool = False
    """True once there was any choice or message."""
    aside: list[str] = field(default_factory=list)
    aside_name: str = ""

    @property
    def text(self) -> str:
        """The text; what a server took for thoughts where there is no other."""
        return "".join(self.texts) or "".join(self.aside)

    def end_of_stream(self) -> None:
        """Take the word of a stream that nothing follows."""
        self.ended = self.ended or self.answered

    # --- the protocol of OpenAI -----------------------------------------------------------------

    def take(self, data: dict[str, Any]) -> str:
        """One document or chunk of chat completions; returns the text that it adds. Raises AnswerError."""
        _refuse_error(data)
        choices = data.get("choices") or []
        if not isinstance(choices, list):
            raise AnswerError(f"the choices are no list ({shown(json.dumps(data))})")
        self._about(data)
        if not choices:
            return ""  # the chunk of the usage, or a sign of life
        choice = choices[0]
        if not isinstance(choice, dict):
            raise AnswerError("a choice is no object")
        self.answered = True
        piece = choice.get("delta")
        if piece is None:
            piece = choice.get("message")
            self.ended = isinstance(piece, dict)  # a document that came whole
        self._add_ids(choice.get("token_ids"))
        self._add_log_probabilities(choice.get("logprobs"))
        text = self._add_text(piece)
        self._end(choice.get("finish_reason"))
        return text

    # --- Ollama's own ---------------------------------------------------------------------------

    def take_native(self, data: dict[str, Any]) -> str:
        """One document or line of `/api/chat`; returns the text that it adds. Raises AnswerError."""
        _refuse_error(data)
        message = data.get("message")
        if not isinstance(message, dict):
            raise AnswerError(f"the answer has no message ({shown(json.dumps(data))})")
        self.model = data["model"] if isinstance(data.get("model"), str) else self.model
        for name, count in (("prompt_tokens", "prompt_eval_count"), ("completion_tokens", "eval_count")):
            if isinstance(data.get(count), int):
                self.usage[name] = data[count]
        self.answered = True
        text = self._add_text(message)
        if data.get("done") is True:
            self.ended = True
            self._end(data.get("done_reason"))
        return text

    # --- parts ----------------------------------------------------------------------------------

    def _about(self, data: dict[str, Any]) -> None:
        if isinstance(data.get("model"), str):
            self.model = data["model"]
        if isinstance(usage := data.get("usage"), dict):
            self.usage |= {name: value for name, value in usage.items() if type(value) is int}
        if (ids := _ids(data.get("prompt_token_ids"))) is not None:
            self.prompt_ids = tuple(ids)

    def _add_text(self, piece: Any) -> str:
        if not isinstance(piece, dict):
            return ""
        for name in _ASIDE:
            if isinstance(thought := piece.get(name), str) and thought:
                self._count(thought)
                self.aside.append(thought)
                self.aside_name = name
                break  # some servers give one text by two names
        content = piece.get("content")
        if content is None:
            return ""
        if not isinstance(content, str):
            raise AnswerError("the content is no text")
        self._count(content)
        self.texts.append(content)
        return content

    def _count(self, text: str) -> None:
        self.characters += len(text)
        if self.characters > MOST_TEXT:
            raise AnswerError(f"the text is longer than {MOST_TEXT:,} characters")

    def _add_ids(self, value: Any) -> None:
        ids = _ids(value)
        if ids is None:
            return
        if self.token_ids is None:
            self.token_ids = []
        self.token_ids += ids
        if len(self.token_ids) > MOST_TOKENS:
            raise AnswerError(f"more than {MOST_TOKENS:,} tokens")

    def _add_log_probabilities(self, value: Any) -> None:
        steps = value.get("content") if isinstance(value, dict) else None
        for step in steps if isinstance(steps, list) else []:
            if not isinstance(step, dict) or not isinstance(step.get("token"), str):
                raise AnswerError("a step of logprobs has no token")
            if len(self.token_texts) >= MOST_TOKENS:
                raise AnswerError(f"more than {MOST_TOKENS:,} tokens")
            self.token_texts.append(step["token"])
            if isinstance(step.get("logprob"), (int, float)):
                self.log_probabilities.append(float(step["logprob"]))

    def _end(self, reason: Any) -> None:
        if isinstance(reason, dict):  # as SGLang's own
            reason = reason.get("type", reason.get("reason"))
        if not isinstance(reason, str) or reason.strip().lower() in _NO_WORD:
            return
        word = reason.strip().lower()
        if word in _CUT:
            raise AnswerError(
                f"the page was cut off after {self.characters:,} characters ({shown(word, 40)})"
            )
        self.ended = True
        self.finish_reason = _ENDS.get(word)
        self.finish_words = None if self.finish_reason else shown(reason, 40)

    def ids_of_steps(self) -> list[int] | None:
        """The token ids: as they were given, or as the steps of logprobs name them; None where neither."""
        if self.token_ids is not None:
            return self.token_ids
        found = [_TOKEN_ID.fullmatch(text) for text in self.token_texts]
        return [int(match[1]) for match in found if match] if found and all(found) else None


def _ids(value: Any) -> list[int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(each) is int and 0 <= each < 2**31 for each in value):
        raise AnswerError("token ids that are none")
    return value


def _refuse_error(data: dict[str, Any]) -> None:
    """Raises AnswerError for an error that comes in place of an answer."""
    error = data.get("error")
    if error:
        message = error.get("message") if isinstance(error, dict) else error
        raise AnswerError(f"the server says: {refusal(str(message))}")
