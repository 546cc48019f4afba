"""The comparison of all losses: what each needs, and its 0-1-c risks with the paper's test."""

from scipy.stats import rankdata

from demur.losses import Loss, get
from demur.paper.records import trace
from demur.paper.trial_means import TEST, Numbers, Results
from demur.theory import check_calibration

__all__ = ["best_counts", "modern_page"]

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
    sections = [head, warning, _summary(results, numbers)]
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


def _summary(results: Results, numbers: Numbers) -> str:
    lines = ["| loss | family | verdict | trainings | best or equivalent | mean rank |", "|---|---|---|---|---|---|"]
    ranks = _mean_ranks(results, numbers)
    for method, counts in best_counts(results):
        loss = get(method)
        trainings = "one per cost" if loss.trained_for_cost else "one for all costs"
        verdict = _verdict(loss, check=not results.experiment.quick)
        lines.append(f"| {method} | {loss.family} | {verdict} | {trainings} | {counts} | {ranks[method]:.1f} |")
    return "\n".join(lines)


def _verdict(loss: Loss, *, check: bool) -> str:
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
