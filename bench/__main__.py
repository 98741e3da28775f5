"""``python -m bench MODEL… [--engines …] [--threads …] [--json FILE] [--plot DIR]``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench import engines, report, runner

MODELS = (
    "resnet18",
    "resnet50",
    "mobilenetv2",
    "mobilenetv3_large",
    "efficientnet_b0",
    "convnext_tiny",
    "vit_b16",
    "bert_base",
    "gpt2_prefill",
    "gpt2_decode",
    "lstm",
    "mlp",
)
DEFAULT_ENGINES = "cuvil,eager,torchscript,inductor,ort,openvino"


def make_parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures inference engines side by side: one process each, in turns, samples that waited for a "
        "core dropped.",
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; all if none is given")
    parser.add_argument("--engines", default=DEFAULT_ENGINES, help=f"of {', '.join(engines.REQUIRES)}")
    parser.add_argument("--threads", default="1", help="comma-separated thread counts, each measured by itself")
    parser.add_argument("--rounds", type=int, default=12, help="turns each engine gets")
    parser.add_argument("--seconds", type=float, default=0.25, help="length of a turn")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--plot", type=Path, help="write PNG and HTML into this directory (needs matplotlib)")
    parser.add_argument("--tiny", action="store_true", help="cut-down models, to try the benchmark itself")
    parser.add_argument("--verbose", action="store_true", help="show what the engines print")
    parser.add_argument("--replot", type=Path, metavar="FILE", help="only show and plot the results in FILE")
    return parser


def main() -> int:
    parser = make_parser()
    arguments = parser.parse_args()

    def say(message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    if arguments.replot:
        document = json.loads(arguments.replot.read_text(encoding="utf-8"))
    else:
        plan = runner.Plan(
            models=arguments.models or list(MODELS),
            engines=arguments.engines.split(","),
            threads=[int(count) for count in arguments.threads.split(",")],
            rounds=arguments.rounds,
            seconds=arguments.seconds,
            tiny=arguments.tiny,
            verbose=arguments.verbose,
        )
        for kind, given, known in (("model", plan.models, MODELS), ("engine", plan.engines, engines.REQUIRES)):
            for name in given:
                if name not in known:
                    parser.error(f"no {kind} called {name!r}; there are {', '.join(known)}")
        document = runner.run(plan, say)
    print(report.table(document))
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if arguments.plot:
        try:
            for path in report.plot(document, arguments.plot):
                say(f"wrote {path}")
        except ImportError:
            say("plots: skipped, matplotlib isn't installed")
    return 0 if document["results"] else 1


if __name__ == "__main__":
    sys.exit(main())
