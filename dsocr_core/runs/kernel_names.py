"""Kernels' names as profilers show them, distinct where the kernels are."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from dsocr_core.runs.kernel_profiles import CASTS, plain_name, without_unnamed

_OPERATOR = re.compile(r"\boperator\s*(<=>|<<=|>>=|->\*|\(\)|\[\]|<<|>>|<=|>=|->|<|>|[-+*/%^&|~!=]+)")
_CLOSES = {"<": ">", "(": ")"}
_AFTER = re.compile(r"(\s+(const|volatile|noexcept)|\s*&+|\s*\[[^\]]*\])+$")
_LONGEST = 4_000


@dataclass(frozen=True)
class _Parts:
    qualifier: str
    base: str
    template: str
    arguments: str


def kernel_names(fulls: Sequence[str]) -> list[str]:
    """Base names; where different kernels share one, with template, then arguments, then namespaces."""
    parts = {full: _parts(full) for full in dict.fromkeys(fulls)}
    of_plain: dict[str, set[str]] = defaultdict(set)
    for full, part in parts.items():
        # Nsight Compute leaves namespaces out in places: such a name is not another kernel.
        of_plain[plain_name(full)] |= {part.qualifier} - {""}
    keys = {
        full: (plain := plain_name(full), part.qualifier if len(of_plain[plain]) > 1 else "")
        for full, part in parts.items()
    }
    shown: dict[str, str] = {}
    open_ = list(parts)
    for told in (_base, _with_template, _with_arguments, _qualified):
        same: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for full in open_:
            same[told(parts[full])].add(keys[full])
        shown |= {full: told(parts[full]) for full in open_ if len(same[told(parts[full])]) == 1}
        open_ = [full for full in open_ if full not in shown]
    return [shown.get(full, full) for full in fulls]


def _base(part: _Parts) -> str:
    return part.base


def _with_template(part: _Parts) -> str:
    return part.base + part.template


def _with_arguments(part: _Parts) -> str:
    return part.base + part.template + part.arguments


def _qualified(part: _Parts) -> str:
    return part.qualifier + _with_arguments(part)


def _parts(full: str) -> _Parts:
    name = full[:_LONGEST]
    if name.startswith("_Z"):
        return _Parts("", _mangled(name), "", "")
    name = without_unnamed(name).removeprefix("void ")
    outer, groups = _outer(name)
    plain = _AFTER.sub("", outer).rstrip()
    base = plain.rpartition("::")[2].strip()
    base = base if base.startswith("operator") else base.rpartition(" ")[2]
    if not base:
        return _Parts("", full, "", "")
    at = len(plain)
    qualifier = plain[: at - len(base)].rpartition(" ")[2]
    return _Parts(qualifier, base, CASTS.sub("", groups.get((at, "<"), "")), groups.get((at, "("), ""))


def _outer(name: str) -> tuple[str, dict[tuple[int, str], str]]:
    """A name outside all brackets, and the text in brackets by the place in it and what opens it."""
    outer, groups, opened = "", {}, ""
    at = start = 0
    while at < len(name):
        sign = name[at]
        operator = None if opened else _OPERATOR.match(name, at)
        if operator is not None:
            outer += f"operator{operator[1]}"
            at = operator.end()
            continue
        # In parentheses < and > compare, or are balanced anyway.
        if sign == "(" or (sign == "<" and opened[-1:] != "("):
            start = start if opened else at
            opened += sign
        elif opened and sign == _CLOSES[opened[-1]]:
            opened = opened[:-1]
            if not opened:
                groups[len(outer), name[start]] = name[start : at + 1]
        elif not opened:
            outer += sign
        at += 1
    return outer, groups


def _mangled(name: str) -> str:
    """The last identifier of a name compilers write it, as `saxpy` of _Z5saxpyPf; else the name."""
    at, found = 3 if name.startswith("_ZN") else 2, name
    while match := re.compile(r"\d{1,4}").match(name, at):
        at = match.end() + int(match[0])
        found = name[match.end() : at] or found
        if not name.startswith("_ZN"):
            break
    return found
