"""`python -m data.mini.training train | evaluate | held-out | samples | tokenizer`."""

import argparse
import json
from pathlib import Path

MINI = Path(__file__).parents[1]
SAMPLES = MINI.parent / "samples"
# Named here too, so that help comes without loading torch; a test holds them to their homes.
PRESET_NAMES = ("tiny", "small", "base", "large", "gundam")
PROMPT_NAMES = ("grounding", "free_ocr")


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give 1 or more")
    return number


def train(arguments: argparse.Namespace) -> None:
    from data.mini.training.train import Trainer, TrainSettings

    names = TrainSettings.__dataclass_fields__
    Trainer(TrainSettings(**{k: v for k, v in vars(arguments).items() if k in names})).run()


def evaluate(arguments: argparse.Namespace) -> None:
    import torch

    from data.mini.training.evaluate import evaluate as evaluate_pages
    from data.mini.training.evaluate import evaluate_samples, load_for_evaluation, say_to_stderr
    from data.mini.training.held_out import default_workers
    from data.mini.training.markup import Prompt
    from data.mini.training.views import PRESETS

    presets = tuple(PRESETS) if "all" in arguments.preset else tuple(dict.fromkeys(arguments.preset))
    prompts = tuple(each for each in Prompt if each.name.lower() in arguments.prompt)
    dtype = getattr(torch, arguments.dtype)
    model = load_for_evaluation(arguments.checkpoint, arguments.device, dtype)
    if arguments.samples is not None:
        scores = evaluate_samples(model, arguments.samples, presets, prompts, say_to_stderr)
    else:
        workers = default_workers() if arguments.workers is None else arguments.workers
        scores = evaluate_pages(
            model, presets, prompts, arguments.pages, arguments.batch, workers, say_to_stderr
        )
    print(scores.table())
    text = json.dumps(scores.as_json())
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n", encoding="utf-8")


def held_out(arguments: argparse.Namespace) -> None:
    from data.mini.training.held_out import default_workers, write_held_out

    workers = default_workers() if arguments.workers is None else arguments.workers
    write_held_out(arguments.preset, arguments.pages, arguments.out, workers)


def samples(arguments: argparse.Namespace) -> None:
    from data.mini.training.samples import write_samples

    write_samples(arguments.out)


def tokenizer(arguments: argparse.Namespace) -> None:
    from data.mini.training.tokenizer import write_tokenizer

    write_tokenizer(arguments.out)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m data.mini.training", description=__doc__)
    commands = parser.add_subparsers(required=True)

    command = commands.add_parser("train", help="train from scratch, or on from shipped shards")
    command.set_defaults(run=train)
    command.add_argument("--out", type=Path, required=True, help="where the shards go")
    command.add_argument("--seconds", type=float, required=True, help="length of the run with compilation")
    command.add_argument("--steps", type=int, default=10**9)
    command.add_argument("--start-from", type=Path, help="a checkpoint directory to go on from")
    command.add_argument("--seed", type=int, default=1)
    command.add_argument("--only", default="", help="train the modes of this name alone, such as gundam")
    command.add_argument("--size", type=float, default=1.0, help="of a step against the usual pages")
    command.add_argument("--learning-rate", type=float, default=8e-4)
    command.add_argument("--warm-up-steps", type=int, default=400)
    command.add_argument("--first-difficulty", type=float, default=0.25)
    command.add_argument("--full-difficulty-at", type=float, default=0.35)
    command.add_argument(
        "--reading-weight", type=float, default=1.0, help="of the dense supervision at first"
    )
    command.add_argument("--fine-print", type=float, default=0.35, help="share of pages of the smallest type")
    command.add_argument("--free-ocr-share", type=float, default=0.4)
    command.add_argument("--pool-chunks", type=int, default=96)
    command.add_argument("--workers", type=int, default=15)
    command.add_argument("--checkpoint-seconds", type=float, default=240)
    command.add_argument("--device", default="cuda")
    command.add_argument("--no-compile", dest="compiled", action="store_false")

    command = commands.add_parser("evaluate", help="box F1 and character error rate on held-out pages")
    command.set_defaults(run=evaluate)
    command.add_argument("--checkpoint", type=Path, default=MINI)
    command.add_argument(
        "--preset", nargs="+", choices=(*PRESET_NAMES, "all"), default=["small", "base", "gundam"]
    )
    command.add_argument("--prompt", nargs="+", choices=PROMPT_NAMES, default=list(PROMPT_NAMES))
    command.add_argument("--pages", type=positive, default=200, help="of each preset")
    command.add_argument("--batch", type=positive, default=100, help="pages decoded at a time")
    command.add_argument(
        "--workers", type=positive, help="processes that draw pages; the scores stay the same"
    )
    command.add_argument("--device", default="cpu")
    command.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    command.add_argument("--json", type=Path, help="a file for the figures, besides the last line printed")
    command.add_argument("--samples", type=Path, nargs="?", const=SAMPLES, help="score sample pages instead")

    command = commands.add_parser("held-out", help="write held-out pages with their truth")
    command.set_defaults(run=held_out)
    command.add_argument("--preset", choices=PRESET_NAMES, required=True)
    command.add_argument("--pages", type=positive, default=50)
    command.add_argument("--out", type=Path, required=True)
    command.add_argument(
        "--workers", type=positive, help="processes that draw pages; the pages stay the same"
    )

    for name, function, default in (("samples", samples, SAMPLES), ("tokenizer", tokenizer, MINI)):
        command = commands.add_parser(name, help=f"write the {name} files anew")
        command.set_defaults(run=function)
        command.add_argument("--out", type=Path, default=default)

    arguments = parser.parse_args()
    try:
        arguments.run(arguments)
    except (ValueError, OSError) as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
