"""What is said of a GPU before a page is read, and the name of a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.doctor import _gpus
from dsocr_core.engine.device import no_gpu, resolve_device
from dsocr_core.engine.fast import FastEngineUnavailableError, require_fast_engine
from dsocr_core.models.devices import Gpu
from dsocr_core.models.family import load_config, parse_config
from dsocr_core.models.weights import _require_gpu, weight_bytes
from tests.support.seeded_weights import tiny_config, write_seeded_checkpoint

ARCHES = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120")


def gpu(capability: tuple[int, int], arches: tuple[str, ...] = ARCHES, free: int = 5 * 2**30) -> Gpu:
    return Gpu("a card", capability, arches, free, 6 * 2**30)


@pytest.mark.parametrize(
    ("capability", "arches", "kernels", "full"),
    [
        ((7, 0), ARCHES, False, False),  # V100: 7.5 is later
        ((7, 5), ARCHES, True, False),  # 2080 Ti
        ((8, 9), ARCHES, True, True),  # runs the code for 8.6
        ((9, 0), ("sm_90a",), True, True),
        ((13, 0), ARCHES, True, True),  # the driver compiles compute_120
        ((13, 0), ARCHES[:-1], False, True),
        ((10, 3), ("sm_100f", "nonsense"), True, True),
    ],
)
def test_what_runs_on_a_card(
    capability: tuple[int, int], arches: tuple[str, ...], kernels: bool, full: bool
) -> None:
    card = gpu(capability, arches)
    assert card.has_kernels == kernels
    assert ("has no kernels for a card" in card.lacks) == (not kernels)
    assert bool(card.lacks) == (not (kernels and full))
    words = f"a card, compute capability {capability[0]}.{capability[1]}, "
    assert str(card).startswith(words) and str(card).endswith("5 of 6 GiB free")


def test_a_load_says_what_the_card_is_and_refuses_what_it_cannot(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    _require_gpu(gpu((9, 0)), 2 * 10**9)
    assert caplog.messages == [f"{gpu((9, 0))}; the weights take 2.0 GB"]
    _require_gpu(gpu((7, 5)), 2 * 10**9)
    assert "no bf16 in hardware" in caplog.messages[-1] and "--dtype float32" in caplog.messages[-1]
    with pytest.raises(DsocrError, match="has no kernels for a card, compute capability 6"):
        _require_gpu(gpu((6, 1)), 1)
    with pytest.raises(DsocrError, match=r"take 6\.7 GB and a card, .* has 5\.4 of 6\.4 GB free"):
        _require_gpu(gpu((9, 0)), 67 * 10**8)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> list[Gpu]:
    """GPUs that torch finds; a test puts its own there."""
    found = [gpu((9, 0))]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(found))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(found))
    monkeypatch.setattr(Gpu, "of", lambda device: found[device.index])
    return found


def test_doctor_names_each_card_and_holds_the_weights_against_its_memory(
    card: list[Gpu], tmp_path: Path
) -> None:
    checkpoint = write_seeded_checkpoint(tiny_config(), tmp_path / "tiny")
    needed = weight_bytes(parse_config(tiny_config()), torch.bfloat16)
    card += [gpu((7, 5)), gpu((6, 1)), gpu((9, 0), free=needed - 1)]
    found = list(_gpus(load_config(checkpoint)))
    assert [(each.subject, each.state) for each in found] == [
        ("GPU", "ok"), ("GPU 1", "optional"), ("GPU 2", "missing"), ("GPU 3", "missing"),
    ]  # fmt: skip
    assert all(str(each) in finding.detail for each, finding in zip(card, found, strict=True))
    assert "the checkpoint's weights take" in found[0].detail and found[0].advice == ""
    assert [each.advice for each in found[1:3]] == [card[1].lacks, card[2].lacks]


def test_a_driver_that_is_too_old_is_named(
    card: list[Gpu], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    card.clear()

    def too_old() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040). Please update")

    no_gpu.cache_clear()
    monkeypatch.setattr(torch.cuda, "init", too_old)
    try:
        (found,) = _gpus(None)
        assert "driver on your system is too old (found version 11040); pages" in found.detail
        assert "install a newer driver" in found.advice
        assert resolve_device("auto") == torch.device("cpu")
        assert caplog.messages == [f"{no_gpu()}: pages are read on the CPU"]
        with pytest.raises(DsocrError, match=r"'cuda' is not here \(The NVIDIA driver .* is too old"):
            resolve_device("cuda")
    finally:
        no_gpu.cache_clear()


def test_the_fast_engine_asks_for_bf16_in_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr_core.engine.fast.find_spec", lambda name: name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "2080 Ti")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    require_fast_engine("cuda:0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.raises(FastEngineUnavailableError, match=r"8\.0, and 2080 Ti has 7\.5: use --engine"):
        require_fast_engine("cuda:0")
    with pytest.raises(FastEngineUnavailableError, match="runs on a CUDA device, not on cpu"):
        require_fast_engine("cpu")
    monkeypatch.setattr("dsocr_core.engine.fast.find_spec", lambda name: None)
    with pytest.raises(FastEngineUnavailableError, match="needs triton"):
        require_fast_engine("cuda")
