"""What an output tells of a page, as a result again, and what is known of the model's inputs."""

from __future__ import annotations

from pathlib import Path

from dsocr_core.backend_specs.kinds import EngineSpec, VendorSpec
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.rows import Row
from dsocr_core.outputs.input_parity import (
    ATTENTION,
    DTYPE,
    GLOBAL_HASH,
    GRID,
    KNOWN_INPUT,
    LIMIT,
    NGRAM,
    PROMPT_TOKENS,
    TILES_HASH,
)
from dsocr_core.records import BOXES_NOT_KNOWN, OcrResult, ngram_words
from dsocr_core.settings import Settings, settings_of


def side_settings(location: str) -> Settings:
    """The settings that an output was made with, those of its backend. Raises DsocrError."""
    return settings_of(Output(location).run()["settings"]).of_side("a")


def result_of(row: Row, settings: Settings, name: str | None = None) -> OcrResult | None:
    """What was read of a page, as far as its row tells, by a backend of that name; None where nothing was."""
    if row["status"] != "read":
        return None
    tokens = row["token_ids"]
    environment = {BOXES_NOT_KNOWN: "the text has none"} if row["boxes_known"] is False else {}
    environment |= {
        f"{KNOWN_INPUT}{line}": value for line, value in _inputs(row, settings).items() if value is not None
    }
    return OcrResult(
        backend=name or row["backend"],
        request=settings.request(Path(row["path"]), row["source"]),
        image_size=(row["width"] or 0, row["height"] or 0),
        text_raw=row["text_raw"] or "",
        token_ids=None if tokens is None else tuple(tokens),
        token_texts=(),
        finish_reason=row["finish_reason"],
        inputs=None,
        timings=(),
        environment=environment,
    )


def _inputs(row: Row, settings: Settings) -> dict[str, str | None]:
    """What is known of the model's inputs: of the page by its row, of the rest by the settings."""
    spec = settings.spec("a")
    engine, infer = isinstance(spec, EngineSpec), settings.infer
    facts: dict[str, str | None] = {
        PROMPT_TOKENS: _text(row["prompt_tokens"]),
        GRID: f"{row['grid_columns']} x {row['grid_rows']}" if row["grid_columns"] else None,
        GLOBAL_HASH: row["global_sha256"],
        TILES_HASH: row["tiles_sha256"],
    }
    if engine or isinstance(spec, VendorSpec):
        rule = ngram_words(infer.ngram_size, infer.ngram_window, infer.ngram_whitelist)
        facts |= {
            NGRAM: rule if infer.ngram_size else "0",
            LIMIT: _text(infer.token_limit),
            DTYPE: None if settings.dtype == "auto" else settings.dtype,
            ATTENTION: settings.own_attention if engine else settings.vendor_attention,
        }
    return facts


def _text(value: object) -> str | None:
    return None if value is None else str(value)
