"""The ``cuvil`` command: demo, compile, inspect, run."""

from __future__ import annotations

import argparse
import sys
from typing import Any, cast

import cuvil


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; the exit status."""
    options = make_parser().parse_args(arguments)
    if options.threads is not None:
        cuvil.set_num_threads(options.threads)
    try:
        status: int = options.run(options)
        return status
    except (cuvil.CompileError, cuvil.LoadError, OSError, ValueError, TypeError) as error:
        print(f"cuvil: {error}", file=sys.stderr)
        return 1


def opt() -> int:
    """``cuvil-opt``: passes on the text form of graphs (see ``cuvil-opt --help``)."""
    from cuvil import cuvil_native

    arguments = sys.argv[1:]
    tells_only = any(argument in {"--help", "--list-ops"} for argument in arguments)
    needs_input = not tells_only and all(argument.startswith("--") for argument in arguments)
    status, output, errors = cuvil_native.opt(arguments, sys.stdin.read() if needs_input else "")
    sys.stdout.write(output)
    sys.stderr.write(errors)
    return int(status)


def make_parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    parser = argparse.ArgumentParser(prog="cuvil", description="Compiles trained models to native code and runs them.")
    parser.add_argument("--version", action="version", version=f"cuvil {cuvil.__version__}")
    parser.add_argument("--threads", type=int, help="threads of a run (default: CUVIL_NUM_THREADS, else all cores)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="compile the classifier that ships with Cuvil and try it")
    demo.set_defaults(run=_demo)

    build = commands.add_parser("compile", help="compile an ONNX model to a file that runs without the compiler")
    build.add_argument("model", help="an ONNX file")
    build.add_argument("-o", "--output", required=True, metavar="FILE.so", help="the compiled model")
    build.add_argument("--target", default="", help='"x86-64-v3", "x86-64-v4", "generic" (default: this machine)')
    build.add_argument("--precision", default="default", choices=("default", "strict"), help="see cuvil.compile")
    build.add_argument("--tune", action="store_true", help="measure schedules of each kernel and take the fastest")
    build.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=SIZE,SIZE,…",
        help="sizes of an input: numbers, or names for sizes that vary; repeat for each",
    )
    build.set_defaults(run=_compile)

    inspect = commands.add_parser("inspect", help="show a model's inputs, outputs, kernels and memory")
    inspect.add_argument("model", help="an ONNX file or a compiled model")
    inspect.set_defaults(run=_inspect)

    run = commands.add_parser("run", help="run a model once on arrays from files")
    run.add_argument("model", help="an ONNX file or a compiled model")
    run.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]FILE.npy",
        help="an input, in the model's order unless named; repeat for each. A .npz file gives all its arrays by name",
    )
    run.add_argument("--output", metavar="FILE.npz", help="write the outputs here (default: print a summary)")
    run.set_defaults(run=_run)
    return parser


def _demo(options: argparse.Namespace) -> int:
    from cuvil.demo import run_demo

    run_demo()
    return 0


def _compile(options: argparse.Namespace) -> int:
    specs = []
    for item in options.shape:
        name, _, sizes = item.rpartition("=")
        shape = tuple(int(size) if size.isdigit() else size for size in sizes.split(",") if size)
        specs.append((name, shape, "float32"))  # the element type is the model's own
    model = cuvil.compile(
        options.model, specs or None, target=options.target, precision=options.precision, tune=options.tune
    )
    model.save(options.output)
    memory = model.memory()
    sizes = f"{memory['code_bytes']:,} bytes of code, {memory['weight_bytes']:,} of weights"
    print(f"{options.output}: {model.target}, {sizes}")
    return 0


def _open(path: str) -> cuvil.CompiledFunction:
    """A compiled model's file loaded, an ONNX file compiled."""
    with open(path, "rb") as file:
        compiled = file.read(4) == b"\x7fELF"
    return cuvil.load(path) if compiled else cuvil.compile(path)


def _inspect(options: argparse.Namespace) -> int:
    from cuvil.demo import format_memory

    model = _open(options.model)
    for kind, values in (("inputs", model.inputs), ("outputs", model.outputs)):
        print(kind)
        for value in values:
            print(f"  {value}")
    print("kernels")
    print(model.explain())
    print("memory")
    print(format_memory(model.memory()))
    return 0


def _run(options: argparse.Namespace) -> int:
    import numpy as np

    model = _open(options.model)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for item in options.input:
        name, equals, path = item.rpartition("=")
        loaded = np.load(path)
        if equals:
            named[name] = loaded
        elif isinstance(loaded, np.ndarray):
            positional.append(loaded)
        else:
            named.update({key: loaded[key] for key in loaded.files})
    result = model(*positional, **named)
    if isinstance(result, dict):
        outputs = {str(name): np.asarray(value) for name, value in result.items()}
    else:
        values = result if isinstance(result, (tuple, list)) else (result,)
        outputs = {f"output_{index}": np.asarray(value) for index, value in enumerate(values)}
    if options.output:
        np.savez(options.output, **cast(Any, outputs))
    else:
        for name, value in outputs.items():
            print(f"{name}: {value.dtype} {list(value.shape)}")
            print(value)
    return 0


if __name__ == "__main__":
    sys.exit(main())
