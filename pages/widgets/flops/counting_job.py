"""Counting a workload's FLOPs with torch's counter as a job. No Streamlit here."""

from __future__ import annotations

from collections.abc import Callable

from analytic_model.frames import Counted
from analytic_model.workload import Workload
from dsocr_core.engine.threads import wait_politely
from dsocr_core.errors import Cancelled
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import inside_prefill
from dsocr_core.stages import Stage
from pages.widgets.shared.job import Job

Work = tuple[ModelConfig, Workload, str]
"""What is counted: the last is the decoder's attention."""
Count = Callable[[ModelConfig, Workload, str, Callable[[Stage], None]], Counted]


def count_with_torch(
    config: ModelConfig, workload: Workload, attention: str, on_stage: Callable[[Stage], None]
) -> Counted:
    """Our core under torch's counter, on the meta device: no weights, no memory. Imports torch."""
    wait_politely()
    from analytic_model.measure import measure_workload

    return measure_workload(config, workload, attention, on_stage)


def counting_job(about: Work, count: Count = count_with_torch) -> Job[Counted]:
    """A count of that work. Cancelled, it stops before the next stage or token."""
    workload = about[1]
    # Towers and projector for each pass of equal views, fusion, prefill, every decoded token.
    steps = (len(inside_prefill()) - 1) * len(workload.view_groups) + 1 + 1 + workload.decode_steps

    def work(job: Job[Counted]) -> Counted:
        announced = 0

        def on_stage(stage: Stage) -> None:
            nonlocal announced
            if job.token.is_set():
                raise Cancelled("the measurement was cancelled")
            job.say(f"counting {stage.value}", announced / steps)
            announced += 1

        job.say("getting torch ready")
        return count(*about, on_stage)

    return Job("FLOP measurement", about, work)
