"""The two sections of the page that show results."""

from collections.abc import Sequence

from demur.paper.comparison import Comparison
from demur.paper.material import Material
from demur.paper.numbers import Numbers
from demur.paper.significance import TEST
from demur.paper.tables import full_table, rejection_table

__all__ = ["benchmark_section", "synthetic_section"]

SYNTHETIC = """\
## Synthetic data: does the risk reach the best possible one?

Eight Gaussian classes in the plane, so that the best possible risk is known: the black line.

![Figure 1: test risk against training size](figures/figure-1.png)

**Table 2.** Rejected share of the test data in % with {size:,} training points per class, mean (standard deviation)
over trials. The paper prints four of these methods at three costs. It does not print its eight means; ours were
chosen so that the Bayes-optimal shares are near its CE column.

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


def synthetic_section(material: Material) -> str:
    """Return Figure 1 and Table 2; empty without records."""
    part = material.synthetic
    if part is None:
        return ""
    methods = [method.name for method in part.experiment.methods]
    largest = part.problems[-1]
    table = rejection_table(part.numbers(methods), material.published.synthetic, material.bayes, largest, methods)
    return SYNTHETIC.format(size=int(largest), table=table)


def benchmark_section(material: Material) -> str:
    """Return Figures 2 and 4, the table of risks, the comparison with the published ones, and the further losses."""
    part = material.benchmark
    if part is None:
        return ""
    costs, notes, published = part.experiment.protocol.costs, part.notes, material.published.benchmark
    methods = [method.name for method in part.experiment.methods]
    table = full_table("zoc_risk", part.numbers(methods), published, part.problems, costs, methods, notes)
    sections = [BENCHMARK.format(test=TEST, table=table)]
    if material.compared:
        sections.append("\n".join([COMPARISON, *_comparison_rows(material.compared)]))
    if material.rescaled_compared:
        sections.append("\n".join([RESCALED, *_rescaled_rows(material.compared, material.rescaled_compared)]))
    if part.experiment.more:
        shown = ["CE", *(method.name for method in part.experiment.more)]
        table = full_table("zoc_risk", part.numbers(shown), Numbers(), part.problems, costs, shown, notes)
        sections.append(MORE.format(table=table))
    return "\n\n".join(sections)


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
