"""From the store to files: tables, figures and pages. Computed are means, and what follows from known eta."""

import io
import os
from collections.abc import Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

from demur.array_types import ByName
from demur.datasets import BayesSummary
from demur.errors import MissingExtraError, UserError
from demur.paper.claims import BENCHMARK_CLAIMS, judge, synthetic_claims
from demur.paper.experiments import Experiment, SyntheticProtocol
from demur.paper.population import population_errors
from demur.paper.problems import STAND_IN_NOTE, DataPlace, gaussians_of, identify
from demur.paper.records import Store, StoreError
from demur.paper.result_page import Outcome, modern_page, page
from demur.paper.result_tables import TITLES, Published, benchmark_csv, full_table, synthetic_csv
from demur.paper.trial_jobs import matching
from demur.paper.trial_means import Numbers, Results, collect
from demur.whole_file import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["NothingToShowError", "benchmark_figure", "check_matplotlib", "render", "synthetic_figure", "write_outputs"]


FIGURE_2 = (("satimage", "yeast", "letter"), ("APC+log", "MPC+log", "OVA+log", "CE", "OVA+hin"))
"""Three data sets and five methods, as in the paper's Figure 2."""

FIGURE_1_COSTS = (0.05, 0.2, 0.4)


class NothingToShowError(UserError):
    """The store has no record of the experiments asked for."""


def write_outputs(
    out: str | os.PathLike[str],
    experiments: Sequence[Experiment],
    published: Published,
    place: DataPlace | None = None,
) -> Outcome:
    """Write tables, figures and the page for the records in a folder, and return what they were made from.

    Parameters
    ----------
    out : path
    experiments : sequence of Experiment
        Those without any record are left out.
    published : Published
    place : DataPlace, optional
        If given, only records made with these data count; otherwise the records say which they are.

    Raises
    ------
    NothingToShowError
        If there is no record at all.
    MissingExtraError
        If matplotlib is not installed.
    StoreError
        If a file could not be written.
    """
    check_matplotlib()
    outcome = _gather(out, experiments, published, place)
    files: dict[str, str | bytes] = {}
    if outcome.benchmark is not None or outcome.synthetic is not None:
        files |= {"README.md": page(outcome), "tables.md": _tables_page(outcome)}
    if outcome.modern is not None:
        alone = outcome.benchmark is None and outcome.synthetic is None
        files["README.md" if alone else "modern.md"] = modern_page(outcome.modern, outcome.warning())
        files["modern.csv"] = benchmark_csv(outcome.modern, Numbers())
    if outcome.benchmark is not None:
        files["benchmark.csv"] = benchmark_csv(outcome.benchmark, outcome.published.benchmark)
    if outcome.synthetic is not None:
        files["synthetic.csv"] = synthetic_csv(outcome.synthetic, outcome.published.synthetic, outcome.bayes)
    files |= _figures(outcome)
    for name, content in files.items():
        _write(Path(out) / name, content)
    return outcome


def _gather(
    out: str | os.PathLike[str], experiments: Sequence[Experiment], published: Published, place: DataPlace | None
) -> Outcome:
    found: dict[str, Results] = {}
    for experiment in experiments:
        identities = None
        if place is not None:
            identities = {problem: identify(problem, experiment.protocol, place) for problem in experiment.problems}
        results = collect(experiment, matching(experiment, Store(out, experiment.name), identities))
        if results.records:
            found[experiment.name] = results
    if not found:
        raise NothingToShowError(f"{out} has no record of this; run the command without --tables-only first.")
    benchmark, synthetic = found.get("benchmark"), found.get("synthetic")
    bayes, population, claims, rescaled = {}, {}, [], None
    if synthetic is not None:
        protocol = synthetic.experiment.protocol
        assert isinstance(protocol, SyntheticProtocol)
        gaussians = gaussians_of(protocol)
        bayes = {cost: gaussians.bayes_summary(cost) for cost in protocol.costs}
        population = population_errors(synthetic.experiment)
        claims += judge(synthetic_claims(bayes, synthetic.problems, population), synthetic, published.synthetic)
    if benchmark is not None:
        stand_ins = [problem for problem, note in benchmark.notes.items() if note == STAND_IN_NOTE]
        published = replace(published, benchmark=published.benchmark.without(stand_ins))
        rescaled = _rescaled(out, benchmark.experiment)
        claims += judge(BENCHMARK_CLAIMS, benchmark, published.benchmark, rescaled)
    return Outcome(benchmark, synthetic, bayes, population, published, claims, rescaled, found.get("modern"))


def _rescaled(out: str | os.PathLike[str], experiment: Experiment) -> Results | None:
    """Return the benchmark on features scaled to [-1, 1], where the store has all of it beside the standard one."""
    if experiment.protocol.scaling != "standard":
        return None
    other = experiment.with_settings({"scaling": "range"})
    results = collect(other, matching(other, Store(out, other.name)))
    return results if results.records and not results.missing else None


def _tables_page(outcome: Outcome) -> str:
    """Return tables.md: the three full tables of the paper's appendix, and those of the four more losses."""
    sections = ["# All tables", outcome.warning()]
    part = outcome.benchmark
    if part is not None:
        paper = [method.name for method in part.experiment.methods]
        more = ["CE", *(method.name for method in part.experiment.more)]
        for number, (metric, title) in enumerate(TITLES.items(), start=6):
            for heading, methods in ((f"Table {number}: {title}", paper), (f"More losses: {title}", more)):
                table = full_table(
                    metric,
                    part.numbers(methods),
                    outcome.published.benchmark if methods == paper else Numbers(),
                    part.problems,
                    part.experiment.protocol.costs,
                    methods,
                    part.notes,
                )
                sections.append(f"## {heading}\n\n{_explanation(metric)}\n\n{table}")
    part = outcome.synthetic
    if part is not None:
        methods = [method.name for method in part.experiment.methods]
        table = full_table(
            "zoc_risk",
            part.numbers(methods),
            Numbers(),
            part.problems,
            part.experiment.protocol.costs,
            methods,
            part.notes,
        )
        sections.append(f"## Synthetic data: 0-1-c risk by training points per class\n\n{table}")
    return "\n\n".join(section for section in sections if section) + "\n"


def _explanation(metric: str) -> str:
    text = "Mean (standard deviation) over trials; bold: lowest 0-1-c risk, or equivalent to it."
    if metric == "accepted_accuracy":
        text += (
            ' "-": every trial rejected everything. A trial that did has no accuracy and is left out of the mean; '
            'the paper prints "-" as soon as there is one.'
        )
    return text


def _figures(outcome: Outcome) -> dict[str, bytes]:
    drawn = {}
    suffix = " (quick run)" if outcome.quick else ""
    if outcome.synthetic is not None:
        part = outcome.synthetic
        methods = [method.name for method in part.experiment.methods]
        costs = [cost for cost in FIGURE_1_COSTS if cost in outcome.bayes] or list(outcome.bayes)[:3]
        title = f"Figure 1: 0-1-c risk on synthetic data against training size{suffix}"
        drawn["figure-1"] = synthetic_figure(part.numbers(methods), outcome.bayes, part.problems, methods, costs, title)
    if outcome.benchmark is not None:
        part = outcome.benchmark
        methods = [method.name for method in part.experiment.methods]
        numbers, costs = part.numbers(methods), list(part.experiment.protocol.costs)
        some = [problem for problem in FIGURE_2[0] if problem in part.problems] or part.problems
        title = f"Figure 2: 0-1-c risk against cost, standard error shaded{suffix}"
        drawn["figure-2"] = benchmark_figure(numbers, some, FIGURE_2[1], costs, part.notes, title)
        title = f"Figure 4: 0-1-c risk against cost, all data sets and methods{suffix}"
        drawn["figure-4"] = benchmark_figure(numbers, part.problems, methods, costs, part.notes, title)
    return {f"figures/{name}.{kind}": render(figure, kind) for name, figure in drawn.items() for kind in ("png", "svg")}


def _write(path: Path, content: str | bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content, overwrite=True)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}. Make room, then run the command again."
        ) from error


STYLES: dict[str, ByName] = {
    "APC+log": {"color": "#E69F00", "linestyle": "--", "marker": "o"},
    "APC+exp": {"color": "#B97A00", "linestyle": "--", "marker": "s"},
    "MPC+log": {"color": "#D55E00", "linestyle": "--", "marker": "^"},
    "OVA+log": {"color": "#0072B2", "linestyle": "-", "marker": "v"},
    "OVA+exp": {"color": "#56B4E9", "linestyle": "-", "marker": "D"},
    "CE": {"color": "#009E73", "linestyle": "-", "marker": "o", "linewidth": 2.5},
    "OVA+hin": {"color": "#CC79A7", "linestyle": ":", "marker": "x"},
    "APC+log+acc": {"color": "#E69F00", "linestyle": "--", "marker": "o", "alpha": 0.6},
    "APC+log+rej": {"color": "#E69F00", "linestyle": ":", "marker": "o", "alpha": 0.6},
    "APC+exp+acc": {"color": "#B97A00", "linestyle": "--", "marker": "s", "alpha": 0.6},
    "APC+exp+rej": {"color": "#B97A00", "linestyle": ":", "marker": "s", "alpha": 0.6},
    "MPC+log+acc": {"color": "#D55E00", "linestyle": "--", "marker": "^"},
    "MPC+log+rej": {"color": "#D55E00", "linestyle": ":", "marker": "^"},
}


def check_matplotlib() -> None:
    """Refuse to go on where nothing can be drawn.

    Raises
    ------
    MissingExtraError
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            'the figures need matplotlib: pip install "demur[paper]". Without it, --records-only computes the records '
            "and draws nothing."
        ) from error


def synthetic_figure(
    numbers: Numbers,
    bayes: dict[float, BayesSummary],
    sizes: Sequence[str],
    methods: Sequence[str],
    costs: Sequence[float],
    title: str,
) -> "Figure":
    """Draw the test risk against the training size, a panel per cost, with the best possible risk: Figure 1."""
    figure, panels = _panels(len(costs), title)
    for panel, cost in zip(panels, costs, strict=True):
        for method in methods:
            found = [numbers.mean("zoc_risk", size, cost, method) for size in sizes]
            means = [nan if mean is None else mean for mean in found]
            panel.plot([int(size) for size in sizes], means, label=method, markersize=4, **STYLES.get(method, {}))
        panel.axhline(bayes[cost].risk.value, color="black", linewidth=1, label="Bayes-optimal")
        panel.set(xscale="log", xlabel="training points per class", title=f"c = {cost:g}")
    panels[0].set_ylabel("0-1-c risk on test data")
    _legend(figure, panels[0])
    return figure


def benchmark_figure(
    numbers: Numbers,
    problems: Sequence[str],
    methods: Sequence[str],
    costs: Sequence[float],
    notes: dict[str, str],
    title: str,
) -> "Figure":
    """Draw the test risk against the cost, a panel per data set, standard errors shaded: Figures 2 and 4."""
    figure, panels = _panels(len(problems), title)
    for panel, problem in zip(panels, problems, strict=True):
        for method in methods:
            found = [(cost, numbers.get("zoc_risk", problem, cost, method)) for cost in costs]
            points = [
                (cost, value.mean, (value.std or 0) / value.n**0.5)
                for cost, value in found
                if value is not None and value.mean is not None
            ]
            if not points:
                continue
            x, y, error = zip(*points, strict=True)
            style = STYLES.get(method, {})
            panel.plot(x, y, label=method, markersize=4, **style)
            low, high = [a - b for a, b in zip(y, error, strict=True)], [a + b for a, b in zip(y, error, strict=True)]
            panel.fill_between(x, low, high, color=style.get("color"), alpha=0.15, linewidth=0)
        note = notes.get(problem, "")
        panel.set(xlabel="rejection cost c", title=problem)
        if note:
            panel.text(0.5, -0.24, note, transform=panel.transAxes, ha="center", fontsize=7)
    panels[0].set_ylabel("0-1-c risk on test data")
    _legend(figure, panels[0])
    return figure


def render(figure: "Figure", kind: str) -> bytes:
    """Return the figure as "png" or "svg"; the same figure always gives the same bytes."""
    from matplotlib import rc_context

    content = io.BytesIO()
    with rc_context({"svg.hashsalt": "demur", "svg.fonttype": "none"}):
        metadata: dict[str, str | None] = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(content, format=kind, dpi=150, metadata=metadata)
    return content.getvalue()


def _panels(number: int, title: str) -> tuple["Figure", list["Axes"]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6 * number, 4.4), layout="constrained")
    panels = list(figure.subplots(1, number, squeeze=False)[0])
    figure.suptitle(title, fontsize=10)
    return figure, panels


def _legend(figure: "Figure", panel: "Axes") -> None:
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5), fontsize=8, frameon=False)
