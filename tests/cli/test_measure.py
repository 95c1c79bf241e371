"""`measure NAME`: options reach the measurement as they were given; what cannot run is one line."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import pytest
import torch

from dsocr_core.base.console import BAD_USAGE, OK
from dsocr_core.cli.main import main


@pytest.mark.parametrize("name", ["decode-step", "batch-step", "prefill"])
def test_kernels_are_measured_on_a_gpu_only(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["measure", name, "--config", "config.json"]) == BAD_USAGE
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith(f"error: measure {name} measures the fast engine: it needs a CUDA device")


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["decode-step", "--config", "c", "--tokens", "0"], "tokens is 0"),
        (["batch-step", "--config", "c", "--streams", "0"], "streams is 0"),
        (["ties", "page.png", "--repeat", "0"], "repeat is 0"),
        (["fast-parity", "--batch", "0"], "batch is 0"),
        (["fast-parity", "--size", "big"], "WIDTHxHEIGHT"),
        (["soak", "--batch", "0"], "batch is 0"),
    ],
)
def test_bad_usage_is_one_line(arguments: list[str], cause: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", *arguments]) == BAD_USAGE
    shown = capsys.readouterr().out
    assert shown.startswith("error: ") and cause in " ".join(shown.split())


@pytest.mark.parametrize(
    ("module", "arguments", "given"),
    [
        (
            "decode_step",
            ["decode-step", "--config", "c.json", "--sweep", "splits", "tiles", "--no-dependent"],
            {"sweep": ("splits", "tiles"), "no_dependent": True, "tokens": 1000, "context": 741},
        ),
        ("decode_step", ["decode-step", "--config", "c.json"], {"sweep": None, "no_dependent": False}),
        ("decode_step", ["decode-step", "--config", "c.json", "--sweep"], {"sweep": ()}),
        ("ties", ["ties", "a.png", "--dtype", "float32"], {"dtype": ("float32",), "checkpoint": None}),
    ],
)
def test_options_reach_the_measurement(
    module: str, arguments: list[str], given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if module == "decode_step":
        pytest.importorskip("triton")
    heard: list[dict[str, Any]] = []
    loaded = importlib.import_module(f"dsocr_core.measure.{module}")
    real = loaded.run

    @functools.wraps(real)
    def run(**named: Any) -> None:
        heard.append(named)

    monkeypatch.setattr(loaded, "run", run)
    monkeypatch.setattr("dsocr_core.measure.device.require_fast_engine", lambda _: None)
    assert main(["measure", *arguments]) == OK
    (named,) = heard
    assert {name: named[name] for name in given} == given


def test_a_field_that_the_step_has_not_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("dsocr_core.measure.device.require_fast_engine", lambda _: None)
    assert main(["measure", "decode-step", "--config", "c.json", "--sweep", "warps"]) == BAD_USAGE
    assert "sweep: no field 'warps'" in capsys.readouterr().out
