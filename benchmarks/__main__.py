"""``python -m benchmarks``: run every benchmark, or those named on the command line."""

import argparse
import importlib

ALL = (
    "training",
    "recipe",
    "theory",
    "curves",
    "intervals",
    "losses",
    "overhead",
    "auto",
    "mixed",
    "budget",
    "predict",
    "service",
    "rooms",
    "monitoring",
    "guarantees",
    "calibration",
    "novelty",
    "text",
    "outputs",
    "cascade",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", default=ALL, help=f"which to run, out of {', '.join(ALL)} (default: all)")
    arguments, rest = parser.parse_known_args()
    for name in arguments.names:
        if name not in ALL:
            parser.error(f"no benchmark is called {name!r}; there are {', '.join(ALL)}")
        importlib.import_module(f"benchmarks.{name}").main(rest)


if __name__ == "__main__":
    main()
