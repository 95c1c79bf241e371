"""How the worker loads a checkpoint: the bits of the published way, without its float32 model."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

from dsocr_core.vendor.errors import VendorFailed
from dsocr_core.vendor.protocol import Load, Loaded
from dsocr_core.vendor.remote_code import remote_code
from dsocr_core.vendor.worker import Worker
from tests.support.seeded_weights import tiny_config, tiny_ocr2_config, write_seeded_checkpoint

Bits = dict[str, tuple[torch.dtype, torch.Tensor]]


def tensors_of(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, buffers that are saved or not, and what modules hold as plain attributes."""
    yield from model.named_parameters()
    yield from model.named_buffers()
    for name, module in model.named_modules():
        held = {key: value for key, value in vars(module).items() if isinstance(value, torch.Tensor)}
        yield from ((f"{name}.{key}", value) for key, value in held.items())


def bits(model: torch.nn.Module) -> Bits:
    return {
        name: (tensor.dtype, tensor.detach().contiguous().view(-1).view(torch.uint8))
        for name, tensor in tensors_of(model)
    }


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float32], ids=["stored-bf16", "stored-float32"])
def test_weights_and_buffers_are_those_of_the_published_loading(
    tmp_path: Path, stored: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = write_seeded_checkpoint(tiny_config(), tmp_path / "tiny_loading", stored)
    published = transformers.AutoModel.from_pretrained(
        checkpoint, _attn_implementation="eager", trust_remote_code=True, use_safetensors=True
    )
    expected = bits(published.eval().to("cpu").to(torch.bfloat16))

    before_the_last_cast: set[torch.dtype] = set()
    to = transformers.PreTrainedModel.to

    def spied(self: torch.nn.Module, *args: object, **kwargs: object) -> torch.nn.Module:
        before_the_last_cast.update(parameter.dtype for parameter in self.parameters())
        return to(self, *args, **kwargs)

    monkeypatch.setattr(transformers.PreTrainedModel, "to", spied)
    (tmp_path / "scratch").mkdir()
    worker = Worker(io.BytesIO(), tmp_path / "scratch")
    request = Load(str(checkpoint), "cpu", "bfloat16", "eager", remote_code(checkpoint).files)
    assert isinstance(worker.load(request), Loaded)
    loaded = bits(worker._model)
    assert before_the_last_cast == {torch.bfloat16} and loaded.keys() == expected.keys()
    for name, (kind, content) in expected.items():
        assert loaded[name][0] == kind and torch.equal(loaded[name][1], content), name
    assert any(name.endswith("inv_freq") and kind is torch.bfloat16 for name, (kind, _) in loaded.items())


@pytest.mark.parametrize(
    ("config", "version", "error", "words"),
    [
        (tiny_config(), "5.24.0", AttributeError("'Config' has no attribute"), "'Config' has no attribute"),
        (tiny_config(), "4.60.0", ModuleNotFoundError("gone", name="transformers.masks"), "gone"),
        (tiny_config(), "4.46.3", ModuleNotFoundError("No module named 'einops'", name="einops"), None),
        (tiny_config(), "5.24.0", MemoryError("no memory"), None),
        (tiny_ocr2_config(), "4.53.0.dev0", KeyError("not loaded"), "no feature of a view sees a later one"),
    ],
)
def test_what_fails_under_other_libraries_names_the_way_out(
    config: dict[str, Any], version: str, error: Exception, words: str | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Wherever it fails: the tokenizer is loaded before the model. The last ignores the encoder's mask."""

    def fail(*_: object, **__: object) -> None:
        raise error

    checkpoint = write_seeded_checkpoint(config, tmp_path / "tiny_failing", torch.float32)
    monkeypatch.setattr(transformers, "__version__", version)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", fail)
    (tmp_path / "scratch").mkdir()
    worker = Worker(io.BytesIO(), tmp_path / "scratch")
    with pytest.raises(VendorFailed if words else type(error)) as raised:
        worker.load(Load(str(checkpoint), "cpu", "float32", "eager", remote_code(checkpoint).files))
    said = f"(transformers {version}); give --vendor.interpreter an environment with transformers 4.46.3"
    assert words is None or (words in str(raised.value) and said in str(raised.value))


def test_the_configs_values_are_put_back_when_infer_is_left(tmp_path: Path) -> None:
    """The published `infer` clears the window while it generates, and puts it back only at its end."""
    worker, config = Worker(io.BytesIO(), tmp_path), SimpleNamespace(sliding_window=128)
    worker._model = SimpleNamespace(config=config)
    with pytest.raises(KeyboardInterrupt), worker._config_restored():
        config.sliding_window = None
        raise KeyboardInterrupt
    assert config.sliding_window == 128
