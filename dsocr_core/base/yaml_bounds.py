"""YAML of anybody within bounds: what grows without end, or means two things, is refused before it is read.

An alias makes one node appear twice, and twice again inside that: a few lines become gigabytes.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import yaml

from dsocr_core.base.untrusted import DEPTH_LIMIT, Refused, read_bytes

MOST_BYTES = 256 * 1024
"""Limit of a settings file; a long one has some hundred lines."""
UNREADABLE = (
    OSError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError, RecursionError,
)  # fmt: skip
"""Errors that a YAML reader ends in, beside its own error, on a value such as `!!float ""` or `!!bool x`."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBER = re.compile(r"[-+]?\.?[0-9][0-9a-fxo_:.+-]*|[-+]?\.(inf|nan)", re.IGNORECASE)
_QUOTED = ("'", '"', "|", ">")
_LONGEST_NUMBER = 40
_LARGEST = 2.0**63


def check_file(file: Path) -> None:
    """Check that a settings file can be read without harm. Raises Refused, which does not name the file."""
    try:
        text = read_bytes(file, MOST_BYTES, follow_links=True).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"not UTF-8 text (byte {error.start})") from None
    check_text(text)


def check_text(text: str) -> None:
    """Check that YAML can be read without harm: no aliases, tags or keys twice, numbers finite and of 64
    bits.

    Raises Refused.
    """
    try:
        _check_events(text)
        _check_node(yaml.compose(text, Loader=_LOADER))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Refused(f"not YAML ({_first(error)})") from None


def _check_events(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise Refused(f"line {_line(event)}: YAML with aliases is not read; write it out")
        if tag := getattr(event, "tag", None):  # a reader makes objects of them, or fails in any way
            raise Refused(f"line {_line(event)}: YAML with tags is not read; leave {_tag(tag)} out")
        # A collection's end is no subclass of its start.
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_LIMIT:
            raise Refused(f"nested deeper than {DEPTH_LIMIT} levels")


def _check_node(node: yaml.Node | None) -> None:
    if isinstance(node, yaml.MappingNode):
        keys = set()
        for key, value in node.value:
            if (name := str(key.value)) in keys:
                raise Refused(f"line {_line(key)}: '{name[:60]}' stands twice; leave one")
            keys.add(name)
            _check_node(key)
            _check_node(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_node(item)
    elif isinstance(node, yaml.ScalarNode) and node.style not in _QUOTED:
        _check_scalar(node)


def _check_scalar(node: yaml.ScalarNode) -> None:
    """Check that a scalar without quotes is no number that is too large; a text may be as long as it is."""
    text = str(node.value)
    if not _NUMBER.fullmatch(text):
        return
    bare = text.replace("_", "").lower()
    if bare.lstrip("+-") in (".inf", ".nan"):
        raise Refused(f"line {_line(node)}: {text} is no number that a setting can have")
    try:
        large = len(text) > _LONGEST_NUMBER or not math.fabs(float(bare)) < _LARGEST
    except ValueError:  # a date, a version, an address: short, and a text
        large = False
    if large:
        raise Refused(f"line {_line(node)}: the number {text[:20]} is too large; quote a text")


def _tag(name: str) -> str:
    """As it is typed."""
    return name.replace("tag:yaml.org,2002:", "!!")[:40]


def _line(at: yaml.Node | yaml.Event) -> int:
    return at.start_mark.line + 1 if at.start_mark is not None else 1


def _first(error: Exception) -> str:
    """Say what is wrong and where, on one line."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    return f"line {mark.line + 1}: {problem}"[:200] if mark is not None else problem[:200]
