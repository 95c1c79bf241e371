"""Searches the launches of the decode step that make a token fastest, each timed inside the whole token.

With dependent launch kernels overlap, so a kernel by itself says little: a change is one field of
`StepLaunches`, the step is recorded anew and a token timed. What is faster is adopted before the next.
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
from typing import Any

from dsocr_core.engine.fast.step_launches import StepLaunches
from dsocr_core.kernels.launch import Launch

REPEAT = 3
COMPILE_SHARE = 0.5
"""Share of a search's time at most, before the first timing: kernels are compiled several at a time, in the
order in which they are tried, and those that are left when they are timed.
"""

Timer = Callable[[StepLaunches, int], tuple[list[float], list[int]]]
"""Microseconds a token of so many runs, and the tokens chosen. RuntimeError or ValueError: it cannot be."""

SMS = 132
# (rows, warps), and programs of gate_up; chosen by registers of the compiled kernels at the published sizes:
# as many rows as fit at once (one wave), or fewer rows in more programs, which end one after another.
BLOCKS: dict[str, tuple[tuple[int, ...], ...]] = {
    "gate_up": (
        (2, 1), (2, 2), (2, 4), (4, 2), (4, 4), (8, 4), (8, 8),
        (4, 4, 4 * SMS), (2, 2, 8 * SMS), (2, 1, 12 * SMS),
    ),
    "mixture_down": ((1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 4), (4, 8)),
    "attention_output": ((4, 2), (4, 4), (8, 4), (8, 8), (16, 4), (16, 8)),
    "split_attention": ((32, 4), (32, 8), (64, 4), (64, 8), (128, 8)),
    "qkv_rotary": ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4), (8, 4)),
    "dense_gate_up": ((2, 2), (4, 2), (4, 4), (8, 4)),
    "dense_down": ((1, 2), (1, 4), (2, 2), (2, 4), (4, 4)),
    "route": ((1, 4), (1, 8), (1, 16)),
    "split_vector": ((1, 4), (1, 8)),
    "bound_rows": ((16, 4, 3 * SMS), (32, 4, 3 * SMS), (32, 4, 4 * SMS), (64, 4, 2 * SMS), (64, 8, SMS)),
    "best_of_bounded": ((16, 4, SMS), (16, 4, 2 * SMS), (16, 8, SMS), (8, 4, 2 * SMS)),
    "take_best": ((256, 1), (512, 4), (512, 8)),
    "embed_token": ((256, 4), (512, 4), (2048, 4)),
}  # fmt: skip
COUNTS: dict[str, tuple[int, ...]] = {"splits": (6, 7, 8, 10, 12), "tiles": (2, 3, 4, 5, 6)}
EARLY = tuple(f"early {name}" for name in BLOCKS)
ROUNDS = (
    "gate_up", "mixture_down", *EARLY, "attention_output", *COUNTS, "split_attention", "qkv_rotary",
    "route", "dense_gate_up", "dense_down", "bound_rows", "best_of_bounded", "split_vector",
    "take_best", "embed_token",
    "gate_up", "mixture_down", *EARLY,
)  # fmt: skip
"""Fields that are tried, in turn: what weighs most first, as it decides what the rest is worth, and again at
last.
"""

FIELDS = (*BLOCKS, *COUNTS, "early")


@dataclass(frozen=True)
class Tried:
    """One change against what was best before it, in microseconds a token."""

    change: str
    before_us: float
    median_us: float
    spread_us: float
    adopted: bool
    tokens_alike: int

    @property
    def gain_us(self) -> float:
        return self.before_us - self.median_us


def variants(field: str, best: StepLaunches) -> Iterator[tuple[str, StepLaunches]]:
    """Other launches that differ from these in one field, each with its name."""
    if field in COUNTS:
        for count in COUNTS[field]:
            if count != getattr(best, field):
                number: dict[str, Any] = {field: count}
                yield f"{field} {count}", replace(best, **number)
        return
    name = field.removeprefix("early ")
    at = getattr(best, name)
    found = dict[str, Launch]()
    if field not in EARLY:
        for block in BLOCKS[name]:
            rows, warps, programs = (*block, 0)[:3]
            label = f"{name} {rows} x {warps}" + (f", {programs} programs" if programs else "")
            found[label] = replace(at, rows=rows, warps=warps, programs=programs)
    elif at.dependent:
        found[f"{name} {'late' if at.early else 'early'}"] = replace(at, early=not at.early)
    for label, other in found.items():
        if other != at:
            change: dict[str, Any] = {name: other}
            yield label, replace(best, **change)


def search(
    start: StepLaunches,
    timer: Timer,
    seconds: float,
    rounds: Sequence[str] = ROUNDS,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = print,
) -> tuple[StepLaunches, list[Tried]]:
    """The best launches found in that time, and everything that was tried.

    A field's best variant is timed once more beside what was best before: it is adopted only
    when all its runs are faster than all of those. Ends early when what was best cannot be timed any more.
    """
    until = clock() + seconds
    best, tried = start, list[Tried]()
    candidates = [start, *(launches for field in rounds for _, launches in variants(field, start))]
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
            tried[index] = replace(tried[index], adopted=True)
            best, times = launches, other
            say(f"adopted {tried[index].change}: {before:.1f} to {statistics.median(other):.1f} us")
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
    """Count the tokens that are the same from the start on."""
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


def sweep(start: StepLaunches, timer: Timer, seconds: float, only: Sequence[str] = ()) -> dict[str, Any]:
    """Search, then print all that was tried in order of gain and the best launches; returns a summary.

    `only` are the fields to change, all of them by default.
    """
    rounds = [each for each in ROUNDS if not only or each.split()[0] in only]
    print(f"\nsweep of the whole token, {seconds:.0f} s")
    best, tried = search(start, timer, seconds, rounds, say=lambda line: print(line, flush=True))
    print(f"\n{'change':44} {'us/token':>9} {'spread':>7} {'gain':>7}  tokens alike")
    for t in sorted(tried, key=lambda t: -t.gain_us):
        print(
            f"{t.change:44} {t.median_us:9.1f} {t.spread_us:7.1f} {t.gain_us:+7.1f}  {t.tokens_alike}"
            f"{'  adopted' if t.adopted else ''}"
        )
    print(f"\n{as_written(best)}\n")
    summary: dict[str, Any] = {
        "adopted": [t.change for t in tried if t.adopted],
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
    return summary
