"""Searches the launches of the decode step that make a token fastest, each timed inside the whole token.

With dependent launch kernels overlap, so a kernel by itself says little: a change is one field of
`StepLaunches`, the step is recorded anew and a token timed. A change that holds is kept for those after it.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

from dsocr_core.engine.fast.step_launches import MlpOrder, StepLaunches
from dsocr_core.kernels.launch import Launch

REPEAT = 5
COMPILE_SHARE = 0.5
"""Of a search's time at most, before the first timing: kernels are compiled several at a time, in the order
in which they are tried, and those that are left when they are timed."""

Timer = Callable[[StepLaunches, int], tuple[list[float], list[int]]]
"""Microseconds a token of so many runs, and the tokens chosen. RuntimeError or ValueError: it cannot be."""

Blocks = tuple[tuple[int, int, int], ...]
SMS = 132
# (rows, warps, programs), chosen by registers of the compiled kernels at the published sizes: as many rows
# as fit at once (one wave), or fewer rows in more programs, which end one after another.
BLOCKS: dict[str, Blocks] = {
    "gate_up": (
        (2, 1, 0), (2, 2, 0), (2, 4, 0), (4, 2, 0), (4, 4, 0), (8, 4, 0), (8, 8, 0),
        (4, 4, 4 * SMS), (2, 2, 8 * SMS), (2, 1, 12 * SMS),
    ),
    "routed_gate_up": (
        (2, 1, 0), (2, 2, 0), (2, 4, 0), (4, 2, 0), (4, 4, 0), (8, 4, 0), (8, 8, 0),
        (4, 4, 4 * SMS), (2, 2, 8 * SMS), (2, 1, 12 * SMS),
    ),
    "down": (
        (1, 1, 0), (1, 2, 0), (1, 4, 0), (2, 2, 0), (2, 4, 0), (4, 4, 0), (4, 8, 0),
        (1, 4, 4 * SMS), (2, 4, 2 * SMS), (2, 4, 3 * SMS),
    ),
    "attention_output": ((4, 2, 0), (4, 4, 0), (8, 4, 0), (8, 8, 0), (16, 4, 0), (16, 8, 0)),
    "split_attention": ((32, 4, 0), (64, 4, 0), (64, 8, 0), (128, 4, 0), (128, 8, 0)),
    "qkv_rotary": ((1, 1, 0), (2, 1, 0), (2, 2, 0), (4, 2, 0), (4, 4, 0), (8, 4, 0)),
    "shared_gate_up": ((1, 1, 0), (2, 1, 0), (2, 2, 0), (4, 2, 0), (4, 4, 0), (8, 4, 0)),
    "router_logits": ((1, 1, 0), (1, 4, 0), (2, 2, 0), (2, 4, 0), (4, 4, 0)),
    "dense_gate_up": ((2, 2, 0), (4, 2, 0), (4, 4, 0), (8, 4, 0)),
    "dense_down": ((1, 2, 0), (1, 4, 0), (2, 2, 0), (2, 4, 0), (4, 4, 0)),
    "route": ((1, 1, 0), (1, 2, 0), (1, 4, 0)),
    "best_of_rows": ((8, 4, 0), (8, 8, 0), (16, 4, 0), (32, 8, 0)),
    "take_best": ((1024, 4, 0), (1024, 8, 0), (4096, 16, 0), (8192, 16, 0), (8192, 32, 0)),
    "embed_token": ((256, 4, 0), (512, 4, 0), (2048, 4, 0)),
}  # fmt: skip
NUMBERS: dict[str, tuple[Any, ...]] = {
    "splits": (6, 8, 12, 13, 16),
    "order": get_args(MlpOrder),
    "ahead": (0, 4, 8, 13, 18),
    "ahead_qkv": (0, 4, 10),
}
TOGETHER = (
    "qkv_rotary", "split_attention", "attention_output", "dense_gate_up", "dense_down", "route", "down",
    "best_of_rows", "take_best",
)  # fmt: skip
"""Kernels that may all be early at once, in every order."""

EARLY = tuple(f"early {name}" for name, at in vars(StepLaunches()).items() if isinstance(at, Launch))
HINTS = ("ahead", "ahead_qkv")
ROUNDS = (
    "order", "gate_up", "routed_gate_up", "down", "early together", *EARLY, "attention_output", "splits",
    "split_attention", "qkv_rotary", "shared_gate_up", "router_logits", *HINTS, "dense_gate_up", "dense_down",
    "route", "best_of_rows", "take_best", "embed_token", "order", "gate_up", "down", *EARLY, *HINTS,
)  # fmt: skip
"""What is tried, in turn: the order first, as it decides what the rest is worth; some once more at last."""

FIELDS = (*BLOCKS, *NUMBERS, "early")


@dataclass(frozen=True)
class Tried:
    """One change against what was best before it, in microseconds a token."""

    change: str
    before_us: float
    median_us: float
    spread_us: float
    kept: bool
    tokens_alike: int

    @property
    def gain_us(self) -> float:
        return self.before_us - self.median_us


def variants(field: str, best: StepLaunches) -> Iterator[tuple[str, StepLaunches]]:
    """Other launches that differ from these in one field, each with its name."""
    change: dict[str, Any]
    if field == "early together":
        change = {
            name: replace(at, early=True)
            for name in TOGETHER
            if name in used(best) and (at := getattr(best, name)).dependent
        }
        if change:
            yield field, replace(best, **change)
    elif field in EARLY:
        name = field.removeprefix("early ")
        at = getattr(best, name)
        if name in used(best) and at.dependent:
            change = {name: replace(at, early=not at.early)}
            yield f"{name} {'late' if at.early else 'early'}", replace(best, **change)
    elif field in NUMBERS:
        for value in NUMBERS[field]:
            if value != getattr(best, field):
                change = {field: value}
                yield f"{field} {value}", replace(best, **change)
    elif field in used(best):
        at = getattr(best, field)
        for rows, warps, programs in BLOCKS[field]:
            other = replace(at, rows=rows, warps=warps, programs=programs)
            if other != at:
                name = f"{field} {rows} x {warps}" + (f", {programs} programs" if programs else "")
                change = {field: other}
                yield name, replace(best, **change)


def used(launches: StepLaunches) -> set[str]:
    """The kernels that this order launches, by their fields."""
    without = {
        "shared first": {"gate_up", "router_logits"},
        "router first": {"gate_up"},
        "joined": {"shared_gate_up", "routed_gate_up"},
    }
    return {name for name, at in vars(launches).items() if isinstance(at, Launch)} - without[launches.order]


def search(
    start: StepLaunches,
    timer: Timer,
    seconds: float,
    rounds: Sequence[str] = ROUNDS,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = print,
) -> tuple[StepLaunches, list[Tried]]:
    """The best launches found in that time, and everything that was tried.

    A field's best variant is timed once more beside what was best before: it is kept only when all its runs
    are faster than all of those. Ends early when what was best cannot be timed any more.
    """
    until = clock() + seconds
    best, tried = start, list[Tried]()
    orders = [start, *(launches for _, launches in variants("order", start) if "order" in rounds)]
    candidates = list(orders)
    for field in (each for each in rounds if each not in HINTS):
        candidates += [launches for base in orders for _, launches in variants(field, base)]
    _compile(candidates, timer, lambda: clock() > until - (1 - COMPILE_SHARE) * seconds)
    times, tokens = timer(best, REPEAT)
    for number, field in enumerate(rounds):
        if clock() > until:
            say(f"out of time, not tried: {', '.join(rounds[number:])}")
            break
        found: list[tuple[float, int, StepLaunches]] = []
        before = statistics.median(times)
        for name, launches in variants(field, best):
            if clock() > until:
                break
            try:
                other, chosen = timer(launches, REPEAT)
            except (RuntimeError, ValueError) as error:
                # Too many registers, or a kernel that would read too soon, is an answer too.
                say(f"  {name}: not possible, {str(error).splitlines()[0][:90]}")
                continue
            median = statistics.median(other)
            found.append((median, len(tried), launches))
            tried.append(Tried(name, before, median, max(other) - min(other), False, _alike(chosen, tokens)))
            say(f"  {name}: {median:.1f} us, {before - median:+.1f}")
        median, index, launches = min(found, key=lambda each: each[0], default=(before, 0, best))
        if median >= before:
            continue
        try:
            again, other = timer(best, REPEAT)[0], timer(launches, REPEAT)[0]
        except (RuntimeError, ValueError) as error:
            say(f"the search ends here: {str(error).splitlines()[0]}")
            break
        if max(other) < min(again):
            tried[index] = replace(tried[index], kept=True)
            best, times = launches, other
            say(f"kept {tried[index].change}: {before:.1f} to {statistics.median(other):.1f} us")
        else:
            times = again
    return best, tried


def _compile(candidates: list[StepLaunches], timer: Timer, late: Callable[[], bool]) -> None:
    """Run every candidate once, several at a time: what fails will say so when it is timed."""

    def once(launches: StepLaunches) -> None:
        with suppress(RuntimeError, ValueError):
            if not late():
                timer(launches, 0)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(once, dict.fromkeys(candidates)))


def _alike(tokens: list[int], others: list[int]) -> int:
    """How many tokens are the same from the start on."""
    pairs = zip(tokens, others, strict=True)
    return next((at for at, (token, other) in enumerate(pairs) if token != other), len(tokens))


def as_written(launches: StepLaunches) -> str:
    """The fields of StepLaunches as they stand in `step_launches.py`."""
    lines, plain = [], Launch()
    for each in fields(launches):
        value = getattr(launches, each.name)
        if not isinstance(value, Launch):
            lines.append(f"    {each.name}: {each.type} = {json.dumps(value)}")
            continue
        words = [str(value.rows)]
        for name in ("warps", "early", "programs"):
            if getattr(value, name) != getattr(plain, name):
                words.append(f"{name}={getattr(value, name)}")
        lines.append(f"    {each.name}: Launch = field(default=Launch({', '.join(words)}))")
    return "\n".join(lines)


def sweep(start: StepLaunches, timer: Timer, seconds: float, only: Sequence[str] = ()) -> None:
    """Search, then print all that was tried in order of gain, the best launches, and a line of JSON.

    `only` are the fields to change, all of them by default.
    """
    rounds = [each for each in ROUNDS if not only or each.split()[0] in only]
    print(f"\nsweep of the whole token, {seconds:.0f} s")
    best, tried = search(start, timer, seconds, rounds, say=lambda line: print(line, flush=True))
    print(f"\n{'change':44} {'us/token':>9} {'spread':>7} {'gain':>7}  tokens alike")
    for t in sorted(tried, key=lambda t: -t.gain_us):
        print(
            f"{t.change:44} {t.median_us:9.1f} {t.spread_us:7.1f} {t.gain_us:+7.1f}  {t.tokens_alike}"
            f"{'  kept' if t.kept else ''}"
        )
    print(f"\n{as_written(best)}\n")
    summary: dict[str, Any] = {
        "kept": [t.change for t in tried if t.kept],
        "launches": {
            each.name: vars(value) if isinstance(value := getattr(best, each.name), Launch) else value
            for each in fields(best)
        },
    }
    try:
        first, (last, tokens) = timer(start, REPEAT)[0], timer(best, REPEAT)
        # Nothing overlaps without dependent launch: what is read too soon would show here.
        same = timer(best.with_dependent(False), 1)[1] == tokens
    except RuntimeError as error:
        print(f"not timed once more: {str(error).splitlines()[0]}")
    else:
        before, after = statistics.median(first), statistics.median(last)
        print(
            f"{before:.1f} to {after:.1f} us a token, {1e6 / after:.0f} tokens/s; "
            f"the same tokens without dependent launch: {'yes' if same else 'NO'}"
        )
        summary |= {
            "start_us": before,
            "best_us": after,
            "spread_us": max(last) - min(last),
            "tokens_a_second": 1e6 / after,
            "same_tokens_without_overlap": same,
        }
    print(json.dumps(summary))
