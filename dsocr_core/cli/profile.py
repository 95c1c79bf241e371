"""`profile`: the kernels of one stage under Nsight Compute."""

from __future__ import annotations

from rich.console import Console

from dsocr_core.cli.frames import print_answer
from dsocr_core.models.family import all_stages
from dsocr_core.models.stages import Stage
from dsocr_core.settings import Settings, SettingsError, history_location


def profile(
    settings: Settings,
    stage: str,
    *,
    tokens: int = 3,
    skip: int = 0,
    count: int = 100,
    ncu: str = "ncu",
    json: bool = False,
    console: Console,
) -> None:
    """Profile the kernels of a stage with Nsight Compute, into the history.

    Args:
        stage: whose kernels, like decode
        tokens: new tokens of the page; 2 are one decode step
        skip: launches of the stage to leave out first
        count: launches to profile at most
        ncu: Nsight Compute's command line
    """
    if stage not in all_stages():
        raise SettingsError(f"stage is '{stage[:40]}': give one of {', '.join(all_stages())}")
    from dsocr_core.measure.profile import Profile, profile_stage

    plan = Profile(Stage(stage), skip, count, tokens, ncu)
    run_id, launched = profile_stage(plan, settings, history_location(settings))
    document = {"run": run_id, "stage": stage, "engine": settings.engine, "launches": launched}
    print_answer(console, json, document, f"{launched} launches of {stage} recorded as run {run_id}")
