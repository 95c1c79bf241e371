"""FLOP gaps and times by run, shape of page and stage, read from the runs' files."""

from __future__ import annotations

from collections.abc import Iterable

from analytic_model.hardware import HARDWARE
from dsocr_core.models.stages import COMPUTED, INSIDE_PREFILL, Stage
from dsocr_core.runs.queries.query import Query, literal
from dsocr_core.runs.shapes import COUNTS_SQL, SHAPE_SQL

QUERIES: dict[str, Query] = {}
TOGETHER = "pages read together share their steps"
_PEAKS = ("bfloat16_tflops", "float32_tflops", "bandwidth_gb_s")
_NAMES = ", ".join(_PEAKS)
_CARDS = ", ".join(
    f"({literal((place, card.pattern, card.name, *(getattr(card, each) for each in _PEAKS)))[1:-1]})"
    for place, card in enumerate(HARDWARE.values())
    if card.pattern
)


def _of_stages(text: str, between: str = ", ", stages: Iterable[Stage] = COMPUTED) -> str:
    return between.join(text.format(stage) for stage in stages)


# `least` bounds any code from below: its FLOPs at the device's peak, and the bytes that have to move at its
# bandwidth. The prefill of a page is what the vision inside it leaves.
VIEWS = {
    "devices": f"""
    SELECT DISTINCT ON (gpu) gpu, device, {_NAMES}
    FROM (SELECT DISTINCT gpu FROM runs WHERE NOT contains(gpu, ' MIG '))
    JOIN (VALUES {_CARDS}) AS cards (place, pattern, device, {_NAMES})
          ON regexp_matches(trim(gpu), pattern, 'i')
    ORDER BY gpu, place
    """,
    # Counts of shapes, of sweeps and of imported runs; an earlier bench has others, page by page.
    "shape_flops": f"""
    SELECT run_id, backend, shape, stage, kind, flops, CASE kind WHEN 'least' THEN bytes END AS bytes
    FROM stage_flops WHERE flops IS NOT NULL AND (shape IS NOT NULL OR page IS NULL)
    UNION ALL BY NAME
    SELECT run_id, printf('%dx%d tiles, batch %d, context %d, %d steps', tile_columns, tile_rows, batch,
           context, steps) AS shape, part AS stage,
           CASE engine WHEN 'eager' THEN 'analytic' ELSE 'measured' END AS kind, flops
    FROM sweep_points WHERE engine IN ('eager', 'counted')
    UNION ALL BY NAME {COUNTS_SQL}
    """,
    # A column a stage until the end: a group a shape and stage takes several times as long.
    "stage_times": f"""
    WITH pages AS (
        SELECT run_id, backend, page, {_of_stages("avg(milliseconds) FILTER (stage = '{0}') AS {0}")}
        FROM timings WHERE aggregate = 'page' GROUP BY run_id, backend, page
    ),
    shaped AS (
        SELECT {SHAPE_SQL} AS shape, pages.* REPLACE (
                   prefill - {_of_stages("coalesce({0}, 0)", " - ", INSIDE_PREFILL)} AS prefill
               )
        FROM pages JOIN readings USING (run_id, backend, page) WHERE shape IS NOT NULL
    ),
    of_shapes AS (
        SELECT run_id, backend, shape, unnest([{_of_stages("'{0}'")}]) AS stage,
               unnest([{_of_stages("count({0})")}]) AS n,
               unnest([{_of_stages("median({0})")}]) AS milliseconds
        FROM shaped GROUP BY run_id, backend, shape
    )
    FROM of_shapes WHERE n > 0
    UNION ALL BY NAME
    SELECT run_id, backend, stage, n, coalesce(median, mean) AS milliseconds
    FROM stage_statistics JOIN runs USING (run_id) WHERE source <> 'dsocr'
    """,
    "flop_gaps": f"""
    WITH counts AS (
        SELECT run_id, backend, shape, stage,
               any_value(flops) FILTER (kind = 'analytic') AS analytic,
               any_value(flops) FILTER (kind = 'measured') AS measured,
               any_value(flops) FILTER (kind = 'published') AS published,
               any_value(flops) FILTER (kind = 'traced') AS traced,
               any_value(flops) FILTER (kind = 'least') AS least,
               any_value(bytes) FILTER (kind = 'least') AS bytes
        FROM shape_flops GROUP BY ALL
    ),
    machine AS (
        SELECT run_id, git_commit, created, profiled, checkpoint AS model, devices.device,
               coalesce(engine LIKE '% pages together', false) AS runs_together,
               1e12 * CASE dtype WHEN 'bfloat16' THEN bfloat16_tflops
                                 WHEN 'float32' THEN float32_tflops END AS peak_flops_per_s,
               1e9 * bandwidth_gb_s AS bandwidth
        FROM runs LEFT JOIN devices USING (gpu)
    ),
    joined AS (
        SELECT counts.*, machine.* EXCLUDE (run_id), times.n, times.milliseconds,
               CASE WHEN NOT runs_together THEN 1e3 * least / peak_flops_per_s END AS compute_ms,
               CASE WHEN NOT runs_together THEN 1e3 * bytes / bandwidth END AS memory_ms
        FROM counts JOIN machine USING (run_id)
        LEFT JOIN stage_times AS times
             ON times.run_id = counts.run_id AND times.stage = counts.stage
             AND times.backend IS NOT DISTINCT FROM counts.backend
             AND times.shape IS NOT DISTINCT FROM counts.shape
    )
    SELECT run_id, git_commit, created, backend, model, shape, stage, n, analytic,
           coalesce(measured, traced) AS counted,
           CASE WHEN measured IS NOT NULL THEN 'torch' WHEN traced IS NOT NULL THEN 'fvcore' END AS counter,
           published, analytic - counted AS gap_flops, 100 * gap_flops / nullif(counted, 0) AS gap_percent,
           milliseconds, greatest(compute_ms, memory_ms) AS lower_bound_ms,
           milliseconds - lower_bound_ms AS lost_ms,
           CASE WHEN lower_bound_ms IS NULL THEN NULL WHEN compute_ms >= memory_ms THEN 'compute'
                ELSE 'memory' END AS bound_by,
           compute_ms / nullif(milliseconds, 0) AS peak_share,
           memory_ms / nullif(milliseconds, 0) AS bandwidth_share,
           least / nullif(bytes, 0) AS intensity, device, peak_flops_per_s, bandwidth, profiled,
           CASE WHEN milliseconds IS NULL THEN 'stage not timed' WHEN runs_together THEN '{TOGETHER}'
                WHEN device IS NULL THEN 'device not known'
                WHEN peak_flops_per_s IS NULL THEN 'peak of the device not known'
                WHEN lower_bound_ms IS NULL THEN 'bytes not known' END AS no_bound
    FROM joined
    """,
}

# Per run, backend, shape of page and stage: FLOPs by arithmetic and as counted, their gap, the stage's time
# and its lower bound on the run's device.
QUERIES["flop_gaps"] = Query(
    """
    SELECT * FROM flop_gaps
    WHERE ($run_ids::VARCHAR[] IS NULL OR run_id IN (SELECT unnest($run_ids)))
    ORDER BY created, run_id, backend, shape, stage
    """,
    {"run_ids": None},
    together=10_000,
)

# Per run, backend and stage, what loses most first: sums over its shapes of page for one page, weighted by
# how often each was read; runs in the trash are left out.
QUERIES["gap_stages"] = Query(
    """
    SELECT *, milliseconds - lower_bound_ms AS lost_ms,
           milliseconds / nullif(lower_bound_ms, 0) AS times_bound
    FROM (
        SELECT run_id, any_value(created) AS created, any_value(git_commit) AS git_commit,
               coalesce(backend, '') AS backend, any_value(model) AS model, any_value(device) AS device,
               bool_or(profiled) AS profiled, stage, count(*) AS shapes, min(shape) AS shape,
               sum(n)::BIGINT AS n, any_value(counter) AS counter, avg(analytic) AS analytic,
               avg(counted) AS counted, avg(published) AS published, sum(abs(gap_flops)) AS gap_flops,
               max_by(gap_percent, abs(gap_percent)) AS gap_percent,
               sum(milliseconds * coalesce(n, 1))
                   / sum(coalesce(n, 1)) FILTER (milliseconds IS NOT NULL) AS milliseconds,
               sum(lower_bound_ms * n) / sum(n) FILTER (lower_bound_ms IS NOT NULL) AS lower_bound_ms,
               any_value(bound_by) AS bound_by, avg(peak_share) AS peak_share,
               avg(bandwidth_share) AS bandwidth_share, avg(intensity) AS intensity,
               any_value(peak_flops_per_s) AS peak_flops_per_s, any_value(bandwidth) AS bandwidth,
               min(no_bound) AS no_bound
        FROM flop_gaps
        WHERE run_id NOT IN (SELECT run_id FROM marks WHERE trashed)
          AND ($run_ids::VARCHAR[] IS NULL OR run_id IN (SELECT unnest($run_ids)))
        GROUP BY run_id, backend, stage
    )
    ORDER BY created, run_id, backend, lost_ms DESC NULLS LAST, milliseconds DESC NULLS LAST,
             analytic DESC NULLS LAST, stage
    """,
    {"run_ids": None},
    together=10_000,
)

# Runs without FLOPs, and why they have none.
QUERIES["gap_missing"] = Query(
    """
    SELECT run_id, source,
           CASE WHEN source <> 'dsocr' THEN 'imported without FLOPs'
                WHEN pages IS NULL THEN 'no page was read'
                ELSE 'recorded without FLOPs' END AS reason
    FROM listed
    WHERE NOT trashed AND run_id NOT IN (SELECT run_id FROM shape_flops)
    ORDER BY run_id
    """
)
