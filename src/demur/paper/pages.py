"""Tables and pages of results: the paper's experiments beside the published figures, and every loss by one protocol."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from scipy.stats import rankdata

from demur.datasets import BayesSummary
from demur.datasets.uci import SOURCES
from demur.errors import InputError
from demur.losses import get
from demur.paper.claims import BENCHMARK_CLAIMS, SYNTHETIC_CLAIMS, Finding, Judged, Known, judge, list_of
from demur.paper.experiments import Experiment, SyntheticProtocol, published_benchmark
from demur.paper.figures import check_matplotlib, draw_figures
from demur.paper.population import PopulationErrors, population_errors
from demur.paper.problems import STAND_IN_NOTE, DataPlace, gaussians_of, training_rows
from demur.paper.records import Store, trace
from demur.paper.trial_jobs import matching
from demur.paper.trial_means import METRICS, TEST, Numbers, Published, Results, Value, agreement, collect
from demur.theory import check_calibration
from demur.whole_file import write_whole

BAYES = "Bayes"
"""Name of the Bayes-optimal rule in tables."""

COLUMNS = ("metric", "dataset", "cost", "method", "mean", "std", "published_mean", "published_std")
TITLES = {
    "zoc_risk": "0-1-c risk",
    "accepted_accuracy": "accuracy on accepted data",
    "rejection_ratio": "rejection ratio",
}


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown.

    Examples
    --------
    >>> print(markdown_table(["loss", "risk"], [["CE", "0.1"]]))
    | loss | risk |
    |---|---|
    | CE | 0.1 |
    """
    lines = [f"| {' | '.join(headings)} |".replace("|  |", "| |"), "|" + "---|" * len(headings)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def results_csv(
    results: Results, published: Numbers, *, dataset: str = "{}", bayes: dict[float, BayesSummary] | None = None
) -> str:
    """Return every figure of an experiment, one line each.

    Parameters
    ----------
    results : Results
    published : Numbers
    dataset : str
        Format of the names of the data sets.
    bayes : dict, optional
        The Bayes-optimal rule by cost, added as one more method.
    """
    methods, numbers = results.all_methods, results.numbers(results.all_methods)
    for (cost, best), problem in product((bayes or {}).items(), results.problems):
        exact = (best.risk, best.accepted_accuracy, best.rejection_rate)
        for metric, found in zip(METRICS, exact, strict=True):
            numbers.values[metric, problem, cost, BAYES] = Value(found.value, 0.0, 1)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    costs = results.experiment.protocol.costs
    for where in product(METRICS, results.problems, costs, [*methods, BAYES]):
        if (ours := numbers.values.get(where)) is not None:
            paper = published.values.get(where) or Value(None, None, 0)
            figures = [(ours.mean, 6), (ours.std, 6), (paper.mean, 4), (paper.std, 4)]
            texts = ["" if number is None else f"{number:.{digits}f}" for number, digits in figures]
            metric, problem, cost, method = where
            writer.writerow([metric, dataset.format(problem), f"{cost:g}", method, *texts])
    return text.getvalue()


def full_table(metric: str, results: Results, methods: Sequence[str], published: Numbers | None = None) -> str:
    """Return one metric as Markdown: a row per data set and cost, a column per method.

    A cell has our mean and standard deviation, bold if the risk is the lowest or equivalent to it; below it the
    published figure and the difference.
    """
    numbers, published = results.numbers(methods), published or Numbers()
    rows = []
    for problem in results.problems:
        note = results.notes.get(problem, "")
        name = f"{problem}<br>({note})" if note else problem
        for cost in results.experiment.protocol.costs:
            bold = numbers.bold[problem, cost]
            where = [(metric, problem, cost, method) for method in methods]
            cells = [_cell(numbers.values.get(one), published.values.get(one), bold=one[-1] in bold) for one in where]
            rows.append([name, f"{cost:g}", *cells])
            name = ""
    return markdown_table(["data set", "c", *methods], rows)


def rejection_table(results: Results, published: Numbers, bayes: dict[float, BayesSummary]) -> str:
    """Return the rejected share in percent at the largest training size, beside the Bayes-optimal one: Table 2."""
    rows = []
    for cost, best in bayes.items():
        where = [("rejection_ratio", results.problems[-1], cost, method) for method in results.methods]
        pairs = [(_percent(results.paper_numbers.values.get(one)), published.values.get(one)) for one in where]
        cells = [f"{ours}<br>paper {_percent(paper)}" if paper else ours for ours, paper in pairs]
        rows.append([f"{cost:g}", *cells, f"{100 * best.rejection_rate.value:.1f}"])
    return markdown_table(["c", *results.methods, f"{BAYES}-optimal"], rows)


def _cell(ours: Value | None, paper: Value | None, *, bold: bool) -> str:
    if ours is None:
        return "?"
    mean = "-" if ours.mean is None else f"{ours.mean:.3f}"
    mean = f"**{mean}**" if bold else mean
    mean += "" if ours.std is None else f" ({ours.std:.4f})"
    if paper is None or paper.mean is None:
        return mean if paper is None else f"{mean}<br>paper -"
    difference = "" if ours.mean is None else f", {ours.mean - paper.mean:+.3f}"
    return f"{mean}<br>paper {paper.mean:.3f} ({paper.std or 0:.4f}){difference}"


def _percent(value: Value | None) -> str:
    return "?" if value is None or value.mean is None else f"{100 * value.mean:.1f} ({100 * (value.std or 0):.1f})"


@dataclass(frozen=True)
class Outcome:
    """The stored results, the published ones, and the claims judged on both.

    Parameters
    ----------
    benchmark, synthetic, modern : Results or None
        None if the store has no records of it.
    known : Known
        The Bayes-optimal rule and the population minimisers on the synthetic data.
    published : Published
    claims : list of Judged
    """

    benchmark: Results | None
    synthetic: Results | None
    modern: Results | None
    known: Known
    published: Published
    claims: list[Judged]

    @property
    def parts(self) -> list[Results]:
        """The experiments that have records."""
        return [part for part in (self.synthetic, self.benchmark, self.modern) if part is not None]

    @property
    def nearest(self) -> bool:
        """Whether the benchmark was run by the protocol that comes nearest to the paper's printed figures."""
        return self.benchmark is not None and self.benchmark.experiment.protocol == published_benchmark().protocol

    def warnings(self) -> list[str]:
        """Return caveats that every output states first: a quick run, stand-ins, incomplete data or results."""
        lines = []
        if self.nearest:
            lines.append(
                "**The published protocol**: chosen among many because its figures come nearest to those that the "
                "paper prints. The thresholds of OVA+hin are chosen on the test rows here, which is not a valid "
                "procedure. To compare methods, read `results/paper`."
            )
        if any(part.experiment.quick for part in self.parts):
            lines.append(
                "**A quick run**: fewer trials, sizes, epochs and rows than in the paper. It checks that everything "
                "works; its figures mean little."
            )
        for part in self.parts:
            lines += [f"**{problem}**: {part.notes[problem]}." for problem in part.problems if part.notes[problem]]
            if missing := part.missing:
                shown = "; ".join(missing[:5]) + (f"; and {len(missing) - 5} more" if len(missing) > 5 else "")
                lines.append(f"**Not complete** ({part.experiment.name}): missing {shown}.")
        return lines

    def warning(self) -> str:
        """Return the warnings as a block of Markdown."""
        return "\n".join(f"> {line}  " for line in self.warnings())


def write_outputs(
    out: Path, experiments: Sequence[Experiment], published: Published, place: DataPlace | None = None
) -> Outcome:
    """Write tables, figures and the page for the records in a folder, and return the data for them.

    Parameters
    ----------
    out : path
    experiments : sequence of Experiment
        Those without records are omitted.
    published : Published
    place : DataPlace, optional
        If given, only records made with these data are used.

    Raises
    ------
    InputError
        If there is no record at all.
    MissingExtraError
        If matplotlib is not installed.
    """
    check_matplotlib()
    outcome = _gather(out, experiments, published, place)
    benchmark, synthetic, bayes = outcome.benchmark, outcome.synthetic, outcome.known.bayes
    files: dict[str, str | bytes] = {**draw_figures(synthetic, benchmark, bayes)}
    if outcome.modern is not None:
        files["README.md"] = _modern_page(outcome.modern, outcome.warning())
        files["modern.csv"] = results_csv(outcome.modern, Numbers())
    else:
        files |= {"README.md": _page(outcome), "tables.md": _tables_page(outcome)}
    if benchmark is not None:
        files["benchmark.csv"] = results_csv(benchmark, outcome.published.benchmark)
    if synthetic is not None:
        files["synthetic.csv"] = results_csv(
            synthetic, outcome.published.synthetic, dataset="synthetic-{}", bayes=bayes
        )
    for name, content in files.items():
        write_whole(out / name, content, overwrite=True)
    return outcome


def _gather(out: Path, experiments: Sequence[Experiment], published: Published, place: DataPlace | None) -> Outcome:
    found: dict[str, Results] = {}
    for experiment in experiments:
        results = collect(experiment, matching(experiment, Store(out, experiment.name), place))
        if results.records:
            found[experiment.name] = results
    if not found:
        raise InputError(f"{out} has no records of this; run the command without --tables-only first.")
    benchmark, synthetic = found.get("benchmark"), found.get("synthetic")
    known, claims = Known(), []
    if synthetic is not None:
        protocol = synthetic.experiment.protocol
        assert isinstance(protocol, SyntheticProtocol)
        summary = gaussians_of(protocol).bayes_summary
        known = Known({cost: summary(cost) for cost in protocol.costs}, population_errors(synthetic.experiment))
        claims += judge(SYNTHETIC_CLAIMS, synthetic, published.synthetic, known)
    if benchmark is not None:
        if STAND_IN_NOTE in benchmark.notes.values():  # figures of other data are not compared
            published = replace(published, benchmark=Numbers())
        claims += judge(BENCHMARK_CLAIMS, benchmark, published.benchmark)
    return Outcome(benchmark, synthetic, found.get("modern"), known, published, claims)


def _joined(sections: Sequence[str]) -> str:
    return "\n\n".join(section for section in sections if section) + "\n"


TITLE = """\
# Classification with rejection: the paper's experiments repeated

C. Ni, N. Charoenphakdee, J. Honda, M. Sugiyama:
*On the Calibration of Multiclass Classification with Rejection*, NeurIPS 2019."""

WHERE_EVERYTHING_IS = """\
- All figures: {files}. Each of them
  comes from the records in [records](records), which also name the chosen hyper-parameters of every trial."""

VERDICTS_IN_WORDS = {
    "holds": "hold",
    "mostly holds": "mostly hold",
    "mostly fails": "mostly fail",
    "does not hold": "do not hold",
    "not tested": "are not tested",
}
"""Verbs that follow a number of statements."""

HOW_CLAIMS_ARE_JUDGED = """\
A statement *holds* if it is true in every case, and *does not hold* if it is true in none. Otherwise it *mostly holds*
if it is true in more than half of the cases, and *mostly fails* if not. Statements about the beta of a loss are tested
on its population minimisers, computed at points whose class probabilities are known. The last column applies the same
test to the paper's own printed tables, where they contain the figures."""

HOW_IT_WAS_MADE = """\
## How this page was made

```
demur reproduce {which} --data DIR --published DIR --out {out}
```

An interrupted run continues where it stopped; with a complete store the command only draws the tables and figures.
`--records-only` computes the records without drawing, so it needs no matplotlib and can run on another machine. From
the records alone, everything is drawn by

```
demur reproduce {which} --published DIR --out {out} --tables-only
```

{table}

Versions: {versions}."""


def _page(outcome: Outcome) -> str:
    """Return README.md."""
    synthetic = _synthetic_section(outcome, outcome.synthetic) if outcome.synthetic else ""
    benchmark = _benchmark_section(outcome, outcome.benchmark) if outcome.benchmark else ""
    head = (TITLE, outcome.warning(), _summary(outcome), _claims(outcome.claims))
    return _joined([*head, synthetic, benchmark, _choices(outcome), _provenance(outcome)])


def _summary(outcome: Outcome) -> str:
    lines = ["## In short", ""]
    part, published = outcome.benchmark, outcome.published.benchmark
    if part is not None and published.values:
        names = ["CE"], [name for name in part.methods if name != "CE"]
        ce, others = (agreement(part.paper_numbers, published, part.problems, some) for some in names)
        n = others.of["zoc_risk"]
        lines += [
            f"- **Cross-entropy**: our mean 0-1-c risk is at or below the published one in {ce.at_or_below} of "
            f"{ce.of['zoc_risk']} cells (data set x cost), at the three decimals that the paper prints.",
            "- **The other methods**: at most three published standard deviations above the published mean in "
            f"{n - len(others.above)} of {n} cells.",
        ]
    verdicts = [judged.ours.verdict for judged in outcome.claims]
    counts = ", ".join(
        f"{verdicts.count(verdict)} {words}" for verdict, words in VERDICTS_IN_WORDS.items() if verdict in verdicts
    )
    lines.append(f"- **The paper's statements**, {len(verdicts)} of them, on our figures: {counts}.")
    files = ["tables.md"] + [f"{part.experiment.name}.csv" for part in (outcome.benchmark, outcome.synthetic) if part]
    return "\n".join([*lines, WHERE_EVERYTHING_IS.format(files=", ".join(f"[{name}]({name})" for name in files))])


def _claims(claims: Sequence[Judged]) -> str:
    rows = [
        [one.claim.statement, one.claim.where, f"**{_verdict(one.ours)}**", one.ours.exceptions, _verdict(one.paper)]
        for one in claims
    ]
    headings = ["statement", "in the paper", "here", "exceptions", "the paper's own tables"]
    return f"## The paper's statements, one by one\n\n{HOW_CLAIMS_ARE_JUDGED}\n\n{markdown_table(headings, rows)}"


def _verdict(finding: Finding) -> str:
    return finding.verdict if finding.verdict == "not tested" else f"{finding.verdict} ({finding.counts})"


def _choices(outcome: Outcome) -> str:
    settings: dict[str, dict[str, tuple[str, str]]] = {}
    for part in outcome.parts:
        for setting, choice in part.experiment.protocol.choices().items():
            settings.setdefault(setting, {})[part.experiment.name] = choice
    rows = []
    for setting, found in settings.items():
        if len({value for value, _ in found.values()}) == 1:
            rows.append([setting, *next(iter(found.values()))])
        else:
            rows += [[f"{setting} ({name})", *choice] for name, choice in found.items()]
    table = markdown_table(["setting", "value", "reason"], rows)
    return f"## What the paper leaves open\n\nChosen once, for all methods; `--set NAME=VALUE` changes it.\n\n{table}"


def _provenance(outcome: Outcome) -> str:
    which, out = "all", "results/paper"
    if outcome.nearest:
        which, out = "benchmark --protocol published", "results/published"
    runs = {part.experiment.name: trace(part.records) for part in outcome.parts}
    rows = [
        [
            *(name, f"{run.networks:,}", f"{run.failed}", f"{run.seconds_training:,.1f}", f"{run.seconds_other:,.1f}"),
            ", ".join(run.devices),
        ]
        for name, run in runs.items()
    ]
    table = markdown_table(["", "networks", "diverged", "training, s", "everything else, s", "device"], rows)
    versions = "; ".join(dict.fromkeys(version for run in runs.values() for version in run.versions))
    text = HOW_IT_WAS_MADE.format(which=which, out=out, table=table, versions=versions)
    return text if outcome.benchmark is None else f"{text}\n\n{_data_table(outcome.benchmark)}"


def _data_table(part: Results) -> str:
    """Return the paper's Table 3, with the rows that were used here."""
    hashes = {record.spec["problem"]: record.spec["data"] for record in part.records}
    n_test = {problem: scores[0].n for (problem, _, _), scores in part.scores.items()}
    rows = []
    for problem in part.problems:
        source, n_train = SOURCES[problem], training_rows(problem, part.experiment.protocol)
        sizes = [f"{size:,}" for size in (source.n_features, source.n_classes, n_train, n_test[problem])]
        rows.append([problem, *sizes, f"`{hashes[problem][:16]}...`", part.notes[problem]])
    headings = ["data set", "features", "classes", "training rows", "test rows", "sha256 of the rows", ""]
    return markdown_table(headings, rows)


SYNTHETIC = """\
## Synthetic data: does the risk reach the Bayes-optimal risk?

Eight Gaussian classes in the plane, so that the best possible risk is known: the black line.

![Figure 1: test risk against training size](figures/figure-1.png)

**Table 2.** Rejected share of the test data in % with {size:,} training points per class, mean (standard deviation)
over trials. The paper prints four of these methods at three costs. It does not print its eight means; ours were
chosen so that the Bayes-optimal shares are near its CE column.

{table}"""

POPULATION = """\
### Population minimisers and trained networks

Percentage of {n:,} test points that are answered although declining is cheaper / declined although answering is
cheaper. The first line of a cell is for the population minimiser of the loss, computed from the known class
probabilities: the limit of unlimited networks and data. By Theorem 4 and Corollary 5, beta acc has no false rejects
there, and beta rej no false accepts. The second line is for networks of {units} hidden units, trained on
{size:,} points per class.

{table}"""

BENCHMARK = """\
## Benchmark data

![Figure 2: test risk against cost, three data sets](figures/figure-2.png)

![Figure 4: test risk against cost, all data sets and methods](figures/figure-4.png)

**Table 6.** 0-1-c risk on the test data, mean (standard deviation) over trials; below it the published figure and the
difference. Bold: lowest or equivalent. {test}

{table}"""

AGREEMENT = """\
**Against the published figures.** *At or below*: our mean risk, rounded to the three decimals that the paper prints, is
at most the published one. The last three columns count the published figures that lie within two published standard
deviations, plus half a printed digit, of ours.

{table}

More than three published standard deviations above the published mean: {above}. See `docs/reproduction.md`."""


def _synthetic_section(outcome: Outcome, part: Results) -> str:
    """Return Figure 1, Table 2, and the errors of population minimisers and networks."""
    size, known = int(part.problems[-1]), outcome.known
    section = SYNTHETIC.format(size=size, table=rejection_table(part, outcome.published.synthetic, known.bayes))
    if not known.population:
        return section
    n = next(iter(known.population.values())).n
    units, table = part.experiment.protocol.hidden_units, _population_table(known.population, part)
    return f"{section}\n\n{POPULATION.format(n=n, units=units, size=size, table=table)}"


def _population_table(population: dict[tuple[str, float], PopulationErrors], part: Results) -> str:
    """Return false accepts / false rejects by cost and method, of the population minimisers and of the networks."""
    methods = list(dict.fromkeys(method for method, _ in population))
    rows = [[f"{cost:g}"] for cost in part.experiment.protocol.costs]
    for row, cost in zip(rows, part.experiment.protocol.costs, strict=True):
        for method in methods:
            scores = part.scores.get((part.problems[-1], cost, method), [])
            n = sum(score.n for score in scores)
            errors = [sum(getattr(score, name) or 0 for score in scores) for name in ("false_accepts", "false_rejects")]
            trained = f"<br>networks {' / '.join(f'{100 * count / n:.1f}' for count in errors)}" if n else ""
            row.append(f"{population[method, cost]}{trained}")
    return markdown_table(["c", *methods], rows)


def _benchmark_section(outcome: Outcome, part: Results) -> str:
    """Return Figures 2 and 4, the table of risks, and the comparison with the published figures."""
    published = outcome.published.benchmark
    section = BENCHMARK.format(test=TEST, table=full_table("zoc_risk", part, part.methods, published))
    if not published.values:
        return section
    ours, problems = part.paper_numbers, part.problems
    groups = {problem: agreement(ours, published, [problem]) for problem in problems}
    groups |= {method: agreement(ours, published, problems, [method]) for method in part.methods}
    groups["**all**"] = found = agreement(ours, published, problems)
    above = list_of(found.above) or "none"
    rows = [
        [name, f"{found.at_or_below} of {found.of['zoc_risk']}"]
        + [f"{found.within[metric]} of {found.of[metric]}" for metric in METRICS]
        for name, found in groups.items()
    ]
    headings = ["", "at or below", "0-1-c risk", "accuracy on the accepted", "rejected share"]
    return f"{section}\n\n{AGREEMENT.format(table=markdown_table(headings, rows), above=above)}"


def _tables_page(outcome: Outcome) -> str:
    """Return tables.md: the three tables of the paper's appendix, and those of the further losses."""
    sections = ["# All tables", outcome.warning()]
    if part := outcome.benchmark:
        for number, (metric, title) in enumerate(TITLES.items(), start=6):
            head = f"{title}\n\n{MEANS}{NO_ANSWER if metric == 'accepted_accuracy' else ''}"
            table = full_table(metric, part, part.methods, outcome.published.benchmark)
            more = full_table(metric, part, ["CE", *part.all_methods[len(part.methods) :]])
            sections += [f"## Table {number}: {head}\n\n{table}", f"## More losses: {head}\n\n{more}"]
    if part := outcome.synthetic:
        table = full_table("zoc_risk", part, part.methods)
        sections.append(f"## Synthetic data: 0-1-c risk by training points per class\n\n{table}")
    return _joined(sections)


MEANS = "Mean (standard deviation) over trials; bold: lowest 0-1-c risk, or equivalent to it."

NO_ANSWER = (
    ' "-": every trial rejected everything. A trial that did has no accuracy and is left out of the mean; '
    'the paper prints "-" as soon as there is one.'
)


HEAD = """\
# Every loss for rejection, by one protocol

All registered losses that take many classes, trained and selected as in the benchmark of Ni et al. 2019: {networks:,}
networks, {diverged} of which diverged, {seconds:,.0f} s of training on {devices}.

**verdict**: {verdict}
**trainings**: whether another cost needs another training. **best or equivalent**: cells (data set x cost) in which no
loss is better beyond chance. **mean rank**: over all cells, 1 is the lowest mean risk. The last columns have the mean
0-1-c risk over the costs; [modern.csv](modern.csv) has all figures.

{test}"""


CHECKED = """\
the result of `demur check NAME --classes 3 --cost 0.2`: calibrated, by a theorem or by a search, or
refuted, by a witness that was computed twice."""
CLAIMED = "the claim of the loss for K > 2; a quick run does not check it."


def _modern_page(results: Results, warning: str) -> str:
    """Return the page of all losses, one row for each."""
    run, numbers = trace(results.records), results.paper_numbers
    head = HEAD.format(
        networks=run.networks,
        diverged=run.failed,
        seconds=run.seconds_training,
        devices=" and ".join(run.devices),
        test=TEST,
        verdict=CLAIMED if results.experiment.quick else CHECKED,
    )
    best, ranks, risks = (defaultdict[Any, list[float]](list) for _ in range(3))
    for (problem, cost), bold in numbers.bold.items():
        rivals = numbers.rivals(problem, cost)
        means = [numbers.values["zoc_risk", problem, cost, method].mean or 0.0 for method in rivals]
        for method, risk, place in zip(rivals, means, rankdata(means).tolist(), strict=True):
            best[method].append(method in bold)
            ranks[method].append(place)
            risks[method, problem].append(risk)
    rows = []
    for method in sorted(best, key=lambda one: (-sum(best[one]), one)):
        loss = get(method)
        trainings = "one per cost" if loss.trained_for_cost else "one for all costs"
        verdict = "calibrated" if loss.calibrated_for(3) else "not calibrated"
        if not results.experiment.quick:
            report = check_calibration(loss, 3, 0.2)
            verdict = f"{report.verdict}: {report.evidence}"
        own = [risks[method, problem] for problem in results.problems]
        cells = [f"{sum(known) / len(known):.4f}" if known else "?" for known in own]
        counts, rank = f"{sum(best[method])} of {len(best[method])}", f"{sum(ranks[method]) / len(ranks[method]):.1f}"
        rows.append([method, loss.family, verdict, trainings, counts, rank, *cells])
    headings = ["loss", "family", "verdict", "trainings", "best or equivalent", "mean rank", *results.problems]
    return _joined([head, warning, markdown_table(headings, rows)])
