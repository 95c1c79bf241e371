"""The two models that the cost tests speak of."""

import pytest

from dsocr_core.models.config import ClipConfig, DecoderConfig, ModelConfig, ProjectorConfig, SamConfig
from dsocr_core.models.family import load_config
from tests.support.paths import ROOT


@pytest.fixture(scope="session")
def published() -> ModelConfig:
    """The published checkpoint's sizes, written out so that no file is needed."""
    return ModelConfig(
        sam=SamConfig(768, 12, 12, (2, 5, 8, 11), (512, 1024), 1024),
        clip=ClipConfig(1024, 24, 16, 224, 14),
        projector=ProjectorConfig(2048, 1280),
        decoder=DecoderConfig(129280, 1280, 12, 10, 6848, 896, 64, 6, 2, 1, 8192, 0, 1),
    )


@pytest.fixture(scope="session")
def embedded() -> ModelConfig:
    return load_config(ROOT / "data" / "mini" / "config.json")
