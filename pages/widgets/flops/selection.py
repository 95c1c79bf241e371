"""What the FLOPs page shows, and the calls that give the same figures outside of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from analytic_model.hardware import Hardware
from analytic_model.policy import Policy
from analytic_model.predict import Prediction, predict
from analytic_model.workload import Workload
from dsocr_core.config import ModelConfig
from dsocr_core.errors import DsocrError
from dsocr_core.settings import PROJECT_ROOT
from dsocr_core.stages import Stage
from pages.widgets.flops.address import CUSTOM
from pages.widgets.flops.bounds import (
    BATCH_SWEEP,
    POSITION_SWEEP,
    SWEEP_IMAGE_TOKENS,
    SWEEP_PRESET,
    of_device,
)


class NotRecordedError(DsocrError):
    """There is nothing recorded to show yet; says what to do."""


@dataclass(frozen=True)
class Recorded:
    """Times of one page's stages."""

    backend: str
    device: str
    """Its name, for people."""
    times: Mapping[Stage, float]
    """Milliseconds; prefill has the vision stages in it."""

    def milliseconds(self, stage: Stage) -> float | None:
        """None where the stage was not timed."""
        return self.times.get(stage)


@dataclass(frozen=True)
class Reading:
    """One page as a backend read it: its work, how it was computed, how long it took."""

    config_path: Path
    size: tuple[int, int]
    """Width and height of the page in pixels."""
    preset: str
    workload: Workload
    attention: str
    dtype: str
    recorded: Recorded


@dataclass(frozen=True)
class Selection:
    """One workload on one model and device, under one way of counting."""

    config: ModelConfig
    config_path: Path
    size: tuple[int, int]
    """Width and height of the page in pixels."""
    preset: str
    workload: Workload
    policy: Policy
    nested: bool
    """Whether prefill's analytic figure has its vision in it."""
    hardware: Hardware
    hardware_name: str
    """Its key; CUSTOM for figures of the user's own."""
    recorded: Recorded | None = None
    """The times of what was recorded, where that is chosen."""

    @cached_property
    def prediction(self) -> Prediction:
        return predict(self.config, self.workload, self.policy)

    @property
    def on_recorded_device(self) -> bool:
        """Whether the hardware's figures are those of the machine on which times were recorded."""
        return self.recorded is not None and of_device(self.hardware_name, self.recorded.device)

    @property
    def counter_attention(self) -> str:
        """What torch's counter runs: FlashAttention-2 needs a GPU, and the counter would not see it."""
        return "sdpa" if self.policy.attention == "flash_attention_2" else self.policy.attention

    def report(self, *more: str) -> str:
        """The command line that prints these figures."""
        work = self.workload
        command = shlex.join([*self._report(self.size, self.preset, work.prompt_tokens, work.batch), *more])
        if self.hardware_name == CUSTOM:
            return f"# FLOPs and bytes; the least times follow from the figures typed in\n{command}"
        return command

    def report_over(self, over: str) -> str:
        """The command lines behind a sweep: decode over "batch", prefill over "prompt"."""
        if over == "batch":
            sizes, number = BATCH_SWEEP, "$n"
            words = self._report(self.size, self.preset, self.workload.prompt_tokens, 0)
            words[words.index("--batch") + 1] = "N"
        else:
            sizes, number = POSITION_SWEEP, f"$((n - {SWEEP_IMAGE_TOKENS}))"
            words = self._report((1, 1), SWEEP_PRESET, 0, 1)
            words[words.index("--prompt-tokens") + 1] = "N"
        at = words.index("N")
        command = f"{shlex.join(words[:at])} {number} {shlex.join([*words[at + 1 :], '--json'])}"
        return f"for n in {' '.join(map(str, sizes))}; do\n  {command}\ndone"

    def command(self, name: str, *more: str) -> str:
        """The command line of another subcommand on this work; it counts as here."""
        work = self.workload
        words = self._report(self.size, self.preset, work.prompt_tokens, work.batch)
        words[words.index("report")] = name
        for option in ("--attention", "--hardware"):  # it has its own, or asks all
            if option in words:
                at = words.index(option)
                del words[at : at + 2]
        return shlex.join([*(word for word in words if word != "--count-unsupported"), *more])

    def _report(self, size: tuple[int, int], preset: str, prompt: int, batch: int) -> list[str]:
        policy, usual = self.policy, Policy()
        words = [
            "python", "-m", "analytic_model", "report", "--config", self._shown_path(),
            "--width", str(size[0]), "--height", str(size[1]), "--preset", preset,
            "--prompt-tokens", str(prompt), "--decode-tokens", str(self.workload.decode_tokens),
        ]  # fmt: skip
        options = {
            "--batch": (str(batch), "1"),
            "--hardware": (self.hardware_name, CUSTOM),
            "--attention": (policy.attention, usual.attention),
            "--dtype": (policy.dtype, usual.dtype),
            "--causal": (policy.causal, usual.causal),
            "--lm-head": (policy.lm_head, usual.lm_head),
        }
        for option, (chosen, left_out) in options.items():
            words += [option, chosen] if chosen != left_out else []
        words += [] if policy.vision_window_padding else ["--no-window-padding"]
        words += [] if policy.ignore_torch_unsupported_flops else ["--count-unsupported"]
        return words

    def measure(self) -> str:
        """The call that counts with torch."""
        return self._python(
            "from analytic_model.measure import measure_workload",
            f"print(measure_workload(config, workload, {self.counter_attention!r}))",
        )

    def waterfall(self) -> str:
        """The call behind the old estimate."""
        policy = "" if self.policy.vision_window_padding else ", Policy(vision_window_padding=False)"
        return self._python(
            "from analytic_model.history_of_estimate import waterfall\n"
            "from analytic_model.policy import Policy",
            f"print(*waterfall(config, workload{policy}), sep='\\n')",
        )

    def _python(self, imports: str, call: str) -> str:
        work = self.workload
        arguments = (*self.size, self.preset, work.prompt_tokens, work.decode_tokens, work.batch)
        lines = (
            "from pathlib import Path",
            imports,
            "from analytic_model.workload import Workload",
            "from dsocr_core.config import load_config",
            f"config = load_config(Path({self._shown_path()!r}))",
            f"workload = Workload.from_image({', '.join(map(repr, arguments))})",
            call,
        )
        return f"python - <<'END'\n{chr(10).join(lines)}\nEND"

    def _shown_path(self) -> str:
        path = self.config_path
        return str(path.relative_to(PROJECT_ROOT) if path.is_relative_to(PROJECT_ROOT) else path)
