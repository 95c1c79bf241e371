"""Gains of drafts on pages, source by source, and how far neighbouring tokens share their experts.

    dsocr measure drafts paper.pdf scans/ --draft text-layer --draft lookup

Pages are read without a draft; what each source drafts of them is then held against the tokens, which needs
no GPU. The speed is an estimate by what passes cost on an H100 (`drafts.pace.COSTS`). A pass of K rows reads
the experts that any of its rows goes to, so how many those are decides which K pays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import torch
from rich.console import Console
from torch import Tensor

from dsocr_core.backends.drafting import drafts_of
from dsocr_core.backends.on_device import engine_backend
from dsocr_core.base.console import Name, page_table
from dsocr_core.engine.base import Engine
from dsocr_core.engine.drafts.given import Given, simulated
from dsocr_core.engine.drafts.pace import COSTS
from dsocr_core.engine.generate import Sequence as Decoded
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.models.blocks.moe import MixtureOfExperts
from dsocr_core.page.documents import expand
from dsocr_core.reading.records import OcrRequest
from dsocr_core.settings import Settings

Tokens = Sequence[int]
ROWS = tuple(rows for rows in COSTS if rows > 1)


def experts_of(engine: Engine, request: OcrRequest, tokens: Tokens) -> Tensor:
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
            for token in tokens[:-1]:
                sequence.forward(model, model.embed(torch.tensor([[token]], device=model.device)))
        finally:
            for hook in hooks:
                hook.remove()
    return torch.stack(chosen).view(len(tokens) - 1, len(mixtures), -1).transpose(0, 1).cpu()


def distinct(chosen: Tensor, rows: int) -> Tensor:
    """Count the experts that the K tokens of each pass go to together: (L, T, k) -> (L, T // K)."""
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
    console: Console,
) -> None:
    """Print what drafts would give on pages, source by source, and how neighbouring tokens share experts.

    Args:
        images: images, folders or PDF files
        draft: sources of drafts, as the setting draft names them
    """
    settings = replace(settings, engine="eager", draft="")
    engine = engine_backend(settings).engine
    pages = list(read(settings, images))
    console.print(f"{len(pages)} pages, {sum(len(tokens) for _, tokens in pages)} tokens; tokens a pass:")
    table = page_table("Draft", "Pages", *(f"K = {rows}" for rows in ROWS), "K chosen", "Faster")
    for name in draft:
        source = drafts_of(replace(settings, draft=name))
        assert source is not None
        encode = engine.checkpoint.tokenizer.encode
        drafted = [(tokens, source.tokens(request, encode)) for request, tokens in pages]
        drafted = [each for each in drafted if each[1] or source.own_text]
        sums = [_sum(drafted, source.own_text, rows) for rows in (*ROWS, None)]
        cells = ("-" if (mean := given.tokens_a_pass) is None else f"{mean:.2f}" for given in sums)
        table.add_row(Name(name), str(len(drafted)), *cells, f"{sums[-1].won or 1:.2f}x")
    console.print(table)
    if chosen := [experts_of(engine, *page) for page in pages if len(page[1]) > min(ROWS)]:
        config = engine.checkpoint.model.config.decoder
        console.print(f"of {config.routed_experts} experts a layer K neighbouring tokens go to (by chance):")
        for rows in ROWS:
            groups = [distinct(each, rows).flatten() for each in chosen if each.shape[1] >= rows]
            if not groups:
                continue
            together = torch.cat(groups).float().mean()
            chance = by_chance(config.routed_experts, config.experts_per_token, rows)
            console.print(f"K = {rows:2}: {together:.1f} ({chance:.1f})")


def _sum(drafted: Sequence[tuple[Tokens, Tokens]], own_text: bool, rows: int | None) -> Given:
    total = Given()
    for tokens, draft in drafted:
        total += simulated(tokens, None if own_text else draft, rows)
    return total
