"""Selection of the FLOPs page, and the commands that print the same figures."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from analytic_model.hardware import Hardware
from analytic_model.policy import Policy
from analytic_model.predict import Prediction, predict
from analytic_model.recorded import Recorded, hardware_key
from analytic_model.workload import Workload
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.models.config import ModelConfig


class NotRecordedError(DsocrError):
    """There is nothing recorded to show yet; says what to do."""


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
    hardware: Hardware
    hardware_name: str
    """Its key."""
    recorded: Recorded | None = None
    """The times of what was recorded, where that is chosen."""

    @cached_property
    def prediction(self) -> Prediction:
        return predict(self.config, self.workload, self.policy)

    @property
    def bounds_recorded(self) -> bool:
        """Tell whether the hardware's bound is one of the times: of their machine, of a page by itself."""
        if self.recorded is None or self.recorded.together:
            return False
        own = self.hardware_name.removesuffix("-measured")
        return own == hardware_key(self.recorded.device, self.policy.dtype)

    def report(self, *more: str) -> str:
        """The command line that prints these figures."""
        policy = self.policy
        words = [] if policy.attention == Policy().attention else ["--attention", policy.attention]
        device = ["--hardware", self.hardware_name]
        return self.command("report", *device, *words, *more)

    def command(self, name: str, *more: str) -> str:
        """The command line of a subcommand on this work; it counts as here."""
        work, policy, usual = self.workload, self.policy, Policy()
        words = [
            "dsocr", "flops", name, "--config", self.shown_path,
            "--width", str(self.size[0]), "--height", str(self.size[1]), "--preset", self.preset,
            "--prompt-tokens", str(work.prompt_tokens), "--decode-tokens", str(work.decode_tokens),
        ]  # fmt: skip
        options = {
            "--batch": (str(work.batch), "1"),
            "--dtype": (policy.dtype, usual.dtype),
        }
        for option, (chosen, left_out) in options.items():
            words += [option, chosen] if chosen != left_out else []
        return shlex.join([*words, *more])

    @property
    def shown_path(self) -> str:
        path = self.config_path
        return str(path.relative_to(PROJECT_ROOT) if path.is_relative_to(PROJECT_ROOT) else path)
