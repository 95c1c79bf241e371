"""Messages between the two processes of the vendor backend, one JSON object a line.

Standard library only: the worker's interpreter has other packages. Every field is checked, except the
arguments of `infer`, which the caller makes, and the result, which it reads as a record.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import get_args

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.base.child import MOST_LINE_BYTES
from dsocr_core.reading.jsonable import from_jsonable, to_jsonable

FILES = "files"
"""Folder in the worker's directory for the files that `infer` writes."""


class ProtocolError(ValueError):
    """A line that is no message of this protocol."""


# --- to the worker --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """Load a checkpoint the published way, in `bfloat16` or `float32`.

    `code` has the SHA-256 of each file that may be imported.
    """

    checkpoint: str
    device: str
    dtype: str
    attention: str
    code: dict[str, str]


@dataclass(frozen=True)
class Recognize:
    """Run `infer` once, or `infer_multi` for several images.

    `arguments` are those of `infer` except the images and `output_path`. N-gram size and token limit are None
    to keep the published ones. `top_two` records the two best logits of every step. With `count_flops` the
    times mean nothing.
    """

    number: int
    images: tuple[str, ...]
    arguments: dict  # type: ignore[type-arg]
    ngram_size: int | None
    max_new_tokens: int | None
    stream_text: bool
    top_two: bool
    count_flops: bool


@dataclass(frozen=True)
class Trace:
    """Run `infer` up to the end of `generate`, and record tensors of its modules in `directory`.

    There are `steps` decode steps after the prefill, or as many as the `forced` tokens need. Each tap has its
    name, module path, and the two words of `models.taps.table.Tap`. `only` are names of taps.
    """

    number: int
    images: tuple[str, ...]
    arguments: dict  # type: ignore[type-arg]
    ngram_size: int | None
    steps: int
    directory: str
    taps: tuple[tuple[str, ...], ...]
    forced: tuple[int, ...]
    only: tuple[str, ...]
    about: dict[str, str]


@dataclass(frozen=True)
class Cancel:
    """Stop the request of that number."""

    number: int


# --- to the caller --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loaded:
    """The model is loaded."""


@dataclass(frozen=True)
class StageProgress:
    """A stage has begun, or has ended after `milliseconds`."""

    number: int
    stage: str
    milliseconds: float | None


@dataclass(frozen=True)
class Text:
    """A piece of new text."""

    number: int
    delta: str


@dataclass(frozen=True)
class Result:
    """`infer` has ended. `result` is an `OcrResult` without its request, as `reading.records` writes it.

    `flops` are those of each call, by vision stage, and under `forward` of each pass of the whole model.
    """

    number: int
    result: dict  # type: ignore[type-arg]
    flops: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class TraceStep:
    """A forward pass of a trace has begun; 0 is the prefill."""

    number: int
    call: int


@dataclass(frozen=True)
class Traced:
    """The trace is on disk."""

    number: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class Failure:
    """An error: `cancelled`, `out_of_memory`, `refused` or `failed`. Number 0 belongs to no request.

    A worker that is not `usable` must be replaced.
    """

    number: int
    kind: str
    message: str
    usable: bool


Message = (
    Load | Recognize | Trace | Cancel | Loaded | StageProgress | Text | Result | TraceStep | Traced | Failure
)
_KINDS: dict[str, type] = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """Write a message as one line with newline. Raises ProtocolError where it is too long."""
    body = {"type": type(message).__name__, **to_jsonable(message)}
    line = json.dumps(body, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    if len(line) > MOST_LINE_BYTES:
        raise ProtocolError(f"a {body['type']} message of {len(line)} bytes; at most {MOST_LINE_BYTES}")
    return line


def decode(line: bytes) -> Message:
    """Read a message from a line. Raises ProtocolError for anything but a complete, well-typed message."""
    if len(line) > MOST_LINE_BYTES:
        raise ProtocolError(f"a line of more than {MOST_LINE_BYTES} bytes")
    excerpt = repr(line[:80].decode("utf-8", "replace"))
    try:
        body = parse_json(line, any_number=True)
    except InvalidFile as error:
        raise ProtocolError(f"{error}: {excerpt}") from error
    kind = _KINDS.get(str(body.pop("type", "")))
    if kind is None:
        raise ProtocolError(f"no message of this protocol: {excerpt}")
    try:
        message: Message = from_jsonable(kind, body)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"{kind.__name__}: {error}") from error
    return message
