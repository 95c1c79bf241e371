"""One packing of a decoder: the modules read the same storage, and nothing is there twice."""

import torch

from dsocr_core.engine.fast.weights import pack
from dsocr_core.models.blocks.attention import Rotary, sdpa_core
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.blocks.decoder import Decoder
from dsocr_core.models.config import DecoderConfig
from tests.engine.decoders import small_model


def storages(decoder: Decoder) -> dict[int, int]:
    found = (parameter.untyped_storage() for parameter in decoder.parameters())
    return {storage.data_ptr(): storage.nbytes() for storage in found}


def logits(decoder: Decoder, config: DecoderConfig) -> torch.Tensor:
    x = torch.linspace(-1, 1, 6 * config.hidden_size, device=decoder.norm.weight.device).view(1, 6, -1)
    cache = KvCache(config, 6, x.dtype, x.device)
    return decoder(x, cache, Rotary(config, 6, x.dtype, x.dtype, x.device), sdpa_core)


def test_parameters_become_views_of_the_packed_matrices() -> None:
    model = small_model()
    decoder, config = model.decoder, model.config.decoder
    with torch.inference_mode():  # as a reading batch packs
        before = [parameter.clone() for parameter in decoder.parameters()]
        size, expected = sum(storages(decoder).values()), logits(decoder, config)
        weights = pack(decoder)
        assert all(map(torch.equal, decoder.parameters(), before))
        assert torch.equal(logits(decoder, config), expected)
    packed = {weights.embedding, weights.norm, weights.head}
    for layer in weights.layers:
        packed |= {layer.attention_norm, layer.qkv, layer.o, layer.norm, layer.wide, layer.down}
        if layer.experts is not None:
            packed |= {layer.experts.gate, layer.experts.up, layer.experts.down}
    assert set(storages(decoder)) == {tensor.untyped_storage().data_ptr() for tensor in packed}
    assert sum(storages(decoder).values()) == size
    dense, mixture = weights.layers
    assert dense.experts is None and len(dense.router) == 0
    assert torch.equal(mixture.router, decoder.layers[1].mlp.gate.weight)  # type: ignore[union-attr]
