"""Views of FLOP gaps and times, by run, shape of page and stage: `flop_gaps`, `stage_times`, `devices`."""

from __future__ import annotations

from analytic_model.cards import CARDS
from dsocr_core.runs.queries.query import Questions, literal
from dsocr_core.runs.shapes import COUNTED, COUNTS_SQL

QUERIES = Questions()
_ask = QUERIES.ask


def _devices() -> str:
    rows = (
        (
            place, card.names, card.hardware.name, card.hardware.bfloat16_tflops,
            card.hardware.float32_tflops, card.hardware.bandwidth_gb_s,
        )
        for place, card in enumerate(CARDS)
    )  # fmt: skip
    return ", ".join(f"({', '.join(map(literal, row))})" for row in rows)


TOGETHER = "pages read together share their steps"

# One statement each, in the order in which they name one another. `least` bounds any code from below: its
# FLOPs at the device's peak, and the bytes that have to move at its bandwidth.
VIEWS = f"""
CREATE VIEW devices AS
    WITH cards (place, pattern, device, bfloat16_tflops, float32_tflops, bandwidth_gb_s) AS (
        VALUES {_devices()}
    ),
    names AS (SELECT DISTINCT gpu FROM runs WHERE gpu IS NOT NULL AND NOT contains(gpu, ' MIG '))
    SELECT gpu, arg_min(device, place) AS device, arg_min(bfloat16_tflops, place) AS bfloat16_tflops,
           arg_min(float32_tflops, place) AS float32_tflops, arg_min(bandwidth_gb_s, place) AS bandwidth_gb_s
    FROM names JOIN cards ON regexp_matches(trim(gpu), pattern, 'i') GROUP BY gpu;
CREATE VIEW stage_times AS
    SELECT run_id, runs.created, runs.git_commit, backend, shape, stage, inside_prefill, n, milliseconds,
           own_milliseconds
    FROM shape_times JOIN runs AS runs USING (run_id)
    UNION ALL BY NAME
    SELECT run_id, runs.created, runs.git_commit, backend, stage, inside_prefill, n,
           coalesce(median, mean) AS milliseconds, coalesce(median, mean) AS own_milliseconds
    FROM stage_statistics JOIN runs AS runs USING (run_id)
    WHERE runs.source <> 'dsocr';
CREATE VIEW flop_gaps AS
    WITH counts AS (
        SELECT run_id, backend, shape, stage,
               any_value(flops) FILTER (kind = 'analytic') AS analytic,
               any_value(flops) FILTER (kind = 'measured') AS measured,
               any_value(flops) FILTER (kind = 'published') AS published,
               any_value(flops) FILTER (kind = 'traced') AS traced,
               any_value(flops) FILTER (kind = 'least') AS least,
               any_value(bytes) FILTER (kind = 'least') AS bytes
        FROM (FROM flops UNION BY NAME ({COUNTS_SQL})) GROUP BY ALL
    ),
    models AS (
        SELECT run_id, any_value(value) AS model FROM facts
        WHERE section = 'settings' AND name = 'checkpoint' GROUP BY run_id
    ),
    joined AS (
        SELECT counts.*, runs.git_commit, runs.created, runs.gpu, runs.dtype, runs.engine, runs.profiled,
               models.model, devices.device, times.n, times.own_milliseconds AS milliseconds,
               coalesce(measured, traced) AS counted,
               1e12 * CASE runs.dtype WHEN 'bfloat16' THEN devices.bfloat16_tflops
                                      WHEN 'float32' THEN devices.float32_tflops END AS peak_flops_per_s,
               1e9 * devices.bandwidth_gb_s AS bandwidth
        FROM counts JOIN runs AS runs USING (run_id) LEFT JOIN models USING (run_id)
        LEFT JOIN devices AS devices USING (gpu)
        LEFT JOIN stage_times AS times
             ON times.run_id = counts.run_id AND times.stage = counts.stage
             AND times.backend IS NOT DISTINCT FROM counts.backend
             AND times.shape IS NOT DISTINCT FROM counts.shape
    ),
    bounded AS (
        SELECT *,
               CASE WHEN runs_together THEN NULL
                    ELSE 1e3 * greatest(least / peak_flops_per_s, bytes / bandwidth) END AS lower_bound_ms
        FROM (SELECT *, coalesce(engine LIKE '% pages together', false) AS runs_together FROM joined)
    )
    SELECT run_id, git_commit, created, backend, model, shape, stage, n, analytic, counted,
           CASE WHEN measured IS NOT NULL THEN 'torch' WHEN traced IS NOT NULL THEN 'fvcore' END AS counter,
           published,
           analytic - counted AS gap_flops,
           100 * (analytic - counted) / nullif(counted, 0) AS gap_percent,
           milliseconds, lower_bound_ms, milliseconds - lower_bound_ms AS lost_ms,
           milliseconds / nullif(lower_bound_ms, 0) AS times_bound,
           CASE WHEN lower_bound_ms IS NULL THEN NULL
                WHEN least / peak_flops_per_s >= bytes / bandwidth THEN 'compute'
                ELSE 'memory' END AS bound_by,
           1e3 * analytic / nullif(milliseconds, 0) AS flops_per_s,
           CASE WHEN NOT runs_together
                THEN 1e3 * least / nullif(milliseconds, 0) / peak_flops_per_s END AS peak_share,
           CASE WHEN NOT runs_together
                THEN 1e3 * bytes / nullif(milliseconds, 0) / bandwidth END AS bandwidth_share,
           least / nullif(bytes, 0) AS intensity, device, peak_flops_per_s, bandwidth, profiled,
           CASE WHEN milliseconds IS NULL THEN 'stage not timed' WHEN runs_together THEN '{TOGETHER}'
                WHEN device IS NULL THEN 'device not known'
                WHEN peak_flops_per_s IS NULL THEN 'peak of the device not known'
                WHEN lower_bound_ms IS NULL THEN 'bytes not known' END AS no_bound
    FROM bounded;
"""

_ask(
    "flop_gaps",
    "per run, backend, shape of page and stage: FLOPs by arithmetic and as counted, their gap, the stage's "
    "time and its lower bound on the run's device; prefill is what vision leaves of it",
    """
    SELECT * FROM flop_gaps
    WHERE ($run_ids::VARCHAR[] IS NULL OR list_contains($run_ids, run_id))
    ORDER BY created, run_id, backend, shape, stage
    """,
    run_ids=None,
)

_ask(
    "stage_times",
    "per run, backend, shape of page and stage: the median time, and prefill's own without vision",
    """
    SELECT * FROM stage_times
    WHERE ($run_ids::VARCHAR[] IS NULL OR list_contains($run_ids, run_id))
    ORDER BY created, run_id, backend, shape, stage
    """,
    run_ids=None,
)

_ask(
    "gap_stages",
    "per run, backend and stage: sums over its shapes of page for one page, weighted by how often each was "
    "read; runs in the trash are left out",
    """
    SELECT run_id, any_value(created) AS created, any_value(git_commit) AS git_commit, backend,
           any_value(model) AS model, any_value(device) AS device, bool_or(profiled) AS profiled, stage,
           count(*) AS shapes, min(shape) AS shape, sum(n)::BIGINT AS n, any_value(counter) AS counter,
           avg(analytic) AS analytic, avg(counted) AS counted, avg(published) AS published,
           sum(abs(gap_flops)) AS gap_flops,
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
      AND ($run_ids::VARCHAR[] IS NULL OR list_contains($run_ids, run_id))
    GROUP BY run_id, backend, stage ORDER BY created, run_id, backend, stage
    """,
    run_ids=None,
)

_ask(
    "gap_missing",
    "runs without FLOPs, and why they have none",
    f"""
    SELECT run_id, source,
           CASE WHEN source <> 'dsocr' THEN 'imported without FLOPs'
                WHEN pages IS NULL THEN 'no page was read'
                ELSE 'recorded without FLOPs' END AS reason
    FROM listed
    WHERE NOT trashed AND run_id NOT IN (SELECT run_id FROM flops)
      AND run_id NOT IN (SELECT run_id FROM annotations WHERE kind = '{COUNTED}')
    ORDER BY run_id
    """,
)
