"""What drafts would give on pages, source by source, and how far neighbouring tokens share their experts.

    dsocr measure drafts paper.pdf scans/ --draft text-layer --draft lookup

Pages are read without a draft; what each source drafts of them is then held against the tokens, which needs no
GPU. The speed is an estimate by what passes cost on an H100 (`drafts.pace.COSTS`). A pass of K rows reads the
experts that any of its rows goes to, so how many those are decides which K pays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor

from dsocr_core.backends.drafting import drafts_of
from dsocr_core.backends.on_device import engine_backend
from dsocr_core.drafts.given import Given, simulated
from dsocr_core.drafts.pace import COSTS
from dsocr_core.engine.base import Engine
from dsocr_core.engine.generate import Sequence as Decoded
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.inputs.documents import expand
from dsocr_core.model.moe import MixtureOfExperts
from dsocr_core.records import OcrRequest
from dsocr_core.settings import Settings

ROWS = tuple(rows for rows in COSTS if rows > 1)


def experts_of(engine: Engine, request: OcrRequest, tokens: Sequence[int]) -> Tensor:
    """The experts of each new token that is fed back: (layers with experts, T - 1, k)."""
    model, chosen = engine.checkpoint.model, []

    def note(module: MixtureOfExperts, given: tuple[Tensor, ...]) -> None:
        chosen.append(module.route(given[0].reshape(-1, given[0].shape[-1]))[0])

    with engine.modes():
        timer = StageTimer(model.device, marks=Marks.NONE)
        page, pixels = engine.take_in(request, None, timer)
        sequence = Decoded.start(model, page.prompt.ids, len(tokens), 0, engine.core, engine.rotary_dtype)
        engine.prefill(page.prompt, pixels, sequence, timer, None)
        mixtures = [layer.mlp for layer in model.decoder.layers if isinstance(layer.mlp, MixtureOfExperts)]
        hooks = [each.register_forward_pre_hook(note) for each in mixtures]
        try:
            sequence.forward(model, model.embed(torch.tensor([list(tokens[:-1])], device=model.device)))
        finally:
            for hook in hooks:
                hook.remove()
    return torch.stack(chosen).cpu()


def distinct(chosen: Tensor, rows: int) -> Tensor:
    """How many experts the K tokens of each pass go to together: (L, T, k) -> (L, T // K)."""
    layers, tokens, each = chosen.shape
    whole = chosen[:, : tokens // rows * rows].reshape(layers, tokens // rows, rows * each)
    ordered = whole.sort(dim=-1).values
    return 1 + (ordered[..., 1:] != ordered[..., :-1]).sum(-1)


def by_chance(experts: int, each: int, rows: int) -> float:
    """Experts that K tokens go to when each takes its own at random."""
    return float(experts * (1 - (1 - each / experts) ** rows))


def read(settings: Settings, images: Sequence[str]) -> Iterator[tuple[OcrRequest, tuple[int, ...]]]:
    """Pages and their tokens."""
    engine = engine_backend(settings).engine
    for page in expand(images, None, None, settings.pdf_dpi, settings.max_pixels):
        request = settings.request(page.path, page.source)
        yield request, engine.recognize(request).required_tokens


def run(
    settings: Annotated[Settings, "engine", "draft"],
    images: tuple[str, ...],
    *,
    draft: tuple[str, ...] = ("text-layer", "lookup"),
) -> None:
    """Print what drafts would give on pages, source by source, and how neighbouring tokens share experts.

    Args:
        images: images, folders or PDF files
        draft: sources of drafts, as the setting draft names them
    """
    settings = replace(settings, engine="eager", draft="")
    engine = engine_backend(settings).engine
    pages = list(read(settings, images))
    sources = [drafts_of(replace(settings, draft=name)) for name in draft]
    print(f"{len(pages)} pages, {sum(len(tokens) for _, tokens in pages)} tokens")
    print(
        f"{'draft':24} {'pages':>5} " + " ".join(f"{f'K = {rows}':>8}" for rows in ROWS) + "   chosen  faster"
    )
    for source in sources:
        assert source is not None
        found = [
            (tokens, source.tokens(request, engine.checkpoint.tokenizer.encode)) for request, tokens in pages
        ]
        drafted = [
            (tokens, None if source.own_text else mine) for tokens, mine in found if mine or source.own_text
        ]
        sums = [_sum(drafted, rows) for rows in (*ROWS, None)]
        cells = " ".join(f"{given.tokens_a_pass or 0:8.2f}" for given in sums)
        print(f"{source.name[:24]:24} {len(drafted):5} {cells} {sums[-1].won or 1:6.2f}x")
    chosen = [experts_of(engine, request, tokens) for request, tokens in pages if len(tokens) > max(ROWS)]
    if chosen and chosen[0].numel():
        config = engine.checkpoint.model.config.decoder
        print(f"experts of {config.routed_experts} that K neighbouring tokens go to in a layer (by chance)")
        for rows in ROWS:
            mean = torch.cat([distinct(each, rows).flatten() for each in chosen]).float().mean()
            chance = by_chance(config.routed_experts, config.experts_per_token, rows)
            print(f"K = {rows:2}: {mean:.1f} ({chance:.1f})")


def _sum(drafted: Sequence[tuple[Sequence[int], Sequence[int] | None]], rows: int | None) -> Given:
    total = Given()
    for tokens, draft in drafted:
        one = simulated(tokens, draft, rows)
        total = Given(
            total.tokens + one.tokens, total.passes + one.passes, total.accepted + one.accepted,
            total.cost + one.cost,
        )  # fmt: skip
    return total
