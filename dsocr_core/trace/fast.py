"""A page read by the fast engine, graphs and all, with its taps on; their copies by the names of a trace.

Letters: M patches of all views, N tokens, C width, k experts a token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from dsocr_core.engine.base import Engine
from dsocr_core.engine.fast.decode import StepGraph
from dsocr_core.engine.fast.graphs import recorder_for
from dsocr_core.engine.fast.ops import Groups
from dsocr_core.engine.fast.prefill import PromptGraphs
from dsocr_core.engine.fast.vision import FastVision
from dsocr_core.engine.fast.weights import pack
from dsocr_core.engine.generate import NO_TOKEN
from dsocr_core.engine.sampling import NgramRule, greedy
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.taps.files import DumpWriter
from dsocr_core.models.taps.hooks import Recorder
from dsocr_core.reading.records import NgramPolicy
from dsocr_core.trace.fast_taps import Event, TappedPrefill, TappedStep, TappedTowers
from dsocr_core.trace.sides import Task, about_engine, weights_of_model


def trace_fast(engine: Engine, task: Task) -> tuple[int, ...]:
    """Read the page as the fast engine does, graphs and all, with the weights of any engine.

    Returns the new tokens. Raises DsocrError.
    """
    model = engine.checkpoint.model
    writer = DumpWriter(task.directory, about_engine(engine, "fast") | task.about)
    recorder = Recorder(writer, task.only, task.check)
    timer = StageTimer(model.device, marks=Marks.NONE)
    with engine.modes():
        page, pixels = engine.take_in(task.request, None, timer)
        prompt = page.prompt.ids
        # One position to spare: the last token must not end the page before its step was seen.
        positions = len(prompt) + task.limit + 2
        weights = pack(model.decoder)
        step = TappedStep(weights, model.config.decoder, positions, engine.rotary_dtype, NO_TOKEN)
        graph = StepGraph(step)

        views = pixels.passes
        towers, prefill = TappedTowers(engine), TappedPrefill(engine)
        recorder.begin_call()
        vision = FastVision(towers).start(views)
        for run in vision.stages:
            run()
        embeddings = prefill.embed(page.prompt, pixels.fused(vision.tokens))  # (N, C)
        prompt_pass = PromptGraphs(prefill, model.config.decoder, recorder_for(model.device))
        keys, values = step.cache.keys[:, 0], step.cache.values[:, 0]
        for _ in range(2):  # of a length that comes again the pass is a graph
            logits = prompt_pass.forward(embeddings, keys, values, step.rotary, prefill.core)
        step.cache.length = 0
        step.cache.advance(len(prompt))
        _record_vision(recorder, model.config, towers, views)
        _record_prompt(recorder, prefill.log, embeddings, model.config.decoder.layers)

        policy = engine.ngram_policy(task.request)
        ngram = NgramPolicy() if task.forced else policy
        rule = NgramRule(policy, prompt)
        tokens = [task.forced[0] if task.forced else greedy(logits, rule.banned())]
        task.on_call(0)
        step.begin((*prompt, tokens[0]), task.limit + 1, ngram)
        eos = engine.checkpoint.tokenizer.eos_token_id
        while len(tokens) < task.limit and (task.forced or tokens[-1] != eos):
            recorder.begin_call()
            graph.replay()
            at = len(prompt) + len(tokens)  # where the step puts its token
            for name, row in step.rows(at - 1):
                recorder.write(name, row)
            token = task.forced[len(tokens)] if task.forced else int(step.tokens[at])
            step.tokens[at] = token
            task.on_call(len(tokens))
            tokens.append(token)
    writer.close(prompt_ids=list(prompt), token_ids=tokens, weights=weights_of_model(engine))
    return tuple(tokens)


# --- logs to names --------------------------------------------------------------------------------


def _record_vision(
    recorder: Recorder, config: ModelConfig, towers: TappedTowers, views: Sequence[Tensor]
) -> None:
    patch = config.sam.patch_size
    patches: Groups = [(view.shape[0], view.shape[2] // patch) for view in views]
    features: Groups = [(count, side // 4) for count, side in patches]
    for number, view in enumerate(views):
        recorder.write(_key("pixels", number), view.permute(0, 2, 3, 1))
    for name, rows in _sam(config, towers.of_sam):
        _split(recorder, name, rows, patches)
    _split(recorder, "sam.out", towers.features, features)
    # CLIP has a class token beside a view's features, an encoder a query for each.
    clip = any(event.kind == "gelu" for event in towers.of_behind)
    beside = [(count, side, 1 if clip else side**2) for count, side in features]
    for name, rows in (_clip if clip else _encoder)(towers.of_behind):
        _split(recorder, name, rows, beside)
    _split(recorder, "projector.in", towers.into_projector, features)
    for number, tokens in enumerate(towers.tokens):
        recorder.write(_key("projector", number), tokens)


def _split(
    recorder: Recorder, name: str, rows: Tensor, groups: Sequence[tuple[int, int] | tuple[int, int, int]]
) -> None:
    """Rows of all views as a tensor of each view size, which is a pass of the eager engine."""
    start = 0
    for number, (count, side, *extra) in enumerate(groups):
        end = start + count * (side**2 + sum(extra))
        recorder.write(_key(name, number), rows[start:end])
        start = end


def _sam(config: ModelConfig, log: Sequence[Event]) -> Iterator[tuple[str, Tensor]]:
    """Take of the last block what comes before its feed-forward; windows have another layout."""
    norms = [event.tensors for event in log if event.kind == "norm"]
    last = config.sam.layers - 1
    yield "sam.embeddings", norms[0]["sum"]
    yield "sam.block0.norm1", norms[0]["normed"]
    for number in range(config.sam.layers):
        name, middle = f"sam.block{number}", norms[1 + 2 * number]
        if number in config.sam.global_attn_indexes:
            yield f"{name}.attn", middle["added"]
        yield f"{name}.mid", middle["sum"]
        yield f"{name}.norm2", middle["normed"]
        if number < last:
            end = norms[2 + 2 * number]
            yield f"{name}.mlp", end["added"]
            yield f"{name}.out", end["sum"]
            yield f"sam.block{number + 1}.norm1", end["normed"]
    yield "sam.neck", norms[-1]["normed"]


def _clip(log: Sequence[Event]) -> Iterator[tuple[str, Tensor]]:
    norms = [event.tensors for event in log if event.kind == "norm"]
    gelus = [event.tensors for event in log if event.kind == "gelu"]
    yield "clip.embeddings", norms[0]["sum"]
    yield "clip.pre_norm", norms[0]["normed"]
    yield "clip.block0.norm1", norms[1]["normed"]
    for number in range(len(gelus)):
        name, middle = f"clip.block{number}", norms[2 + 2 * number]
        yield f"{name}.attn", middle["added"]
        yield f"{name}.mid", middle["sum"]
        yield f"{name}.norm2", middle["normed"]
        yield from ((f"{name}.{part}", tensor) for part, tensor in gelus[number].items())
        if number < len(gelus) - 1:
            end = norms[3 + 2 * number]
            yield f"{name}.fc2", end["added"]
            yield f"{name}.out", end["sum"]
            yield f"clip.block{number + 1}.norm1", end["normed"]


def _encoder(log: Sequence[Event]) -> Iterator[tuple[str, Tensor]]:
    """Take of the last block what comes before its attention: the rest is made of the answers alone."""
    norms, turned, gated = (
        [event.tensors for event in log if event.kind == kind] for kind in ("norm", "qkv", "gated")
    )
    yield "encoder.embeddings", norms[0]["sum"]
    yield "encoder.block0.norm1", norms[0]["normed"]
    for number, inner in enumerate(gated):
        name, middle, end = f"encoder.block{number}", norms[1 + 2 * number], norms[2 + 2 * number]
        yield from ((f"{name}.{part}", turned[number][part]) for part in "qkv")
        if number == len(gated) - 1:
            return
        yield f"{name}.attn", middle["added"]
        yield f"{name}.mid", middle["sum"]
        yield f"{name}.norm2", middle["normed"]
        yield from ((f"{name}.{part}", tensor) for part, tensor in inner.items())
        yield f"{name}.down", end["added"]
        yield f"{name}.out", end["sum"]
        yield f"encoder.block{number + 1}.norm1", end["normed"]


def _record_prompt(recorder: Recorder, log: Sequence[Event], embeddings: Tensor, layers: int) -> None:
    recorder.write("embeddings", embeddings)
    layer, prefix, norms, last = -1, "", 0, embeddings
    for event in log:
        found, name = event.tensors, f"decoder.layer{layer}"
        if event.kind == "norm":
            norms += 1
            if norms == 1:
                recorder.write("decoder.layer0.norm1", found["normed"])
            elif norms % 2 == 0:
                for part, kind in (("attn", "added"), ("mid", "sum"), ("norm2", "normed")):
                    recorder.write(f"{name}.{part}", found[kind])
                prefix = ""
            else:
                recorder.write(f"{name}.{prefix}down", found["added"])
                recorder.write(f"{name}.out", found["sum"])
                last = found["normed"]  # the next layer's norm, or the final one
                if layer + 1 < layers:
                    recorder.write(f"decoder.layer{layer + 1}.norm1", last)
        elif event.kind == "qkv":
            layer += 1
            name = f"decoder.layer{layer}"
        elif event.kind == "experts":
            prefix = "shared."
            ids, order = found["ids"].sort(dim=-1)
            recorder.write(f"{name}.router.ids", ids)
            recorder.write(f"{name}.router.weights", found["weights"].gather(-1, order))
            outputs = found["outputs"]  # (N, k, C)
            each = outputs.gather(1, order[..., None].expand_as(outputs))
            recorder.write(f"{name}.experts", each.flatten(0, 1))
        if event.kind in ("qkv", "mixed", "gated"):
            inner = prefix if event.kind == "gated" else ""
            for part, tensor in found.items():
                recorder.write(f"{name}.{inner}{part}", tensor)
        elif event.kind == "logits":
            recorder.write("norm", last)
            recorder.write("logits", found["logits"])


def _key(name: str, number: int) -> str:
    return f"{name}@{number}" if number else name
