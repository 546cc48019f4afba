"""The paper's statements, each with a test that finds the cases in which it is true."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from demur.costs import PAPER_COSTS
from demur.datasets import BayesSummary
from demur.paper.population import PopulationErrors
from demur.paper.trial_means import LARGEST_SIZE, ROUNDING, Numbers, Results

Verdict: TypeAlias = Literal["holds", "mostly holds", "mostly fails", "does not hold", "not tested"]
Cases: TypeAlias = Iterator[tuple[str, bool]]
"""The cases in which a statement is tested, by name, and whether it is true there."""


class Finding(NamedTuple):
    """The cases in which a statement is true, and those in which it is false."""

    true_at: tuple[str, ...]
    false_at: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """Holds if true in all cases, does not hold if true in none, otherwise mostly holds or mostly fails.

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
        """The number of cases in which it is true, of all."""
        return f"{len(self.true_at)} of {len(self.true_at) + len(self.false_at)}"

    @property
    def exceptions(self) -> str:
        """The cases that differ from most; empty if there are none.

        Examples
        --------
        >>> Finding(("vehicle 0.1", "letter 0.1", "letter 0.2"), ("yeast 0.1", "yeast 0.2")).exceptions
        'not for yeast 0.1, 0.2'
        """
        if self.verdict == "mostly holds":
            return f"not for {list_of(self.false_at)}"
        return f"only for {list_of(self.true_at)}" if self.verdict == "mostly fails" else ""


def list_of(places: Iterable[str]) -> str:
    """Return places as a list, grouped by everything before the last word.

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


@dataclass(frozen=True)
class Known:
    """Exact results on the synthetic data: the Bayes-optimal rule by cost, and the population minimisers.

    The errors of the minimisers are by method and cost; see :mod:`demur.paper.population`.
    """

    bayes: dict[float, BayesSummary] = field(default_factory=dict)
    population: dict[tuple[str, float], PopulationErrors] = field(default_factory=dict)


@dataclass(frozen=True)
class Figures:
    """Figures that a statement is tested on: ours, with the results they come from, or the paper's.

    Parameters
    ----------
    numbers : Numbers
    results : Results or None
        None for the paper's figures.
    known : Known
    """

    numbers: Numbers
    results: Results | None = None
    known: Known = Known()

    @property
    def largest(self) -> str:
        """The largest training size."""
        return LARGEST_SIZE if self.results is None else self.results.problems[-1]

    def values(self, metric: str, *methods: str, std: bool = False) -> Iterator[tuple[str, float, list[float]]]:
        """Yield problem, cost, and the means (or deviations) of some methods, where all of them are known."""
        name = "std" if std else "mean"
        for problem, cost in dict.fromkeys(key[1:3] for key in self.numbers.values):
            values = (self.numbers.values.get((metric, problem, cost, method)) for method in methods)
            found: list[Any] = [getattr(value, name, None) for value in values]
            if None not in found:
                yield problem, cost, found


class Claim(NamedTuple):
    """A statement of the paper.

    Parameters
    ----------
    statement : str
        The statement, with what is counted.
    where : str
        Its place in the paper.
    test : callable
        Takes figures and yields the cases.
    """

    statement: str
    where: str
    test: Callable[[Figures], Cases]

    def find(self, figures: Figures) -> Finding:
        """Test the statement."""
        cases = list(self.test(figures))
        true, false = (tuple(place for place, holds in cases if holds is wanted) for wanted in (True, False))
        return Finding(true, false)


class Judged(NamedTuple):
    """A claim tested on our figures, and on the paper's own tables."""

    claim: Claim
    ours: Finding
    paper: Finding


def judge(claims: Iterable[Claim], results: Results, published: Numbers, known: Known | None = None) -> list[Judged]:
    """Test every claim on our figures and on the paper's printed ones."""
    ours, paper = Figures(results.paper_numbers, results, known or Known()), Figures(published)
    return [Judged(claim, claim.find(ours), claim.find(paper)) for claim in claims]


EVERYTHING = 0.99
"""Least rejected share that counts as "everything"."""

NEAR = 0.05
"""A risk is near the Bayes risk if it is at most 5 % above it."""

REJECTORS = ("APC+log", "APC+exp", "MPC+log")
LOSSES_WITH_A_LINK = ("OVA+log", "CE")


def _ce_best(of: Figures, *, at_largest: bool = False) -> Cases:
    for (problem, cost), bold in of.numbers.bold.items():
        rivals = of.numbers.rivals(problem, cost)
        if "CE" in rivals and len(rivals) > 1 and (not at_largest or problem == of.largest):
            yield f"{problem} {cost:g}", "CE" in bold


def _lower_risk(lower: str, higher: str, of: Figures, *, problem: str = "") -> Cases:
    for where, cost, (one, other) in of.values("zoc_risk", lower, higher):
        if problem in ("", where):
            yield f"{where} {cost:g}", one < other - ROUNDING


def _rejects_yeast(methods: tuple[str, ...], costs: tuple[float, ...], of: Figures, *, rejects: bool = True) -> Cases:
    for method in methods:
        for problem, cost, (ratio,) in of.values("rejection_ratio", method):
            if problem == "yeast" and cost in costs:
                yield f"{method} {cost:g}", (ratio >= EVERYTHING) == rejects


def _unstable(of: Figures, *methods: str, metric: str = "zoc_risk", at_largest: bool = False) -> Cases:
    for method in methods:
        for problem, cost, (own, *others) in of.values(metric, method, *LOSSES_WITH_A_LINK, std=True):
            if not at_largest or problem == of.largest:
                yield f"{method} {problem} {cost:g}", own > max(others) + ROUNDING


def _ova_weak_with_many_classes(of: Figures) -> Cases:
    ratios: dict[str, list[float]] = {}
    for problem, _, (ova, ce) in of.values("zoc_risk", *LOSSES_WITH_A_LINK):
        ratios.setdefault(problem, []).append(ova / ce)
    if len(ratios) > 1 and "letter" in ratios:
        yield "letter", max(ratios, key=lambda problem: float(np.mean(ratios[problem]))) == "letter"


def _tau_matters(of: Figures) -> Cases:
    """Count a data set if the worst tau has a validation risk of 10 % above the best one's, in the median."""
    if of.results is None:
        return
    for problem in of.results.problems:
        spreads = []
        for cost in of.results.experiment.protocol.costs:
            for score in of.results.scores.get((problem, cost, "OVA+hin"), []):
                per_decay = np.array(score.rivals, float).reshape(-1, 5)
                best = per_decay[int(np.nanargmin(np.nanmin(per_decay, axis=1)))]
                spreads.append(float(np.nanmax(best) / max(float(np.nanmin(best)), 1e-9) - 1))
        if spreads:
            yield problem, float(np.median(spreads)) > 0.1


def _no_refit(of: Figures) -> Cases:
    networks: dict[str, int] = {}
    for record in [] if of.results is None else of.results.records:
        name = record.spec["method"]["name"]
        networks[name] = networks.get(name, 0) + record.networks
    for method in LOSSES_WITH_A_LINK:
        if method in networks and "MPC+log" in networks:
            yield method, networks[method] < networks["MPC+log"]


def _converges(of: Figures) -> Cases:
    for problem, cost, (risk,) in of.values("zoc_risk", "CE"):
        if problem == of.largest and cost in of.known.bayes:
            yield f"{cost:g}", risk <= (1 + NEAR) * of.known.bayes[cost].risk.value


def _ova_behind(of: Figures) -> Cases:
    for problem, cost, (ova, ce) in of.values("zoc_risk", *LOSSES_WITH_A_LINK):
        if problem == of.largest:
            yield f"{cost:g}", ova >= ce


def _errs_to_one_side(method: str, of: Figures) -> Cases:
    """Judge beta by the population minimisers; on the paper's tables, by the rejection ratios of method and CE."""
    sign = -1 if method.endswith("acc") else 1
    if of.results is None:
        for _, cost, (own, ce) in of.values("rejection_ratio", method, "CE"):
            yield f"{cost:g}", sign * (own - ce) > 0
        return
    for (name, cost), errors in of.known.population.items():
        if name == method:
            other, own = (errors.false_accepts, errors.false_rejects)[::sign]
            yield f"{cost:g}", other == 0 < own


BENCHMARK_CLAIMS = (
    Claim("CE is the best or equivalent to the best, on every data set at every cost", "Section 5, Figure 2", _ce_best),
    Claim("OVA+log loses to CE on every data set at every cost", "Section 5", partial(_lower_risk, "CE", "OVA+log")),
    Claim("MPC+log beats OVA+log on letter", "Section 5", partial(_lower_risk, "MPC+log", "OVA+log", problem="letter")),
    Claim(
        f"classifier-rejector methods reject everything (at least {EVERYTHING:.0%}) on yeast, at every cost",
        "Section 5",
        partial(_rejects_yeast, REJECTORS, PAPER_COSTS),
    ),
    Claim(
        "confidence-based methods still answer on yeast when c is large",
        "Section 5",
        partial(_rejects_yeast, LOSSES_WITH_A_LINK, PAPER_COSTS[-1:], rejects=False),
    ),
    Claim(
        "MPC+log and OVA+hin vary more between trials than OVA+log and CE",
        "Section 5",
        lambda of: _unstable(of, "MPC+log", "OVA+hin"),
    ),
    Claim(
        "OVA+log falls behind CE most on letter, which has the most classes", "Section 5", _ova_weak_with_many_classes
    ),
    Claim("OVA+hin depends on its threshold tau, so that tau = 0 is not enough", "Section 5", _tau_matters),
    Claim("OVA+log and CE serve every cost with one training", "Section 5", _no_refit),
)

SYNTHETIC_CLAIMS = (
    Claim(
        f"CE converges to the Bayes-optimal risk (within {NEAR:.0%} of it at the largest size, at every cost)",
        "Section 5, Figure 1",
        _converges,
    ),
    Claim(
        "CE is the best or equivalent to the best at the largest size", "Section 5", partial(_ce_best, at_largest=True)
    ),
    Claim("OVA+log does no better than CE in spite of its calibration", "Section 5", _ova_behind),
    *(
        Claim(
            f"{loss} with beta {beta} errs only by {'accepting' if beta == 'acc' else 'rejecting'}",
            "Section 5, Table 2" if loss == "MPC+log" else "Theorem 4, Corollary 5",
            partial(_errs_to_one_side, f"{loss}+{beta}"),
        )
        for loss in ("MPC+log", "APC+log", "APC+exp")
        for beta in ("acc", "rej")
    ),
    Claim(
        "MPC+log is less stable between trials than OVA+log and CE",
        "Section 5",
        lambda of: _unstable(
            of,
            *("MPC+log+acc", "MPC+log+rej"),
            metric="rejection_ratio" if of.results is None else "zoc_risk",
            at_largest=True,
        ),
    ),
)
"""Statements about the beta of a loss are judged on its population minimisers, which do not depend on how well networks
of three units can be trained."""
