"""Counting a workload's FLOPs with torch's counter, on a thread of its own. No Streamlit here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analytic_model.frames import Counted
from analytic_model.workload import Workload
from dsocr_core.config import ModelConfig
from dsocr_core.engine.threads import wait_politely
from dsocr_core.errors import Cancelled
from dsocr_core.stages import INSIDE_PREFILL, Stage
from pages.widgets.shared.background import Work, WorkState

OnStage = Callable[[Stage], None]
Measure = Callable[[ModelConfig, Workload, str, OnStage], Counted]


def count_with_torch(config: ModelConfig, workload: Workload, attention: str, on_stage: OnStage) -> Counted:
    """Our core under torch's counter, on the meta device: no weights, no memory. Imports torch."""
    wait_politely()
    from analytic_model.measure import measure_workload

    return measure_workload(config, workload, attention, on_stage)


@dataclass(frozen=True)
class MeasurementView:
    """What a page may see of a measurement. `share` is done of 1; `stage` is None while torch loads."""

    state: WorkState
    seconds: float
    share: float
    stage: Stage | None
    cancelling: bool
    error: str = ""

    @property
    def seconds_left(self) -> float | None:
        """At the speed so far; None while there is too little to tell."""
        return self.seconds * (1 - self.share) / self.share if self.share > 0.05 else None


class Measurement(Work):
    """One measurement. Pages call `view`, `cancel` and, once it is over, `result`.

    Cancelled, it stops before the next stage or token.
    """

    def __init__(
        self, config: ModelConfig, workload: Workload, attention: str, measure: Measure = count_with_torch
    ) -> None:
        super().__init__("FLOP measurement")
        self.of = config, workload, attention
        self.result: Counted | None = None
        self._measure = measure
        self._stage: Stage | None = None
        self._announced = 0
        # Towers and projector for each pass of equal views, fusion, prefill, every decoded token.
        self._steps = (len(INSIDE_PREFILL) - 1) * len(workload.view_groups) + 1 + 1 + workload.decode_steps

    def view(self) -> MeasurementView:
        """A snapshot, safe from any thread."""
        with self._lock:
            return MeasurementView(
                self._state,
                self.seconds(),
                min(max(self._announced - 1, 0) / self._steps, 1.0),
                self._stage,
                self.cancelling,
                self._error,
            )

    def _do(self) -> WorkState:
        self.result = self._measure(*self.of, self._on_stage)
        return "done"

    def _on_stage(self, stage: Stage) -> None:
        if self._cancel.is_set():
            raise Cancelled("the measurement was cancelled")
        with self._lock:
            self._stage, self._announced = stage, self._announced + 1
