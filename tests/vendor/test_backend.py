"""The vendor backend end to end: a worker process, a tiny checkpoint, and everything that goes wrong."""

import ast
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from analytic_model.counted import published_rows, workload_of
from analytic_model.policy import Policy
from analytic_model.predict import predict
from dsocr_core.base.errors import Cancelled
from dsocr_core.models.family import parse_config
from dsocr_core.models.stages import Stage
from dsocr_core.page.compression import compression
from dsocr_core.reading.postprocess import clean_text
from dsocr_core.reading.records import (
    GROUNDING_PROMPT,
    POSTPROCESS_ERROR,
    UNLIMITED,
    OcrRequest,
    Unlimited,
)
from dsocr_core.runs.shapes import Shape
from dsocr_core.vendor.backend import VendorBackend
from dsocr_core.vendor.errors import RemoteCodeNotAllowed, VendorError, VendorFailed
from tests.support.paths import ROOT
from tests.support.seeded_weights import tiny_config, write_seeded_checkpoint

TOKENS = 16


def pid_of(backend: VendorBackend) -> int | None:
    """Process id of the warm worker, None when there is none."""
    worker = backend._worker
    return worker.pid if worker is not None and worker.alive else None


class Watcher:
    """Keeps what it is told, and does something when a stage begins."""

    def __init__(self, at: Stage | None = None, action: Callable[[], None] | None = None) -> None:
        self.events: list[tuple[str, Stage]] = []
        self.streamed = ""
        self._at, self._action = at, action

    def stage_started(self, stage: Stage) -> None:
        self.events.append(("started", stage))
        if stage == self._at and self._action is not None:
            self._action()

    def stage_ended(self, stage: Stage, milliseconds: float) -> None:
        assert milliseconds >= 0
        self.events.append(("ended", stage))

    def text(self, delta: str) -> None:
        self.streamed += delta


def request(
    page: Path, prompt: str = GROUNDING_PROMPT, tokens: int | Unlimited = TOKENS, preset: str = "tiny"
) -> OcrRequest:
    return OcrRequest(page, preset=preset, prompt=prompt, max_new_tokens=tokens)


@pytest.fixture(scope="module")
def direct(checkpoint: Path) -> tuple[Any, Any]:
    model = AutoModel.from_pretrained(
        str(_alias(checkpoint)), _attn_implementation="eager", trust_remote_code=True, use_safetensors=True
    )
    return model.eval().to(torch.bfloat16), AutoTokenizer.from_pretrained(checkpoint)


def test_published_flops_of_a_short_page_grow_to_those_of_a_long_one(
    backend: VendorBackend, page: Path, checkpoint: Path
) -> None:
    """Vision as our core; prefill with logits at every position; a decoded token by the growth of three."""
    short, long = (backend.count_flops(request(page, tokens=tokens)) for tokens in (4, 12))
    assert [len(short["forward"]), len(long["forward"])] == [4, 12]
    config, read = parse_config(tiny_config()), backend.recognize(request(page, tokens=12))
    shape = Shape("tiny", (1, 1), len(read.required_inputs.prompt_ids), 12)
    rows = {row["stage"]: row["flops"] for row in published_rows(tiny_config(), [shape], short)}
    assert rows["decode"] == sum(long["forward"][1:])
    stages = predict(config, workload_of(config, shape), Policy(attention="eager", lm_head="all")).stages
    assert {name: rows[name] for name in ("sam", "clip", "projector")} == {
        name: stages[Stage(name)].cost.flops for name in ("sam", "clip", "projector")
    }
    rotary = 2 * config.decoder.head_dim // 2  # a product for the angles of each position
    assert rows["prefill"] == stages[Stage.PREFILL].cost.flops + rotary * shape.prompt_tokens
    assert rows["decode"] == stages[Stage.DECODE].cost.flops + rotary * 11


@pytest.mark.parametrize(("preset", "mode"), [("small", (640, 640, False)), ("gundam", (1024, 640, True))])
def test_same_as_infer_in_this_process(
    backend: VendorBackend, page: Path, direct: tuple[Any, Any], tmp_path: Path, preset: str,
    mode: tuple[int, int, bool],
) -> None:  # fmt: skip
    model, tokenizer = direct
    seen: dict[str, Any] = {}

    def generate(*args: Any, **kwargs: Any) -> torch.Tensor:
        seen.update(kwargs, ids=args[0])
        asked = {"max_new_tokens": TOKENS, "output_scores": True, "return_dict_in_generate": True}
        answer = type(model).generate(model, *args, **{**kwargs, **asked})
        seen["output"], seen["scores"] = answer.sequences, answer.scores
        return seen["output"]

    model.generate = generate
    base, size, crop = mode
    model.infer(
        tokenizer, prompt=GROUNDING_PROMPT, image_file=str(page), output_path=str(tmp_path / "direct"),
        base_size=base, image_size=size, crop_mode=crop, save_results=True,
    )  # fmt: skip
    del model.generate

    watcher = Watcher()
    result = backend.recognize(request(page, preset=preset), watcher)

    prompt_length = seen["ids"].shape[1]
    new = seen["output"][0, prompt_length:].tolist()
    assert len(set(new)) > 2, "the tokens are too uniform to prove anything"
    assert list(result.token_ids) == new
    assert result.text_raw == tokenizer.decode(new)
    best = [scores[0].topk(2) for scores in seen["scores"]]
    assert [list(step.ids) for step in result.top_two] == [top.indices.tolist() for top in best]
    assert [list(step.logits) for step in result.top_two] == [top.values.tolist() for top in best]
    assert result.finish_reason == "length"
    assert list(result.inputs.prompt_ids) == seen["ids"][0].tolist()
    mask = seen["images_seq_mask"][0].nonzero().flatten()
    assert result.inputs.image_mask == ((mask[0].item(), len(mask)),)
    assert list(result.inputs.grid) == seen["images_spatial_crop"][0].tolist()
    given = result.inputs
    assert (given.tiles_shape, given.global_shape) == tuple(tuple(view.shape) for view in seen["images"][0])
    assert (given.max_new_tokens, given.no_repeat_ngram_size) == (TOKENS, 20)
    assert (given.dtype, given.rotary_dtype, given.attention) == ("bfloat16", "bfloat16", "eager")
    assert result.image_size == (500, 700)
    assert result.environment["overridden"] == "max_new_tokens"
    for name in ("result.mmd", "result_with_boxes.jpg"):
        assert backend._worker is not None
        assert (backend._worker.files / name).read_bytes() == (tmp_path / "direct" / name).read_bytes()
    assert watcher.streamed.strip() == result.text_raw.strip()
    views = 2 if crop else 1
    calls = {timing.stage: timing.calls for timing in result.timings}
    assert calls.keys() == {*Stage} - {Stage.ENCODER, Stage.VISION_FUSION}
    assert calls[Stage.SAM] == calls[Stage.CLIP] == calls[Stage.PROJECTOR] == views
    assert (calls[Stage.PREFILL], calls[Stage.DECODE]) == (1, TOKENS - 1)
    inside = sum(result.milliseconds(stage) for stage in (Stage.SAM, Stage.CLIP, Stage.PROJECTOR))
    assert inside <= result.milliseconds(Stage.PREFILL)
    started = [stage for kind, stage in watcher.events if kind == "started"]
    assert list(dict.fromkeys(started)) == [
        Stage.PREPROCESS, Stage.TOKENIZER, Stage.PREFILL, Stage.SAM, Stage.CLIP, Stage.PROJECTOR,
        Stage.DECODE, Stage.POSTPROCESS,
    ]  # fmt: skip
    assert {stage for kind, stage in watcher.events if kind == "ended"} == set(started)


def test_noise_on_the_standard_streams_disturbs_nothing(backend: VendorBackend, page: Path) -> None:
    quiet = backend.recognize(request(page, "<image>\nNOTHING"))
    pid = pid_of(backend)
    noisy = backend.recognize(request(page, "<image>\nNOISE"))
    assert pid_of(backend) == pid, "a warm worker is kept"
    assert len(quiet.token_ids) == len(noisy.token_ids) == TOKENS
    with pytest.raises(VendorFailed) as failure:
        backend.recognize(request(page, "<image>\nNOISE and RAISE"))
    assert "a child speaks" in failure.value.stderr_tail
    assert "not for you" in failure.value.stderr_tail


def test_what_fails_after_the_text_leaves_the_tokens_and_is_said(
    backend: VendorBackend, page: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result = backend.recognize(request(page, "<image>\nAFTERWARDS"))
    assert len(result.token_ids) == TOKENS and result.text_raw
    assert result.environment[POSTPROCESS_ERROR] == "NameError: name 'line_type' is not defined"
    assert "its tokens are kept" in caplog.text and "page.png" in caplog.text
    assert pid_of(backend) is not None


def test_eval_mode_is_the_published_one(backend: VendorBackend, page: Path) -> None:
    """Another n-gram size of its own, no files, and the text returned."""
    asked = OcrRequest(page, "small", "<image>\nKEEP", TOKENS, 35, eval_mode=True)
    result = backend.recognize(asked)
    assert result.inputs.no_repeat_ngram_size == 35
    assert result.environment["overridden"] == "max_new_tokens"
    returned, files = ast.literal_eval(result.environment[POSTPROCESS_ERROR].removeprefix("ValueError: "))
    assert (" ".join(returned.split()), files) == (" ".join(clean_text(result.text_raw).split()), ["images"])


def test_test_compress_counts_what_the_code_prints(backend: VendorBackend, page: Path) -> None:
    plain = backend.recognize(request(page))
    assert plain.text_tokens is None and compression(plain) is None
    asked = replace(request(page), test_compress=True)
    result = backend.recognize(asked)
    figures = compression(result)
    assert figures is not None and result.token_ids == plain.token_ids
    with pytest.raises(VendorFailed) as failure:  # for what it printed
        backend.recognize(replace(asked, prompt=f"{asked.prompt} RAISE"))
    printed = failure.value.stderr_tail
    assert f"image size:  {figures.image_size}" in printed
    assert f"valid image tokens:  {figures.valid_image_tokens}" in printed
    assert f"output texts tokens (valid):  {figures.text_tokens}" in printed
    assert f"compression ratio:  {figures.ratio}" in printed


@pytest.mark.parametrize(
    ("prompt", "message", "survives"),
    [
        ("RAISE", r"reading page.png: .*RuntimeError: first line second line", True),
        ("LEAVE", "SystemExit", True),
        ("SILENT", "without a call of generate", True),
        ("TWICE", "generate twice", True),
        ("MEMORY", "ran out of memory", False),
    ],
)
def test_code_that_does_not_behave_like_infer_fails_in_one_line(
    backend: VendorBackend, page: Path, prompt: str, message: str, survives: bool
) -> None:
    """An exception on a CPU leaves the model usable; without memory the worker is replaced."""
    backend.recognize(request(page))
    pid = pid_of(backend)
    with pytest.raises(VendorFailed, match=message) as failure:
        backend.recognize(request(page, f"<image>\n{prompt}"))
    assert "Traceback" in failure.value.stderr_tail
    assert pid_of(backend) == (pid if survives else None)
    assert backend.recognize(request(page)).token_ids


def test_killed_worker_is_an_error_and_the_next_page_works(backend: VendorBackend, page: Path) -> None:
    before = backend.recognize(request(page))
    pid = pid_of(backend)
    assert pid is not None
    with pytest.raises(VendorFailed, match="ended by SIGKILL; the system kills so when memory runs out"):
        backend.recognize(
            request(page, tokens=UNLIMITED), Watcher(Stage.DECODE, lambda: os.kill(pid, signal.SIGKILL))
        )
    assert pid_of(backend) is None
    after = backend.recognize(request(page))
    assert after.token_ids == before.token_ids
    assert pid_of(backend) != pid


def test_code_that_does_not_listen_is_ended(
    backend: VendorBackend, page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.recognize(request(page))
    cancel = threading.Event()
    with pytest.raises(Cancelled):
        backend.recognize(request(page, "<image>\nHANG"), Watcher(Stage.PREPROCESS, cancel.set), cancel)
    assert pid_of(backend) is None
    backend.recognize(request(page))
    monkeypatch.setattr(backend, "timeout_s", 0.3)
    with pytest.raises(VendorFailed, match=r"within 0\.3 s"):
        backend.recognize(request(page, "<image>\nHANG"))
    assert pid_of(backend) is None


def test_cancel_between_tokens_keeps_the_worker(backend: VendorBackend, page: Path) -> None:
    before = backend.recognize(request(page))
    pid = pid_of(backend)
    cancel = threading.Event()
    with pytest.raises(Cancelled):
        backend.recognize(request(page, tokens=UNLIMITED), Watcher(Stage.DECODE, cancel.set), cancel)
    assert pid_of(backend) == pid
    assert backend.recognize(request(page)).token_ids == before.token_ids


def test_an_interrupted_wait_ends_the_worker(backend: VendorBackend, page: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backend.recognize(request(page), Watcher(Stage.DECODE, interrupt))
    assert pid_of(backend) is None


# --- permission ------------------------------------------------------------------------------------


def test_foreign_code_does_not_run_without_permission(
    checkpoint: Path, page: Path, interpreter: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    foreign = write_seeded_checkpoint(tiny_config(), tmp_path / "foreign")
    with (foreign / "modeling_deepseekocr.py").open("a") as code:
        code.write(f"\nopen({str(marker)!r}, 'w')\n")
    for trusted in ((), (checkpoint,), (tmp_path,)):
        backend = VendorBackend(foreign, interpreter=interpreter, trusted_directories=trusted)
        with pytest.raises(RemoteCodeNotAllowed, match="foreign"):
            backend.recognize(request(page))
        assert pid_of(backend) is None
    assert not marker.exists()
    backend = VendorBackend(
        foreign, interpreter=interpreter, trusted_directories=(tmp_path / "x" / ".." / "foreign",)
    )
    try:
        backend.recognize(request(page, tokens=1))
    finally:
        backend.close()
    assert marker.exists()


SUPPORTS = "supports_float32 = True"


@pytest.mark.parametrize(
    ("dtype", "code", "becomes", "message"),
    [
        ("bfloat16", SUPPORTS, f"{SUPPORTS}\n    def f(self, x): return x.cuda()", "cannot run on 'cpu'"),
        ("float32", SUPPORTS, "pass", "--dtype bfloat16"),
        ("float32", SUPPORTS, "supports_float32 = False", "written for bfloat16"),
        ("float32", "", "", None),
    ],
    ids=["asks for a GPU", "never heard of float32", "refuses float32", "supports it"],
)
def test_what_the_code_cannot_do_is_refused(
    page: Path, interpreter: Path, tmp_path: Path, dtype: str, code: str, becomes: str, message: str | None
) -> None:
    foreign = write_seeded_checkpoint(tiny_config(), tmp_path / "foreign")
    file = foreign / "modeling_deepseekocr.py"
    file.write_text(file.read_text().replace(code, becomes))
    backend = VendorBackend(foreign, dtype=dtype, interpreter=interpreter, trusted_directories=(foreign,))
    if message is None:
        inputs = backend.recognize(request(page, tokens=2)).required_inputs
        assert (inputs.dtype, inputs.rotary_dtype) == ("float32", "float32")
    else:
        with pytest.raises(VendorError, match=message):
            backend.recognize(request(page))
        assert pid_of(backend) is None
    backend.close()


# --- the process ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "error", "message"),
    [
        ("echo 'Python 2.7 greets you'; cat", VendorFailed, "not understood"),
        ("""echo '{"type":"Text","number":0,"delta":"a"}'; cat""", VendorFailed, "not understood"),
        ("head -c 17000000 /dev/zero; cat", VendorFailed, "more than 16777216 bytes"),
        ("echo no torch here >&2; exit 4", VendorFailed, "exit code 4"),
        ("cat > /dev/null", VendorFailed, r"loading .*: no result within 0\.5 s; the worker was ended"),
        ("", VendorFailed, "python: cannot be started"),
    ],
)
def test_an_interpreter_that_is_no_worker(
    checkpoint: Path, page: Path, tmp_path: Path, script: str, error: type[VendorError], message: str
) -> None:
    python, limit_s = tmp_path / "python", 0.5 if script == "cat > /dev/null" else 60.0
    if script:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    backend = VendorBackend(
        checkpoint, interpreter=python, timeout_s=limit_s, trusted_directories=(checkpoint,)
    )
    with pytest.raises(error, match=message) as failure:
        backend.recognize(request(page))
    assert pid_of(backend) is None
    assert ("exit 4" in script) == ("no torch here" in failure.value.stderr_tail)


def test_worker_dies_with_its_caller(checkpoint: Path, page: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from dsocr_core.reading.records import OcrRequest\n"
        "from dsocr_core.vendor.backend import VendorBackend\n"
        "checkpoint, page = map(Path, sys.argv[1:])\n"
        "backend = VendorBackend(checkpoint, trusted_directories=(checkpoint,))\n"
        "backend.recognize(OcrRequest(page, 'small', max_new_tokens=1))\n"
        "print(backend._worker.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", script, str(checkpoint), str(page)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    with caller:
        assert caller.stdout is not None
        worker = os.pidfd_open(int(caller.stdout.readline()))
        try:
            caller.kill()
            ended, _, _ = select.select([worker], [], [], 60)
        finally:
            os.close(worker)
    assert ended, "the worker outlived its caller"
    assert list(tmp_path.iterdir()) == [], "temporary files stayed behind"


def _alias(checkpoint: Path) -> Path:
    """The checkpoint under a name that transformers can import."""
    alias = checkpoint.parent / "tiny_v1"
    if not alias.exists():
        alias.symlink_to(checkpoint)
    return alias
