"""``python -m demur.paper.run``: compute the records of the paper's experiments, and nothing else.

For machines that have numpy, scipy and torch but not the packages that draw tables and figures. The records are
brought back, and ``demur reproduce`` draws from them.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence

from demur.datasets import DatasetError
from demur.errors import InputError
from demur.paper.methods import EXPERIMENTS, quick
from demur.paper.plan import make_plan
from demur.paper.problems import DataPlace
from demur.paper.progress import Lines, RunFailedError
from demur.paper.protocol import Experiment
from demur.paper.runner import run_here
from demur.paper.store import Store, StoreError, UnusableFolderError
from demur.training import resolve_device

__all__ = ["chosen_experiments", "main", "parse_settings", "restrict"]


def chosen_experiments(which: str, *, short: bool, settings: Mapping[str, str]) -> list[Experiment]:
    """Return the experiments of a name, "synthetic", "benchmark" or "all", with their settings.

    Raises
    ------
    ValueError
        If there is no such experiment, or no such setting in any of them.

    Examples
    --------
    >>> [one.name for one in chosen_experiments("all", short=True, settings={"n_test": "1000"})]
    ['synthetic', 'benchmark']
    """
    if which not in (*EXPERIMENTS, "all"):
        raise InputError(f"unknown experiment {which!r}; there are {', '.join(EXPERIMENTS)} and all.")
    chosen = [one for name, one in EXPERIMENTS.items() if which in (name, "all")]
    if short:
        chosen = [quick(one) for one in chosen]
    known = [set(vars(one.protocol)) for one in chosen]
    for name in settings:
        if not any(name in names for names in known):
            chosen[0].with_settings({name: settings[name]})
    return [
        one.with_settings({name: text for name, text in settings.items() if name in names})
        for one, names in zip(chosen, known, strict=True)
    ]


def restrict(experiments: Sequence[Experiment], problems: str, methods: str) -> list[Experiment]:
    """Keep some problems and methods, given by their names separated by commas; empty means all.

    Raises
    ------
    ValueError
        If a name is unknown to every experiment.

    Examples
    --------
    >>> [one.name for one in restrict(chosen_experiments("all", short=False, settings={}), "letter,yeast", "CE")]
    ['benchmark']
    """
    wanted_problems, wanted_methods = _names(problems), _names(methods)
    for kind, wanted, known in (
        ("problem", wanted_problems, [name for one in experiments for name in one.problems]),
        ("method", wanted_methods, [method.name for one in experiments for method in one.all_methods]),
    ):
        for name in wanted:
            if name not in known:
                raise InputError(f"unknown {kind} {name!r}; there are {', '.join(dict.fromkeys(known))}.")
    kept = [one.only(problems=wanted_problems, methods=wanted_methods) for one in experiments]
    return [one for one in kept if one.problems and one.all_methods]


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """Read NAME=VALUE texts.

    Examples
    --------
    >>> parse_settings(["epochs=10"])
    {'epochs': '10'}
    """
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set takes NAME=VALUE, got {text!r}.")
        settings[name.strip()] = value.strip()
    return settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the module's command line and return its exit code: 0 done, 1 the work failed, 2 the call is wrong."""
    parser = argparse.ArgumentParser(prog="python -m demur.paper.run", description=__doc__)
    parser.add_argument("which", choices=(*EXPERIMENTS, "all"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", help="folder with the data sets (default: DEMUR_DATA)")
    parser.add_argument("--out", default="results/paper")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings")
    parser.add_argument("--problems", default="", help="data sets or sizes, separated by commas")
    parser.add_argument("--methods", default="", help="methods, separated by commas")
    options = parser.parse_args(arguments)
    try:
        device = resolve_device(options.device)
        experiments = chosen_experiments(options.which, short=options.quick, settings=parse_settings(options.settings))
        place = DataPlace(options.data, stand_ins=options.quick)
        for experiment in restrict(experiments, options.problems, options.methods):
            store = Store(options.out, experiment.name)
            store.check_writable()
            plan = make_plan(experiment, store, place, device_type=device.type, progress=Lines())
            plan.ensure_data()
            run_here(plan, device, Lines())
    except (ValueError, DatasetError, UnusableFolderError) as error:
        print(f"demur: {error}", file=sys.stderr)
        return 2
    except (RunFailedError, StoreError) as error:
        print(f"demur: {error}", file=sys.stderr)
        return 1
    return 0


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


if __name__ == "__main__":
    sys.exit(main())
