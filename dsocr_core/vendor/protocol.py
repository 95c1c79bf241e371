"""The messages between the two processes of the vendor backend: one JSON object a line.

Imports the standard library only, and modules that do so: the worker's interpreter may be another one, with
other packages.
"""

from __future__ import annotations

import json
import types
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.base.child import MOST_LINE_BYTES

MAX_LINE_BYTES = MOST_LINE_BYTES
"""Longer than any valid message: a result has at most some 33,000 ids with their texts."""


class ProtocolError(ValueError):
    """A line that is not a message of this protocol."""


# --- to the worker --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """Load a checkpoint the published way. `dtype` is `bfloat16` or `float32`; `code` has the SHA-256 of each
    Python file that may be imported."""

    checkpoint: str
    device: str
    dtype: str
    attention: str
    code: dict[str, str]


@dataclass(frozen=True)
class Page:
    """One prompt as `infer` takes it, or with several images `infer_multi`.

    `no_repeat_ngram_size` None leaves the vendor's own. The rule is an argument where the row says so.
    """

    images: list[str]
    prompt: str
    base_size: int
    image_size: int
    crop_mode: bool
    no_repeat_ngram_size: int | None
    ngram_window: int


@dataclass(frozen=True)
class Recognize:
    """Run `infer` once. `max_new_tokens` None leaves the vendor's own.

    `eval_mode` and `test_compress` are `infer`'s; results are saved unless in `eval_mode`, as published.
    """

    number: int
    page: Page
    max_new_tokens: int | None
    output_path: str
    stream_text: bool
    top_two: bool
    """True to look for the two best logits of every step."""
    eval_mode: bool
    test_compress: bool
    count_flops: bool
    """True to count FLOPs under torch's counter; times then mean nothing."""


@dataclass(frozen=True)
class Trace:
    """Run `infer` up to the end of `generate`, with taps on its modules. Tensors go to `directory`, never
    through this channel.

    `steps` decode steps after the prefill, or as many as the `forced` tokens make. Each tap is its name,
    module path, and the two words of `models.taps.hooks.Tap`; `only` are names of taps.
    """

    number: int
    page: Page
    steps: int
    output_path: str
    directory: str
    taps: list[list[str]]
    forced: list[int]
    only: list[str]
    about: dict[str, str]


@dataclass(frozen=True)
class Cancel:
    number: int


# --- to the caller --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loaded:
    """The model is ready. `environment` holds versions and the device's name."""

    environment: dict[str, str]


@dataclass(frozen=True)
class StageStarted:
    number: int
    stage: str


@dataclass(frozen=True)
class StageEnded:
    number: int
    stage: str
    milliseconds: float


@dataclass(frozen=True)
class Text:
    """New text, and how many tokens there are so far."""

    number: int
    delta: str
    tokens: int


@dataclass(frozen=True)
class Timing:
    stage: str
    milliseconds: float
    calls: int


@dataclass(frozen=True)
class Result:
    """Message of what was observed of one `infer`."""

    number: int
    image_sizes: list[list[int]]
    text_raw: str
    token_ids: list[int]
    token_texts: list[str]
    finish_reason: str
    prompt_ids: list[int]
    image_mask: list[list[int]]
    grid: list[int]
    global_shape: list[int]
    global_sha256: str
    tiles_shape: list[int]
    tiles_sha256: str
    no_repeat_ngram_size: int
    ngram_window: int
    max_new_tokens: int
    attention: str
    dtype: str
    rotary_dtype: str
    timings: list[Timing]
    overridden: list[str]
    """Generation arguments that were not left at the vendor's own values."""
    top_ids: list[int]
    """The chosen token of each step and the second best, alternating; may have fewer steps than tokens."""
    top_logits: list[float]
    text_tokens: int | None
    """Tokens that the text encodes to; None unless `test_compress` was asked for."""
    flops: dict[str, list[int]]
    """FLOPs of each call of each vision stage, and under `forward` of each pass of the whole model; empty
    unless `count_flops` was asked for."""
    postprocess_error: str
    """Error of `infer` once it had generated, in one line; empty when it returned."""


@dataclass(frozen=True)
class TraceStep:
    """A forward pass of a trace has begun; 0 is the prefill."""

    number: int
    call: int


@dataclass(frozen=True)
class Traced:
    """A trace is on disk."""

    number: int
    token_ids: list[int]


@dataclass(frozen=True)
class Failure:
    """`kind`: `cancelled`, `out_of_memory`, `refused` or `failed`.

    A worker that is not `usable` must be replaced. `number` is 0 when it was not a recognition that failed.
    """

    number: int
    kind: str
    message: str
    usable: bool


Message = (
    Load | Recognize | Trace | Cancel
    | Loaded | StageStarted | StageEnded | Text | Result | TraceStep | Traced | Failure
)  # fmt: skip
_KINDS: dict[str, type] = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """The message as one line, newline included. Raises ProtocolError when it is too long."""
    body = {"type": type(message).__name__, **_plain(message)}
    line = json.dumps(body, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise ProtocolError(
            f"a {type(message).__name__} message of {len(line)} bytes; at most {MAX_LINE_BYTES}"
        )
    return line


def decode(line: bytes) -> Message:
    """The message of a line. Raises ProtocolError for anything else than a whole, well-typed message."""
    if len(line) > MAX_LINE_BYTES:
        raise ProtocolError(f"a line of more than {MAX_LINE_BYTES} bytes")
    try:
        body = parse_json(line, any_number=True)
    except InvalidFile as error:
        raise ProtocolError(f"{error}: {_excerpt(line)}") from error
    kind = _KINDS.get(str(body.pop("type", "")))
    if kind is None:
        raise ProtocolError(f"no message of this protocol: {_excerpt(line)}")
    message: Message = _build(kind, body)
    return message


def _plain(message: Any) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [_plain(item) if isinstance(item, Timing) else item for item in value]
        return _plain(value) if is_dataclass(value) else value

    return {field.name: plain(getattr(message, field.name)) for field in fields(message)}


def _build(kind: type, body: dict[str, Any]) -> Any:
    hints = get_type_hints(kind)
    if body.keys() != hints.keys():
        raise ProtocolError(
            f"{kind.__name__}: fields {sorted(body.keys() ^ hints.keys())} missing or unknown"
        )
    return kind(
        **{name: _checked(body[name], hint, f"{kind.__name__}.{name}") for name, hint in hints.items()}
    )


def _checked(value: Any, hint: Any, name: str) -> Any:
    """The value when it is of the hinted type, JSON objects of a dataclass built. No coercion but int
    to float. Raises ProtocolError."""
    origin = get_origin(hint)
    if origin is list and isinstance(value, list):
        return [_checked(item, get_args(hint)[0], name) for item in value]
    if origin is dict and isinstance(value, dict):
        return {key: _checked(item, get_args(hint)[1], name) for key, item in value.items()}
    if origin in (Union, types.UnionType):  # only `X | None` occurs
        return None if value is None else _checked(value, get_args(hint)[0], name)
    if hint is float and type(value) in (int, float):
        return float(value)
    if hint in (Timing, Page) and isinstance(value, dict):
        return _build(hint, value)
    if origin is None and type(value) is hint:
        return value
    raise ProtocolError(f"{name} is {type(value).__name__}")


def _excerpt(line: bytes) -> str:
    text = line[:80].decode("utf-8", "replace")
    return repr(text)
