"""The paper's statements, each with its test on figures: what is counted, where it is true and where it is false."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from demur.costs import PAPER_COSTS
from demur.datasets import BayesSummary
from demur.paper.population import PopulationErrors
from demur.paper.result_tables import LARGEST_SIZE
from demur.paper.trial_means import ROUNDING, Numbers, Results

__all__ = ["BENCHMARK_CLAIMS", "Claim", "Finding", "Judged", "Verdict", "judge", "list_of", "synthetic_claims"]

Verdict: TypeAlias = Literal["holds", "mostly holds", "mostly fails", "does not hold", "not tested"]


@dataclass(frozen=True)
class Finding:
    """Where a statement is true and where it is false, and the figures that show it.

    Parameters
    ----------
    true_at, false_at : tuple of str
    evidence : str
    """

    true_at: tuple[str, ...]
    false_at: tuple[str, ...]
    evidence: str = ""

    @property
    def verdict(self) -> Verdict:
        """Holds if true everywhere, does not hold if true nowhere; between, mostly what is true in more than half.

        Examples
        --------
        >>> Finding(("letter", "vehicle"), ("yeast",)).verdict
        'mostly holds'
        >>> Finding(("letter",), ("yeast",)).verdict
        'mostly fails'
        """
        if not self.true_at and not self.false_at:
            return "not tested"
        if not self.false_at:
            return "holds"
        if not self.true_at:
            return "does not hold"
        return "mostly holds" if len(self.true_at) > len(self.false_at) else "mostly fails"

    @property
    def counts(self) -> str:
        """In how many of the places it is true."""
        return f"{len(self.true_at)} of {len(self.true_at) + len(self.false_at)}"

    @classmethod
    def where(cls, places: Iterable[tuple[str, bool | None]], evidence: str = "") -> "Finding":
        """Sort places by what was found there; None means that nothing could be found out."""
        found = list(places)
        return cls(
            tuple(place for place, true in found if true is True),
            tuple(place for place, true in found if true is False),
            evidence,
        )


@dataclass(frozen=True)
class Claim:
    """A statement of the paper.

    Parameters
    ----------
    statement : str
        In our words, with what is counted.
    where : str
        Where the paper makes it.
    test : callable
        Takes figures and, if they are our own, the results they come from; returns a Finding.
    """

    statement: str
    where: str
    test: Callable[[Numbers, Results | None], Finding]


@dataclass(frozen=True)
class Judged:
    """A claim with what our figures say of it, the paper's own tables, and our figures on features scaled otherwise."""

    claim: Claim
    ours: Finding
    paper: Finding | None = None
    rescaled: Finding | None = None


def judge(
    claims: Iterable[Claim], results: Results, published: Numbers, rescaled: Results | None = None
) -> list[Judged]:
    """Test every claim on our figures, and on the paper's printed ones where these suffice."""
    ours = _numbers(results)
    others = Numbers() if rescaled is None else _numbers(rescaled)
    return [
        Judged(
            claim,
            ours=claim.test(ours, results),
            paper=_if_tested(claim.test(published, None)) if published.values else None,
            rescaled=None if rescaled is None else _if_tested(claim.test(others, rescaled)),
        )
        for claim in claims
    ]


def _numbers(results: Results) -> Numbers:
    return results.numbers([method.name for method in results.experiment.methods])


def _if_tested(finding: Finding) -> Finding | None:
    return None if finding.verdict == "not tested" else finding


def list_of(places: Iterable[str]) -> str:
    """Write places as a list, those of the same data set together: "yeast 0.05, 0.1; letter 0.4".

    Examples
    --------
    >>> list_of(["yeast 0.05", "yeast 0.1", "letter 0.4"])
    'yeast 0.05, 0.1; letter 0.4'
    """
    groups: dict[str, list[str]] = {}
    for place in places:
        head, _, tail = place.rpartition(" ")
        groups.setdefault(head, []).append(tail)
    return "; ".join(f"{head} {', '.join(tails)}".strip() for head, tails in groups.items())


EVERYTHING = 0.99
"""From this share on, "everything" is rejected."""

REJECTORS = ("APC+log", "APC+exp", "MPC+log")
LOSSES_WITH_A_LINK = ("OVA+log", "CE")


def _cells(numbers: Numbers) -> Iterator[tuple[str, float]]:
    yield from numbers.bold


def _problems(numbers: Numbers) -> list[str]:
    return list(dict.fromkeys(problem for problem, _ in numbers.bold))


def _lower(numbers: Numbers, problem: str, cost: float, first: str, second: str) -> bool | None:
    """Return whether the first method's mean risk is lower than the second's."""
    a, b = (numbers.mean("zoc_risk", problem, cost, method) for method in (first, second))
    return None if a is None or b is None else a < b - ROUNDING


def _lowest(numbers: Numbers, problem: str, cost: float) -> str:
    """Return the method with the lowest mean risk among the bold ones."""
    return min(numbers.bold[problem, cost], key=lambda method: numbers.mean("zoc_risk", problem, cost, method) or 0.0)


def _ce_best(numbers: Numbers, results: Results | None) -> Finding:
    places = [
        (f"{problem} {cost:g}", "CE" in numbers.bold[problem, cost])
        for problem, cost in _cells(numbers)
        if "CE" in numbers.rivals(problem, cost) and len(numbers.rivals(problem, cost)) > 1
    ]
    finding = Finding.where(places)
    rivals = [
        f"{problem} {cost:g}: {_lowest(numbers, problem, cost)}"
        for problem, cost in _cells(numbers)
        if f"{problem} {cost:g}" in finding.false_at
    ]
    evidence = f"best or equivalent in {finding.counts} cells"
    return Finding(finding.true_at, finding.false_at, evidence + (f"; better: {'; '.join(rivals)}" if rivals else ""))


def _ova_loses(numbers: Numbers, results: Results | None) -> Finding:
    finding = Finding.where(
        (f"{problem} {cost:g}", _lower(numbers, problem, cost, "CE", "OVA+log")) for problem, cost in _cells(numbers)
    )
    evidence = f"CE's mean risk is lower in {finding.counts} cells"
    if finding.false_at:
        evidence += f", not at {list_of(finding.false_at)}"
    return Finding(finding.true_at, finding.false_at, evidence)


def _mpc_beats_ova_on_letter(numbers: Numbers, results: Results | None) -> Finding:
    costs = [cost for problem, cost in _cells(numbers) if problem == "letter"]
    pairs = []
    for cost in costs:
        a, b = (numbers.mean("zoc_risk", "letter", cost, method) for method in ("MPC+log", "OVA+log"))
        if a is not None and b is not None:
            pairs.append(f"{a:.3f} / {b:.3f}")
    return Finding.where(
        ((f"letter {cost:g}", _lower(numbers, "letter", cost, "MPC+log", "OVA+log")) for cost in costs),
        f"mean risks of MPC+log / OVA+log by cost: {', '.join(pairs)}",
    )


def _rejectors_reject_yeast(numbers: Numbers, results: Results | None) -> Finding:
    places, shown = [], []
    for method in REJECTORS:
        ratios = {cost: numbers.mean("rejection_ratio", "yeast", cost, method) for cost in PAPER_COSTS}
        known = {cost: ratio for cost, ratio in ratios.items() if ratio is not None}
        places += [(f"{method} {cost:g}", ratio >= EVERYTHING) for cost, ratio in known.items()]
        if known:
            shown.append(f"{method} {', '.join(f'{100 * ratio:.1f}' for ratio in known.values())}")
    ce = [numbers.mean("rejection_ratio", "yeast", cost, "CE") for cost in PAPER_COSTS]
    shown.append(f"CE {', '.join(f'{100 * ratio:.1f}' for ratio in ce if ratio is not None)}")
    return Finding.where(places, f"rejected % by cost: {'; '.join(shown)} ({EVERYTHING:.0%} counts as everything)")


def _confidence_answers_yeast(numbers: Numbers, results: Results | None) -> Finding:
    places, shown = [], []
    for method in LOSSES_WITH_A_LINK:
        ratio = numbers.mean("rejection_ratio", "yeast", 0.4, method)
        if ratio is not None:
            places.append((f"{method} 0.4", ratio < EVERYTHING))
            shown.append(f"{method} rejects {100 * ratio:.1f} %")
    return Finding.where(places, f"at c = 0.4 {' and '.join(shown)}")


def _unstable(numbers: Numbers, results: Results | None) -> Finding:
    places, shown = [], []
    for problem in _problems(numbers):
        deviations = {
            method: _mean_deviation(numbers, problem, method) for method in ("MPC+log", "OVA+hin", *LOSSES_WITH_A_LINK)
        }
        if any(value is None for value in deviations.values()):
            continue
        known = {method: value for method, value in deviations.items() if value is not None}
        steady = max(known[method] for method in LOSSES_WITH_A_LINK)
        places += [(f"{problem} {method}", known[method] > steady + ROUNDING) for method in ("MPC+log", "OVA+hin")]
        shown.append(f"{problem} {', '.join(f'{value:.4f}' for value in known.values())}")
    return Finding.where(
        places,
        f"standard deviation of the risk, mean over costs, of MPC+log, OVA+hin, OVA+log, CE: {'; '.join(shown)}",
    )


def _mean_deviation(numbers: Numbers, problem: str, method: str) -> float | None:
    found = [numbers.std("zoc_risk", problem, cost, method) for where, cost in _cells(numbers) if where == problem]
    known = [value for value in found if value is not None]
    return float(np.mean(known)) if known else None


def _ova_weak_with_many_classes(numbers: Numbers, results: Results | None) -> Finding:
    gaps = {}
    for problem in _problems(numbers):
        costs = [cost for where, cost in _cells(numbers) if where == problem]
        pairs = [
            (numbers.mean("zoc_risk", problem, cost, "OVA+log"), numbers.mean("zoc_risk", problem, cost, "CE"))
            for cost in costs
        ]
        ratios = [a / b - 1 for a, b in pairs if a is not None and b is not None]
        if ratios:
            gaps[problem] = float(np.mean(ratios))
    if len(gaps) < 2 or "letter" not in gaps:
        return Finding((), ())
    shown = ", ".join(f"{problem} {100 * gap:+.0f} %" for problem, gap in gaps.items())
    evidence = f"OVA+log's risk above CE's, mean over costs: {shown}"
    return Finding.where([("letter", max(gaps, key=lambda problem: gaps[problem]) == "letter")], evidence)


def _tau_matters(numbers: Numbers, results: Results | None) -> Finding:
    if results is None:
        return Finding((), ())
    places, shown, chosen_zero, chosen_all = [], [], 0, 0
    for problem in results.problems:
        spreads = []
        for cost in results.experiment.protocol.costs:
            for score in results.scores.get((problem, cost, "OVA+hin"), []):
                per_decay = np.reshape([np.nan if risk is None else risk for risk in score.rivals], (-1, 5))
                best = per_decay[int(np.nanargmin(np.nanmin(per_decay, axis=1)))]
                spreads.append(float(np.nanmax(best) / max(float(np.nanmin(best)), 1e-9) - 1))
                chosen_zero += score.hyper["tau"] == 0
                chosen_all += 1
        if spreads:
            places.append((problem, float(np.median(spreads)) > 0.1))
            shown.append(f"{problem} {100 * np.median(spreads):.0f} %")
    if not places:
        return Finding((), ())
    return Finding.where(
        places,
        f"validation risk of the worst tau above the best one's, median over trials and costs: {', '.join(shown)} "
        f"(more than 10 % counts); tau = 0 was chosen in {chosen_zero} of {chosen_all} cases",
    )


def _no_refit(numbers: Numbers, results: Results | None) -> Finding:
    if results is None:
        return Finding((), ())
    networks: dict[str, int] = {}
    for record in results.records:
        name = record.spec["method"]["name"]
        networks[name] = networks.get(name, 0) + record.networks
    places = [
        (method, networks[method] < networks["MPC+log"])
        for method in LOSSES_WITH_A_LINK
        if method in networks and "MPC+log" in networks
    ]
    shown = ", ".join(f"{name} {count}" for name, count in networks.items())
    return Finding.where(places, f"networks trained for the same tables: {shown}")


BENCHMARK_CLAIMS = (
    Claim("CE is the best or equivalent to the best, on every data set at every cost", "Section 5, Figure 2", _ce_best),
    Claim("OVA+log loses to CE on every data set at every cost", "Section 5", _ova_loses),
    Claim("MPC+log beats OVA+log on letter", "Section 5", _mpc_beats_ova_on_letter),
    Claim(
        "classifier-rejector methods reject everything on yeast, at every cost", "Section 5", _rejectors_reject_yeast
    ),
    Claim("confidence-based methods still answer on yeast when c is large", "Section 5", _confidence_answers_yeast),
    Claim("MPC+log and OVA+hin vary more between trials than OVA+log and CE", "Section 5", _unstable),
    Claim(
        "OVA+log falls behind CE most on letter, which has the most classes", "Section 5", _ova_weak_with_many_classes
    ),
    Claim("OVA+hin depends on its threshold tau, so that tau = 0 is not enough", "Section 5", _tau_matters),
    Claim("OVA+log and CE serve every cost with one training", "Section 5", _no_refit),
)


NEAR = 0.05
"""A risk is near the best possible one if it is at most 5 % above it."""


Population: TypeAlias = dict[tuple[str, float], PopulationErrors]
"""By method and cost; see :mod:`demur.paper.population`."""


def synthetic_claims(bayes: dict[float, BayesSummary], sizes: list[str], population: Population) -> tuple[Claim, ...]:
    """Return the claims for some training sizes, of which the last is the largest.

    What is said of a loss's beta is judged on its population minimisers, which have nothing to do with how well
    networks of three units can be trained; what these did is in the evidence.
    """
    largest = sizes[-1]
    over_accept = partial(_errs_to_one_side, bayes, population, largest, -1)
    over_reject = partial(_errs_to_one_side, bayes, population, largest, 1)
    return (
        Claim(
            f"CE converges to the Bayes-optimal risk (within {NEAR:.0%} of it at the largest size, at every cost)",
            "Section 5, Figure 1",
            partial(_converges, bayes, sizes),
        ),
        Claim(
            "CE is the best or equivalent to the best at the largest size", "Section 5", partial(_ce_best_at, largest)
        ),
        Claim("OVA+log does no better than CE in spite of its calibration", "Section 5", partial(_ova_behind, largest)),
        Claim("MPC+log with beta acc over-accepts", "Section 5, Table 2", partial(over_accept, "MPC+log+acc")),
        Claim("MPC+log with beta rej over-rejects", "Section 5, Table 2", partial(over_reject, "MPC+log+rej")),
        Claim("APC+log with beta acc over-accepts", "Remark on Theorem 4", partial(over_accept, "APC+log+acc")),
        Claim("APC+log with beta rej over-rejects", "Remark on Theorem 4", partial(over_reject, "APC+log+rej")),
        Claim("APC+exp with beta acc over-accepts", "Remark on Theorem 4", partial(over_accept, "APC+exp+acc")),
        Claim("APC+exp with beta rej over-rejects", "Remark on Theorem 4", partial(over_reject, "APC+exp+rej")),
        Claim(
            "beta acc errs by accepting only, beta rej by rejecting only (against the best decision at each point)",
            "Theorem 4, Corollary 5",
            partial(_errs_on_its_side, population, largest),
        ),
        Claim("MPC+log is less stable between trials than OVA+log and CE", "Section 5", partial(_unstable_at, largest)),
    )


def _converges(
    bayes: dict[float, BayesSummary], sizes: list[str], numbers: Numbers, results: Results | None
) -> Finding:
    places, shown = [], []
    for cost, best in bayes.items():
        first, last = (numbers.mean("zoc_risk", size, cost, "CE") for size in (sizes[0], sizes[-1]))
        if first is None or last is None:
            continue
        optimum = best.risk.value
        places.append((f"{cost:g}", last <= (1 + NEAR) * optimum))
        shown.append(f"c = {cost:g}: {first:.4f} falls to {last:.4f}, optimum {optimum:.4f}")
    return Finding.where(places, f"CE's risk from {sizes[0]} to {sizes[-1]} points per class: {'; '.join(shown)}")


def _ce_best_at(size: str, numbers: Numbers, results: Results | None) -> Finding:
    cells = {
        cost: bold
        for (problem, cost), bold in numbers.bold.items()
        if problem == size and "CE" in numbers.rivals(size, cost) and len(numbers.rivals(size, cost)) > 1
    }
    places = [(f"{cost:g}", "CE" in bold) for cost, bold in cells.items()]
    shown = [f"c = {cost:g}: {', '.join(sorted(bold))}" for cost, bold in cells.items()]
    return Finding.where(places, f"best and equivalent at {size} points per class: {'; '.join(shown)}")


def _ova_behind(size: str, numbers: Numbers, results: Results | None) -> Finding:
    places, shown = [], []
    for cost in PAPER_COSTS:
        ova, ce = (numbers.mean("zoc_risk", size, cost, method) for method in ("OVA+log", "CE"))
        if ova is not None and ce is not None:
            places.append((f"{cost:g}", ova >= ce))
            shown.append(f"{ova:.3f} / {ce:.3f}")
    return Finding.where(places, f"risks of OVA+log / CE by cost: {', '.join(shown)}")


def _errs_to_one_side(
    bayes: dict[float, BayesSummary],
    population: Population,
    size: str,
    sign: int,
    method: str,
    numbers: Numbers,
    results: Results | None,
) -> Finding:
    """Find whether a method rejects too little (sign -1) or too much (sign 1), as trained and at its minimiser."""
    trained = _rejection(bayes, size, method, numbers, results, sign=sign)
    return trained if results is None else _at_the_minimum(population, method, trained, sign=sign)


def _at_the_minimum(population: Population, method: str, trained: Finding, *, sign: int) -> Finding:
    """Judge a beta by its population minimisers: errors on its own side and none on the other."""
    places, shown = [], []
    for (name, cost), errors in population.items():
        if name == method:
            places.append((f"{cost:g}", _one_sided(errors, sign)))
            shown.append(f"c = {cost:g}: {errors}")
    if not places:
        return trained
    evidence = f"population minimisers, % false accepts / false rejects: {'; '.join(shown)}"
    if trained.evidence and trained.verdict != "not tested":
        evidence += f". Trained networks: {trained.verdict} ({trained.counts}), {trained.evidence}"
    return Finding.where(places, evidence)


def _one_sided(errors: PopulationErrors, sign: int) -> bool:
    own, other = errors.false_rejects, errors.false_accepts
    own, other = (own, other) if sign > 0 else (other, own)
    return own > 0 and other == 0


def _rejection(
    bayes: dict[float, BayesSummary], size: str, method: str, numbers: Numbers, results: Results | None, sign: int
) -> Finding:
    """Compare a rejection ratio with the best possible rule's; the paper's with its own CE, as its means are lost."""
    places, shown = [], []
    for cost, best in bayes.items():
        at = LARGEST_SIZE if results is None else size
        ratio = numbers.mean("rejection_ratio", at, cost, method)
        reference = numbers.mean("rejection_ratio", at, cost, "CE") if results is None else best.rejection_rate.value
        if ratio is None or reference is None:
            continue
        places.append((f"{cost:g}", sign * (ratio - reference) > 0))
        shown.append(f"c = {cost:g}: {100 * ratio:.1f} against {100 * reference:.1f}")
    against = "CE" if results is None else "the Bayes-optimal rule"
    return Finding.where(places, f"% rejected against {against}: {'; '.join(shown)}")


def _errs_on_its_side(population: Population, size: str, numbers: Numbers, results: Results | None) -> Finding:
    if results is None:
        return Finding((), ())
    places = [
        (f"{method} {cost:g}", _one_sided(errors, -1 if method.endswith("acc") else 1))
        for (method, cost), errors in population.items()
    ]
    shown, trained = [], []
    for method in dict.fromkeys(method for method, _ in population):
        every = [errors for (name, _), errors in population.items() if name == method]
        total = PopulationErrors(
            sum(one.n for one in every),
            sum(one.false_accepts for one in every),
            sum(one.false_rejects for one in every),
        )
        shown.append(f"{method} {total}")
        scores = [
            score
            for cost in results.experiment.protocol.costs
            for score in results.scores.get((size, cost, method), [])
        ]
        if scores:
            n = sum(score.n for score in scores)
            accepts = sum(score.false_accepts or 0 for score in scores)
            rejects = sum(score.false_rejects or 0 for score in scores)
            trained.append(f"{method} {100 * accepts / n:.1f} / {100 * rejects / n:.1f}")
    evidence = f"% false accepts / false rejects over all costs, at the population minimisers: {'; '.join(shown)}"
    if trained:
        evidence += f". Trained networks: {'; '.join(trained)}"
    return Finding.where(places, evidence)


def _unstable_at(size: str, numbers: Numbers, results: Results | None) -> Finding:
    places, shown = [], []
    for method in ("MPC+log+acc", "MPC+log+rej"):
        for cost in PAPER_COSTS:
            metric, at = ("rejection_ratio", LARGEST_SIZE) if results is None else ("zoc_risk", size)
            deviations = [numbers.std(metric, at, cost, name) for name in (method, "OVA+log", "CE")]
            known = [value for value in deviations if value is not None]
            if len(known) == 3:
                places.append((f"{method} {cost:g}", known[0] > max(known[1:]) + ROUNDING))
                shown.append(f"{method} {cost:g}: {', '.join(f'{value:.4f}' for value in known)}")
    what = "rejection ratio" if results is None else "risk"
    return Finding.where(places, f"standard deviations of the {what} of it, OVA+log, CE: {'; '.join(shown)}")
