"""The page that a reader of the results opens first, and the outcome that it is made from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from scipy.stats import rankdata

from demur.datasets import BayesSummary
from demur.datasets.uci import SOURCES
from demur.losses import Loss, get
from demur.paper.claims import Finding, Judged, Population, Verdict
from demur.paper.experiments import Choice, published_benchmark
from demur.paper.problems import training_rows
from demur.paper.records import trace
from demur.paper.result_tables import Published, full_table, rejection_table
from demur.paper.trial_means import METRICS, TEST, Agreement, Comparison, Numbers, Results, agreement, compare
from demur.theory import check_calibration

__all__ = ["Outcome", "best_counts", "modern_page", "page"]


@dataclass(frozen=True)
class Outcome:
    """The results at hand, the published ones, and what follows from both.

    Parameters
    ----------
    benchmark, synthetic : Results or None
        None where the store has nothing of it.
    bayes : dict
        The best possible rule on the synthetic data, by cost.
    population : dict
        What population minimisers of the pairwise losses decide there, by method and cost.
    published : Published
    claims : list of Judged
    rescaled : Results or None
        The benchmark on features scaled to [-1, 1], if the store has it too.
    modern : Results or None
        Every registered loss under the benchmark's protocol.
    """

    benchmark: Results | None
    synthetic: Results | None
    bayes: dict[float, BayesSummary]
    population: Population
    published: Published
    claims: list[Judged]
    rescaled: Results | None = None
    modern: Results | None = None

    @property
    def parts(self) -> list[Results]:
        """The experiments that there are records of."""
        return [part for part in (self.synthetic, self.benchmark, self.modern) if part is not None]

    @property
    def quick(self) -> bool:
        """Whether these are results of a quick run."""
        return any(part.experiment.quick for part in self.parts)

    @cached_property
    def compared(self) -> list[Comparison]:
        """The benchmark's risks against the published ones, by method; empty where there is nothing to compare."""
        return self._compared(self.benchmark)

    @cached_property
    def rescaled_compared(self) -> list[Comparison]:
        """The same for the benchmark on features scaled to [-1, 1]."""
        return self._compared(self.rescaled)

    def _compared(self, results: Results | None) -> list[Comparison]:
        if results is None:
            return []
        methods = [method.name for method in results.experiment.methods]
        found = compare(results.numbers(methods), self.published.benchmark, methods)
        return [one for one in found if one.n]

    @property
    def nearest(self) -> bool:
        """Whether the benchmark was run by the protocol that comes nearest to the paper's printed figures."""
        return self.benchmark is not None and self.benchmark.experiment.protocol == published_benchmark().protocol

    def warnings(self) -> list[str]:
        """Return what every output must say first: a quick run, stand-ins, incomplete data or results; else nothing."""
        lines = []
        if self.nearest:
            lines.append(
                "**The published protocol**: chosen, among many, because its figures come nearest to those that the "
                "paper prints. The thresholds of OVA+hin are chosen on the test rows here, which no method may do. To "
                "compare methods, read `results/paper`."
            )
        if self.quick:
            lines.append(
                "**A quick run**: fewer trials, sizes, epochs and rows than in the paper. It shows that everything "
                "works; its figures mean little."
            )
        for part in self.parts:
            lines += [f"**{problem}**: {note}." for problem, note in part.notes.items() if note]
            missing = part.missing
            if missing:
                shown = "; ".join(missing[:5]) + (f"; and {len(missing) - 5} more" if len(missing) > 5 else "")
                lines.append(f"**Not complete** ({part.experiment.name}): missing {shown}.")
        return lines

    def warning(self) -> str:
        """Return the warnings as a block of Markdown."""
        return "\n".join(f"> {line}  " for line in self.warnings())


TITLE = """\
# Classification with rejection: the paper's experiments, run again

C. Ni, N. Charoenphakdee, J. Honda, M. Sugiyama:
*On the Calibration of Multiclass Classification with Rejection*, NeurIPS 2019."""

WHERE_EVERYTHING_IS = """\
- All figures: [tables.md](tables.md), [benchmark.csv](benchmark.csv), [synthetic.csv](synthetic.csv). Each of them
  comes from the records in [records](records), which also name the chosen hyper-parameters of every trial."""

VERDICTS_IN_WORDS: dict[Verdict, str] = {
    "holds": "hold",
    "mostly holds": "mostly hold",
    "mostly fails": "mostly fail",
    "does not hold": "do not hold",
    "not tested": "are not tested",
}
"""After a number of statements."""

HOW_CLAIMS_ARE_JUDGED = """\
A statement *holds* if it is true in every case counted and *does not hold* if in none; between, it *mostly holds* if it
is true in more than half of them, and else *mostly fails*. What is said of the beta of a loss is judged on its
population minimisers, computed at points whose class probabilities are known; what trained networks did is beside it.
The same test is applied to the paper's own printed tables, where these suffice."""

HOW_IT_WAS_MADE = """\
```
demur reproduce {which} --data DIR --out {out}
```

The command continues where it was stopped; with a complete store it only draws the tables and figures again. With
`--records-only` it draws nothing and needs no matplotlib, so that records can be computed elsewhere and brought back.
`--pack` puts the records of a finished run into one file per experiment. From the records alone, all this is drawn by

```
demur reproduce {which} --out {out} --tables-only
```

| | networks | diverged | training, s | everything else, s | device |
|---|---|---|---|---|---|"""


def page(outcome: Outcome) -> str:
    """Return README.md."""
    sections = [
        TITLE,
        outcome.warning(),
        _summary(outcome),
        _claims(outcome.claims),
        synthetic_section(outcome),
        benchmark_section(outcome),
        _choices(outcome),
        _provenance(outcome),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _summary(outcome: Outcome) -> str:
    lines = ["## In short", ""]
    compared = outcome.compared
    ce = next((one for one in compared if one.method == "CE"), None)
    if ce is not None:
        lines.append(
            f"- **Cross-entropy**: our mean 0-1-c risk is at or below the published one in {ce.at_or_below} of {ce.n} "
            f"cells (data set x cost) at the three decimals that the paper prints, in {ce.strictly} before rounding."
        )
    others = [one for one in compared if one.method != "CE"]
    if others:
        within, n = sum(one.within for one in others), sum(one.n for one in others)
        lines.append(
            "- **The other methods**: within the published mean plus three published standard deviations, or better, "
            f"in {within} of {n} cells."
        )
    verdicts = [judged.ours.verdict for judged in outcome.claims]
    counts = ", ".join(
        f"{verdicts.count(verdict)} {words}" for verdict, words in VERDICTS_IN_WORDS.items() if verdict in verdicts
    )
    lines.append(f"- **The paper's statements**, {len(verdicts)} of them, on our figures: {counts}.")
    for part in outcome.parts:
        run = trace(part.records)
        lines.append(
            f"- **{part.experiment.name.capitalize()}**: {run.networks:,} networks, {run.seconds_training:,.0f} s of "
            f"training on {' and '.join(run.devices)}."
        )
    return "\n".join([*lines, WHERE_EVERYTHING_IS])


def _claims(claims: Sequence[Judged]) -> str:
    rescaled = any(judged.rescaled for judged in claims)
    lines = [
        f"## The paper's statements, one by one\n\n{HOW_CLAIMS_ARE_JUDGED}\n",
        "| statement | in the paper | here | evidence | the paper's own tables |"
        + (" here, features in [-1, 1] |" if rescaled else ""),
        "|---|---|---|---|---|" + ("---|" if rescaled else ""),
    ]
    for judged in claims:
        cells = [judged.claim.statement, judged.claim.where, f"**{_verdict(judged.ours)}**", judged.ours.evidence]
        cells += [_verdict(judged.paper)] + ([_verdict(judged.rescaled)] if rescaled else [])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _verdict(finding: Finding | None) -> str:
    if finding is None:
        return ""
    return finding.verdict if finding.verdict == "not tested" else f"{finding.verdict} ({finding.counts})"


def _choices(outcome: Outcome) -> str:
    rows: dict[str, list[tuple[str, Choice]]] = {}
    for part in outcome.parts:
        for choice in part.experiment.protocol.choices():
            rows.setdefault(choice.setting, []).append((part.experiment.name, choice))
    lines = [
        "## What the paper leaves open",
        "",
        "Chosen once, for all methods; `--set NAME=VALUE` changes it.",
        "",
        "| setting | value | reason |",
        "|---|---|---|",
    ]
    for setting, found in rows.items():
        if len({choice.value for _, choice in found}) == 1:
            lines.append(f"| {setting} | {found[0][1].value} | {found[0][1].why} |")
        else:
            lines += [f"| {setting} ({name}) | {choice.value} | {choice.why} |" for name, choice in found]
    return "\n".join(lines)


def _provenance(outcome: Outcome) -> str:
    which, out = (
        ("benchmark --protocol published", "results/published") if outcome.nearest else ("all", "results/paper")
    )
    lines = ["## How this page was made", "", HOW_IT_WAS_MADE.format(which=which, out=out)]
    runs = []
    for part in outcome.parts:
        groups = [(part.experiment.name, [method.name for method in part.experiment.methods])]
        if part.experiment.more:
            groups.append(("more losses", [method.name for method in part.experiment.more]))
        for name, methods in groups:
            run = trace(part.records, methods)
            runs.append(run)
            figures = (
                f"{run.networks:,}",
                f"{run.failed}",
                f"{run.seconds_training:,.1f}",
                f"{run.seconds_other:,.1f}",
            )
            lines.append(f"| {name} | {' | '.join(figures)} | {', '.join(run.devices)} |")
    versions = dict.fromkeys(version for run in runs for version in run.versions)
    memory = max((run.peak_memory_mb or 0 for run in runs), default=0)
    lines += ["", f"Versions: {'; '.join(versions)}. Peak memory of a process: {memory:,} MB."]
    if outcome.benchmark is not None:
        lines += ["", *_data_table(outcome.benchmark)]
    return "\n".join(lines)


def _data_table(part: Results) -> list[str]:
    """Return the paper's Table 3, with the rows that were used here."""
    lines = [
        "| data set | features | classes | training rows | test rows | sha256 of the rows | |",
        "|---|---|---|---|---|---|---|",
    ]
    hashes = {record.spec["problem"]: record.spec["data"] for record in part.records}
    n_test = {problem: scores[0].n for (problem, _, _), scores in part.scores.items()}
    for problem in part.problems:
        source, n_train = SOURCES[problem], training_rows(problem, part.experiment.protocol)
        sizes = f"{source.n_features} | {source.n_classes} | {n_train:,} | {n_test[problem]:,}"
        lines.append(f"| {problem} | {sizes} | `{hashes[problem][:16]}...` | {part.notes[problem]} |")
    return lines


SYNTHETIC = """\
## Synthetic data: does the risk reach the best possible one?

Eight Gaussian classes in the plane, so that the best possible risk is known: the black line.

![Figure 1: test risk against training size](figures/figure-1.png)

**Table 2.** Rejected share of the test data in % with {size:,} training points per class, mean (standard deviation)
over trials. The paper prints four of these methods at three costs. It does not print its eight means; ours were
chosen so that the Bayes-optimal shares are near its CE column.

{table}"""

POPULATION = """\
### What the losses ask for, and what the networks do

% of {n:,} test points that are answered although declining is cheaper / declined although answering is cheaper. First,
where the pointwise risk of the loss is minimised at every point, with the known class probabilities: what unlimited
networks and data would do. By Theorem 4 and Corollary 5, beta acc must have no false rejects there, and beta rej no
false accepts. Below it, the networks of {units} hidden units with {size:,} training points per class.

{table}"""

BENCHMARK = """\
## Benchmark data

![Figure 2: test risk against cost, three data sets](figures/figure-2.png)

![Figure 4: test risk against cost, all data sets and methods](figures/figure-4.png)

**Table 6.** 0-1-c risk on the test data, mean (standard deviation) over trials; below it the published figure and the
difference. Bold: lowest or equivalent. {test}

{table}"""

COMPARISON = """\
**Against the published risks.** Ours rounded to the three decimals that the paper prints; "within" is at most the
published mean plus three published standard deviations. Why some cells lie outside: see `docs/reproduction.md`.

| method | at or below | before rounding | within, or better | cells outside |
|---|---|---|---|---|"""

AGREEMENT = """\
**On both sides of the published figures.** How many of them lie within two printed standard deviations, plus half a
printed digit, of ours.

| | 0-1-c risk | accuracy on the accepted | rejected share |
|---|---|---|---|"""

MORE = """\
### More losses

Not in the paper's tables: one-versus-all with the squared and the squared hinge loss, and the two other hinge losses
of Ramaswamy et al. (2018). Same protocol; CE again for comparison, bold among these.

{table}"""


RESCALED = """\
### The same with features scaled to [-1, 1]

The paper does not say how it scaled the features; it names the LIBSVM site as one source of its data, whose files are
scaled to [-1, 1]. The same benchmark on features scaled so (`--set scaling=range`), beside the standardised one:
mean absolute difference to the published risks, and to the published rejection ratios; cells within the published
mean plus three published standard deviations, or better.

| method | risk, standardised | [-1, 1] | rejection, standardised | [-1, 1] | within, standardised | [-1, 1] |
|---|---|---|---|---|---|---|"""


def synthetic_section(outcome: Outcome) -> str:
    """Return Figure 1 and Table 2; empty without records."""
    part = outcome.synthetic
    if part is None:
        return ""
    methods = [method.name for method in part.experiment.methods]
    largest = part.problems[-1]
    table = rejection_table(part.numbers(methods), outcome.published.synthetic, outcome.bayes, largest, methods)
    section = SYNTHETIC.format(size=int(largest), table=table)
    if not outcome.population:
        return section
    n = next(iter(outcome.population.values())).n
    units = part.experiment.protocol.hidden_units
    table = _population_table(outcome, part, largest)
    both = POPULATION.format(n=n, units=units, size=int(largest), table=table)
    return f"{section}\n\n{both}"


def _population_table(outcome: Outcome, part: Results, size: str) -> str:
    """Return false accepts / false rejects by cost and method, of the population minimisers and of the networks."""
    methods = list(dict.fromkeys(method for method, _ in outcome.population))
    rows = [f"| c | {' | '.join(methods)} |", "|---|" + "---|" * len(methods)]
    for cost in part.experiment.protocol.costs:
        cells = []
        for method in methods:
            scores = part.scores.get((size, cost, method), [])
            n = sum(score.n for score in scores)
            networks = [
                sum(score.false_accepts or 0 for score in scores),
                sum(score.false_rejects or 0 for score in scores),
            ]
            trained = f"<br>networks {' / '.join(f'{100 * count / n:.1f}' for count in networks)}" if n else ""
            cells.append(f"{outcome.population[method, cost]}{trained}")
        rows.append(f"| {cost:g} | {' | '.join(cells)} |")
    return "\n".join(rows)


def benchmark_section(outcome: Outcome) -> str:
    """Return Figures 2 and 4, the table of risks, the comparison with the published ones, and the further losses."""
    part = outcome.benchmark
    if part is None:
        return ""
    costs, notes, published = part.experiment.protocol.costs, part.notes, outcome.published.benchmark
    methods = [method.name for method in part.experiment.methods]
    table = full_table("zoc_risk", part.numbers(methods), published, part.problems, costs, methods, notes)
    sections = [BENCHMARK.format(test=TEST, table=table)]
    if outcome.compared:
        sections.append("\n".join([COMPARISON, *_comparison_rows(outcome.compared)]))
        sections.append("\n".join([AGREEMENT, *_agreement_rows(part, published, methods)]))
    if outcome.rescaled_compared:
        sections.append("\n".join([RESCALED, *_rescaled_rows(outcome.compared, outcome.rescaled_compared)]))
    if part.experiment.more:
        shown = ["CE", *(method.name for method in part.experiment.more)]
        table = full_table("zoc_risk", part.numbers(shown), Numbers(), part.problems, costs, shown, notes)
        sections.append(MORE.format(table=table))
    return "\n\n".join(sections)


def _agreement_rows(part: Results, published: Numbers, methods: Sequence[str]) -> list[str]:
    numbers = part.numbers(methods)
    groups = {problem: agreement(numbers, published, [problem]) for problem in part.problems}
    groups |= {method: agreement(numbers, published, part.problems, [method]) for method in methods}
    groups["**all**"] = agreement(numbers, published, part.problems)
    return [f"| {name} | {' | '.join(_counts(found))} |" for name, found in groups.items()]


def _counts(found: Agreement) -> list[str]:
    return [f"{found.within[metric]} of {found.of[metric]}" for metric in METRICS]


def _rescaled_rows(standard: Sequence[Comparison], rescaled: Sequence[Comparison]) -> list[str]:
    rows = []
    for one, other in zip(standard, rescaled, strict=True):
        figures = [f"{pair.distance:.4f}" for pair in (one, other)]
        figures += [f"{pair.rejection_distance:.3f}" for pair in (one, other)]
        figures += [f"{pair.within} of {pair.n}" for pair in (one, other)]
        rows.append(f"| {one.method} | {' | '.join(figures)} |")
    return rows


def _comparison_rows(compared: Sequence[Comparison]) -> list[str]:
    rows = []
    for one in compared:
        outside = "; ".join(one.outside) or "none"
        counts = " | ".join(f"{number} of {one.n}" for number in (one.at_or_below, one.strictly, one.within))
        rows.append(f"| {one.method} | {counts} | {outside} |")
    return rows


HEAD = """\
# Every loss for rejection, by one protocol

All registered losses that take many classes, trained and selected as in the benchmark of Ni et al. 2019: {networks:,}
networks, {diverged} of which diverged, {seconds:,.0f} s of training on {devices}.

**verdict**: {verdict}
**trainings**: whether another cost needs another training. **best or equivalent**: cells (data set x cost) in which no
loss is better beyond chance. **mean rank**: over all cells, 1 is the lowest mean risk. Bold in the tables of each data
set: the same cells.

{test}"""


CHECKED = """\
what `demur check NAME --classes 3 --cost 0.2` says of it: calibrated, by a theorem or by a search, or
refuted, by a witness that was computed twice."""
CLAIMED = "what the loss claims for K > 2; a quick run does not check it."


def best_counts(results: Results) -> list[tuple[str, str]]:
    """Return for each loss in how many cells it is the best or equivalent to the best, the most first."""
    numbers = results.numbers(_methods(results))
    counted = []
    for method in _methods(results):
        cells = [bold for (problem, cost), bold in numbers.bold.items() if method in numbers.rivals(problem, cost)]
        counted.append((method, sum(method in bold for bold in cells), len(cells)))
    counted.sort(key=lambda one: (-one[1], one[0]))
    return [(method, f"{best} of {n}") for method, best, n in counted if n]


def modern_page(results: Results, warning: str = "") -> str:
    """Return the page as Markdown: one row per loss, then all mean risks."""
    methods = _methods(results)
    run = trace(results.records)
    head = HEAD.format(
        networks=run.networks,
        diverged=run.failed,
        seconds=run.seconds_training,
        devices=" and ".join(run.devices),
        test=TEST,
        verdict=CLAIMED if results.experiment.quick else CHECKED,
    )
    numbers, costs = results.numbers(methods), results.experiment.protocol.costs
    sections = [head, warning, _modern_summary(results, numbers)]
    sections.append("## 0-1-c risk, mean over costs\n\n" + _means_over_costs(results, numbers))
    for problem in results.problems:
        shown = [method for method in methods if numbers.get("zoc_risk", problem, costs[0], method) is not None]
        rows = ["| loss | " + " | ".join(f"c = {cost:g}" for cost in costs) + " |", "|---|" + "---|" * len(costs)]
        rows += [
            f"| {method} | " + " | ".join(_cell(numbers, problem, cost, method) for cost in costs) + " |"
            for method in shown
        ]
        note = results.notes.get(problem, "")
        sections.append(f"## {problem}" + (f" ({note})" if note else "") + "\n\n" + "\n".join(rows))
    return "\n\n".join(section for section in sections if section) + "\n"


def _methods(results: Results) -> list[str]:
    return [method.name for method in results.experiment.all_methods]


def _cell(numbers: Numbers, problem: str, cost: float, method: str) -> str:
    value = numbers.get("zoc_risk", problem, cost, method)
    if value is None or value.mean is None:
        return "?"
    text = f"{value.mean:.4f}"
    text = f"**{text}**" if method in numbers.bold[problem, cost] else text
    return f"{text} ({value.std or 0:.4f})"


def _modern_summary(results: Results, numbers: Numbers) -> str:
    lines = ["| loss | family | verdict | trainings | best or equivalent | mean rank |", "|---|---|---|---|---|---|"]
    ranks = _mean_ranks(results, numbers)
    for method, counts in best_counts(results):
        loss = get(method)
        trainings = "one per cost" if loss.trained_for_cost else "one for all costs"
        verdict = _calibration_verdict(loss, check=not results.experiment.quick)
        lines.append(f"| {method} | {loss.family} | {verdict} | {trainings} | {counts} | {ranks[method]:.1f} |")
    return "\n".join(lines)


def _calibration_verdict(loss: Loss, *, check: bool) -> str:
    if not check:
        return "calibrated" if loss.calibrated_for(3) else "not calibrated"
    report = check_calibration(loss, 3, 0.2)
    return f"{report.verdict}: {report.evidence}"


def _mean_ranks(results: Results, numbers: Numbers) -> dict[str, float]:
    """Return each loss's rank, a mean over the cells; equal risks share their ranks."""
    ranks: dict[str, list[float]] = {}
    for problem, cost in numbers.bold:
        rivals = numbers.rivals(problem, cost)
        means = [numbers.mean("zoc_risk", problem, cost, method) or 0.0 for method in rivals]
        for place, method in zip(rankdata(means).tolist(), rivals, strict=True):
            ranks.setdefault(method, []).append(place)
    return {method: sum(places) / len(places) for method, places in ranks.items()}


def _means_over_costs(results: Results, numbers: Numbers) -> str:
    costs = results.experiment.protocol.costs
    lines = ["| loss | " + " | ".join(results.problems) + " |", "|---|" + "---|" * len(results.problems)]
    for method in _methods(results):
        cells = []
        for problem in results.problems:
            means = [numbers.mean("zoc_risk", problem, cost, method) for cost in costs]
            known = [mean for mean in means if mean is not None]
            cells.append(f"{sum(known) / len(known):.4f}" if known else "?")
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)
