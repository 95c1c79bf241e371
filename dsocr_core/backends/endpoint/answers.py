"""Answer of a server for a page, document by document: text, tokens, the end, an error.

Nothing of it is trusted: sizes are bounded, types are checked, and nothing is filled in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import paired
from dsocr_core.reading.records import FinishReason

MOST_TEXT = 4_000_000
"""Characters of one page: the published limit of 8,192 tokens makes some 40,000."""
MOST_TOKENS = 1_000_000

_TOKEN_ID = re.compile(r"token_id:(\d{1,9})")
_EOS, _LENGTH = ("stop", "eos", "eos_token", "end_turn"), ("length", "max_tokens")
_ENDS: dict[str, FinishReason] = {**dict.fromkeys(_EOS, "eos"), **dict.fromkeys(_LENGTH, "length")}
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
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""Fields into which a server puts text that it takes for thoughts."""
_OLLAMA_COUNTS = {"prompt_eval_count": "prompt_tokens", "eval_count": "completion_tokens"}


class EndpointError(DsocrError):
    """Failure of a server to answer; the client puts its address before it."""


def document(content: bytes) -> dict[str, Any]:
    """A JSON object. Raises EndpointError."""
    try:
        return parse_json(content, any_number=True)
    except InvalidFile as refused:
        words = f"HTML instead of JSON ({shown(content)})" if content.lstrip()[:1] == b"<" else str(refused)
        raise EndpointError(words if "JSON" in words else f"no JSON: {words}") from None


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
    """Text and tokens read so far of a page; grows while an answer comes."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    thoughts_field: str = ""
    characters: int = 0
    token_ids: list[int] | None = None
    token_texts: list[str] = field(default_factory=list)
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

    @property
    def text(self) -> str:
        """The text; what a server took for thoughts where there is no other."""
        return paired("".join(self.texts) or "".join(self.thoughts))

    def add(self, data: dict[str, Any] | None) -> str:
        """Add one document or chunk; returns the text that it adds. Raises EndpointError.

        None is the word of a stream that nothing follows. Ollama's own form has one message and its end
        beside it; chat completions have a list of choices.
        """
        if data is None:
            self.ended = self.ended or self.answered
            return ""
        if error := data.get("error"):
            message = error.get("message") if isinstance(error, dict) else error
            raise EndpointError(f"the server says: {refusal(str(message))}")
        choices = data.get("choices") or []
        if isinstance(data.get("message"), dict):
            choices = [{"delta": data["message"], "finish_reason": data.get("done_reason")}]
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise EndpointError(f"the choices are no list of objects ({shown(str(choices))})")
        self._add_facts(data)
        if not choices:
            return ""  # the chunk of the usage, or a sign of life
        choice = choices[0]
        self.answered = True
        piece = choice.get("delta")
        if piece is None:
            piece = choice.get("message")
            self.ended = isinstance(piece, dict)  # a document that came whole
        self._add_tokens(choice.get("token_ids"), choice.get("logprobs"))
        text = self._add_text(piece) if isinstance(piece, dict) else ""
        self._end(choice.get("finish_reason"))
        self.ended = self.ended or data.get("done") is True
        return text

    def _add_facts(self, data: dict[str, Any]) -> None:
        if isinstance(data.get("model"), str):
            self.model = data["model"]
        counts = {name: data.get(field) for field, name in _OLLAMA_COUNTS.items()}
        usage = data.get("usage")
        counts |= usage if isinstance(usage, dict) else {}
        self.usage |= {name: value for name, value in counts.items() if type(value) is int}
        if (ids := _ids(data.get("prompt_token_ids"))) is not None:
            self.prompt_ids = tuple(ids)

    def _add_text(self, piece: dict[str, Any]) -> str:
        thoughts = [(name, piece[name]) for name in _THOUGHTS if isinstance(piece.get(name), str)]
        for name, thought in thoughts[:1]:  # some servers give one text by two names
            self.thoughts.append(thought)
            self.thoughts_field = name if thought else self.thoughts_field
            self.characters += len(thought)
        content = piece.get("content") or ""
        if not isinstance(content, str):
            raise EndpointError("the content is no text")
        self.characters += len(content)
        if self.characters > MOST_TEXT:
            raise EndpointError(f"the text is longer than {MOST_TEXT:,} characters")
        self.texts.append(content)
        return content

    def _add_tokens(self, ids: Any, log_probabilities: Any) -> None:
        """Add token ids, and the tokens that stand with their log probabilities."""
        if (found := _ids(ids)) is not None:
            self.token_ids = (self.token_ids or []) + found
        steps = log_probabilities.get("content") if isinstance(log_probabilities, dict) else None
        for step in steps if isinstance(steps, list) else []:
            if not isinstance(step, dict) or not isinstance(step.get("token"), str):
                raise EndpointError("a step of logprobs has no token")
            self.token_texts.append(step["token"])
        if max(len(self.token_ids or ()), len(self.token_texts)) > MOST_TOKENS:
            raise EndpointError(f"more than {MOST_TOKENS:,} tokens")

    def _end(self, reason: Any) -> None:
        if isinstance(reason, dict):  # as SGLang's own
            reason = reason.get("type", reason.get("reason"))
        if not isinstance(reason, str) or (word := reason.strip().lower()) in _NO_WORD:
            return
        if word in _CUT:
            raise EndpointError(
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
        raise EndpointError("token ids that are none")
    return value
