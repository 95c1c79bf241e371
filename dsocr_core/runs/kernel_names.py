"""Kernels' names as profilers show them, distinct where the kernels are."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from dsocr_core.runs.kernel_profiles import CASTS, plain_name, without_unnamed

_OPERATOR = re.compile(r"\boperator\s*(<=>|<<=|>>=|->\*|\(\)|\[\]|<<|>>|<=|>=|->|<|>|[-+*/%^&|~!=]+)")
_CLOSES = {"<": ">", "(": ")"}
_AFTER = re.compile(r"(\s+(const|volatile|noexcept)|\s*&+|\s*\[[^\]]*\])+$")
_LONGEST = 4_000


def kernel_names(fulls: Sequence[str]) -> list[str]:
    """Base names; where different kernels share one, with template, then arguments, then namespaces."""
    parts = {full: _parts(full) for full in dict.fromkeys(fulls)}
    namespaces: dict[str, set[str]] = defaultdict(set)
    for full, (qualifier, *_) in parts.items():
        # Nsight Compute leaves namespaces out in places: such a name is not another kernel.
        namespaces[plain_name(full)] |= {qualifier} - {""}
    keys = {
        full: (plain_name(full), qualifier if len(namespaces[plain_name(full)]) > 1 else "")
        for full, (qualifier, *_) in parts.items()
    }
    shown: dict[str, str] = {}
    for first, last in ((1, 2), (1, 3), (1, 4), (0, 4)):
        names = {full: "".join(part[first:last]) for full, part in parts.items() if full not in shown}
        kernels: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for full, name in names.items():
            kernels[name].add(keys[full])
        shown |= {full: name for full, name in names.items() if len(kernels[name]) == 1}
    return [shown.get(full, full) for full in fulls]


def _parts(full: str) -> tuple[str, str, str, str]:
    """Namespaces, base, template and arguments of a name."""
    name = full[:_LONGEST]
    if name.startswith("_Z"):
        return "", _mangled(name), "", ""
    outer, groups = _outer(without_unnamed(name).removeprefix("void "))
    plain = _AFTER.sub("", outer).rstrip()
    base = plain.rpartition("::")[2].strip()
    base = base if base.startswith("operator") else base.rpartition(" ")[2]
    if not base:
        return "", full, "", ""
    at = len(plain)
    qualifier = plain[: at - len(base)].rpartition(" ")[2]
    return qualifier, base, CASTS.sub("", groups.get((at, "<"), "")), groups.get((at, "("), "")


def _outer(name: str) -> tuple[str, dict[tuple[int, str], str]]:
    """A name outside all brackets, and the text in brackets by the place in it and what opens it."""
    outer, groups, opened, start, at = "", {}, "", 0, 0
    while at < len(name):
        sign = name[at]
        if not opened and (operator := _OPERATOR.match(name, at)):
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
    """The last identifier of a name as compilers write it: `saxpy` of _Z5saxpyPf; else the name."""
    at, found = 3 if name.startswith("_ZN") else 2, name
    while match := re.compile(r"\d{1,4}").match(name, at):
        at = match.end() + int(match[0])
        found = name[match.end() : at] or found
        if not name.startswith("_ZN"):
            break
    return found
