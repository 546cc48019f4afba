"""The paper's statements, each with a test on figures: which cells are counted, and in which of them it is true."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from demur.costs import PAPER_COSTS
from demur.datasets import BayesSummary
from demur.paper.population import PopulationErrors
from demur.paper.tables import LARGEST_SIZE
from demur.paper.trial_means import ROUNDING, Numbers, Results

__all__ = ["BENCHMARK_CLAIMS", "SYNTHETIC_CLAIMS", "Claim", "Finding", "Judged", "Known", "Verdict", "judge", "list_of"]

Verdict: TypeAlias = Literal["holds", "mostly holds", "mostly fails", "does not hold", "not tested"]


@dataclass(frozen=True)
class Finding:
    """The places where a statement is true and where it is false, and the evidence.

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
        """Holds if true everywhere, does not hold if true nowhere, otherwise mostly holds or mostly fails.

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
        """The number of places where it is true, of all."""
        return f"{len(self.true_at)} of {len(self.true_at) + len(self.false_at)}"

    @classmethod
    def where(cls, places: Iterable[tuple[str, bool | None]], evidence: str = "") -> "Finding":
        """Sort places by whether the statement is true there; None means that it could not be tested."""
        found = list(places)
        return cls(
            tuple(place for place, true in found if true is True),
            tuple(place for place, true in found if true is False),
            evidence,
        )


Population: TypeAlias = dict[tuple[str, float], PopulationErrors]
"""By method and cost; see :mod:`demur.paper.population`."""


@dataclass(frozen=True)
class Known:
    """What is known about the synthetic data: the Bayes-optimal rule by cost, and the population minimisers."""

    bayes: dict[float, BayesSummary] = field(default_factory=dict)
    population: Population = field(default_factory=dict)


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

    @property
    def problems(self) -> list[str]:
        return list(dict.fromkeys(problem for problem, _ in self.numbers.bold))

    def costs(self, problem: str) -> list[float]:
        return [cost for where, cost in self.numbers.bold if where == problem]

    def risks(self, problem: str, cost: float, *methods: str) -> list[float]:
        """Return the mean risks of some methods; empty unless all are known."""
        found = [self.numbers.mean("zoc_risk", problem, cost, method) for method in methods]
        known = [risk for risk in found if risk is not None]
        return known if len(known) == len(found) else []

    def rejected(self, problem: str, cost: float, method: str) -> float | None:
        return self.numbers.mean("rejection_ratio", problem, cost, method)

    def contested(self) -> Iterator[tuple[str, float, set[str]]]:
        """Yield the cells in which CE has a rival, and the best methods there."""
        for (problem, cost), bold in self.numbers.bold.items():
            rivals = self.numbers.rivals(problem, cost)
            if "CE" in rivals and len(rivals) > 1:
                yield problem, cost, bold


@dataclass(frozen=True)
class Claim:
    """A statement of the paper.

    Parameters
    ----------
    statement : str
        The statement, with what is counted.
    where : str
        Its place in the paper.
    test : callable
        Takes figures and returns a Finding.
    """

    statement: str
    where: str
    test: Callable[[Figures], Finding]


@dataclass(frozen=True)
class Judged:
    """A claim tested on our figures, and on the paper's own tables where they suffice."""

    claim: Claim
    ours: Finding
    paper: Finding | None = None


def judge(claims: Iterable[Claim], results: Results, published: Numbers, known: Known | None = None) -> list[Judged]:
    """Test every claim on our figures, and on the paper's printed ones where these suffice."""
    judged, known = [], known or Known()
    for claim in claims:
        paper = claim.test(Figures(published, None, known)) if published.values else Finding((), ())
        ours = claim.test(Figures(results.paper_numbers, results, known))
        judged.append(Judged(claim, ours, None if paper.verdict == "not tested" else paper))
    return judged


def list_of(places: Iterable[str]) -> str:
    """Return places as a list, grouped by data set.

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


NOT_TESTED = Finding((), ())

EVERYTHING = 0.99
"""From this share on, "everything" is rejected."""

NEAR = 0.05
"""A risk is near the Bayes risk if it is at most 5 % above it."""

REJECTORS = ("APC+log", "APC+exp", "MPC+log")
LOSSES_WITH_A_LINK = ("OVA+log", "CE")


def _ce_best(of: Figures) -> Finding:
    found = Finding.where((f"{problem} {cost:g}", "CE" in bold) for problem, cost, bold in of.contested())
    better = [
        f"{problem} {cost:g}: {min(bold, key=lambda method: of.risks(problem, cost, method))}"
        for problem, cost, bold in of.contested()
        if "CE" not in bold
    ]
    evidence = f"best or equivalent in {found.counts} cells" + (f"; better: {'; '.join(better)}" if better else "")
    return Finding(found.true_at, found.false_at, evidence)


def _ova_loses(of: Figures) -> Finding:
    places = []
    for problem, cost in of.numbers.bold:
        risks = of.risks(problem, cost, "CE", "OVA+log")
        places.append((f"{problem} {cost:g}", risks[0] < risks[1] - ROUNDING if risks else None))
    found = Finding.where(places)
    rest = f", not at {list_of(found.false_at)}" if found.false_at else ""
    return Finding(found.true_at, found.false_at, f"CE's mean risk is lower in {found.counts} cells{rest}")


def _mpc_beats_ova_on_letter(of: Figures) -> Finding:
    pairs = {cost: of.risks("letter", cost, "MPC+log", "OVA+log") for cost in of.costs("letter")}
    known = {cost: pair for cost, pair in pairs.items() if pair}
    shown = ", ".join(f"{mpc:.3f} / {ova:.3f}" for mpc, ova in known.values())
    return Finding.where(
        ((f"letter {cost:g}", mpc < ova - ROUNDING) for cost, (mpc, ova) in known.items()),
        f"mean risks of MPC+log / OVA+log by cost: {shown}",
    )


def _rejectors_reject_yeast(of: Figures) -> Finding:
    places, shown = [], []
    for method in (*REJECTORS, "CE"):
        ratios = {cost: of.rejected("yeast", cost, method) for cost in PAPER_COSTS}
        known = {cost: ratio for cost, ratio in ratios.items() if ratio is not None}
        if method != "CE":
            places += [(f"{method} {cost:g}", ratio >= EVERYTHING) for cost, ratio in known.items()]
        if known or method == "CE":
            shown.append(f"{method} {', '.join(f'{100 * ratio:.1f}' for ratio in known.values())}")
    return Finding.where(places, f"rejected % by cost: {'; '.join(shown)} ({EVERYTHING:.0%} counts as everything)")


def _confidence_answers_yeast(of: Figures) -> Finding:
    found = {method: of.rejected("yeast", 0.4, method) for method in LOSSES_WITH_A_LINK}
    known = {method: ratio for method, ratio in found.items() if ratio is not None}
    shown = " and ".join(f"{method} rejects {100 * ratio:.1f} %" for method, ratio in known.items())
    return Finding.where(
        ((f"{method} 0.4", ratio < EVERYTHING) for method, ratio in known.items()), f"at c = 0.4 {shown}"
    )


def _unstable(of: Figures) -> Finding:
    places, shown = [], []
    methods = ("MPC+log", "OVA+hin", *LOSSES_WITH_A_LINK)
    for problem in of.problems:
        found = [
            [of.numbers.std("zoc_risk", problem, cost, method) for cost in of.costs(problem)] for method in methods
        ]
        known = [float(np.mean([one for one in own if one is not None])) for own in found if any(own)]
        if len(known) == len(methods):
            steady = max(known[2:])
            places += [
                (f"{problem} {method}", value > steady + ROUNDING)
                for method, value in zip(methods[:2], known[:2], strict=True)
            ]
            shown.append(f"{problem} {', '.join(f'{value:.4f}' for value in known)}")
    return Finding.where(
        places,
        f"standard deviation of the risk, mean over costs, of MPC+log, OVA+hin, OVA+log, CE: {'; '.join(shown)}",
    )


def _ova_weak_with_many_classes(of: Figures) -> Finding:
    gaps = {}
    for problem in of.problems:
        pairs = [of.risks(problem, cost, "OVA+log", "CE") for cost in of.costs(problem)]
        ratios = [pair[0] / pair[1] - 1 for pair in pairs if pair]
        if ratios:
            gaps[problem] = float(np.mean(ratios))
    if len(gaps) < 2 or "letter" not in gaps:
        return NOT_TESTED
    shown = ", ".join(f"{problem} {100 * gap:+.0f} %" for problem, gap in gaps.items())
    evidence = f"OVA+log's risk above CE's, mean over costs: {shown}"
    return Finding.where([("letter", max(gaps, key=lambda problem: gaps[problem]) == "letter")], evidence)


def _tau_matters(of: Figures) -> Finding:
    if of.results is None:
        return NOT_TESTED
    places, shown, chosen = [], [], []
    for problem in of.results.problems:
        spreads = []
        for cost in of.results.experiment.protocol.costs:
            for score in of.results.scores.get((problem, cost, "OVA+hin"), []):
                per_decay = np.reshape([np.nan if risk is None else risk for risk in score.rivals], (-1, 5))
                best = per_decay[int(np.nanargmin(np.nanmin(per_decay, axis=1)))]
                spreads.append(float(np.nanmax(best) / max(float(np.nanmin(best)), 1e-9) - 1))
                chosen.append(score.hyper["tau"])
        if spreads:
            places.append((problem, float(np.median(spreads)) > 0.1))
            shown.append(f"{problem} {100 * np.median(spreads):.0f} %")
    return Finding.where(
        places,
        f"validation risk of the worst tau above the best one's, median over trials and costs: {', '.join(shown)} "
        f"(more than 10 % counts); tau = 0 was chosen in {chosen.count(0)} of {len(chosen)} cases",
    )


def _no_refit(of: Figures) -> Finding:
    if of.results is None:
        return NOT_TESTED
    networks: dict[str, int] = {}
    for record in of.results.records:
        name = record.spec["method"]["name"]
        networks[name] = networks.get(name, 0) + record.networks
    places = [
        (method, networks[method] < networks["MPC+log"])
        for method in LOSSES_WITH_A_LINK
        if method in networks and "MPC+log" in networks
    ]
    shown = ", ".join(f"{name} {count}" for name, count in networks.items())
    return Finding.where(places, f"networks trained for the same tables: {shown}")


def _converges(of: Figures) -> Finding:
    if of.results is None:
        return NOT_TESTED
    sizes, places, shown = of.results.problems, [], []
    for cost, best in of.known.bayes.items():
        risks = [risk for size in (sizes[0], sizes[-1]) for risk in of.risks(size, cost, "CE")]
        if len(risks) == 2:
            optimum = best.risk.value
            places.append((f"{cost:g}", risks[1] <= (1 + NEAR) * optimum))
            shown.append(f"c = {cost:g}: {risks[0]:.4f} falls to {risks[1]:.4f}, optimum {optimum:.4f}")
    return Finding.where(places, f"CE's risk from {sizes[0]} to {sizes[-1]} points per class: {'; '.join(shown)}")


def _ce_best_at_largest(of: Figures) -> Finding:
    cells = {cost: bold for size, cost, bold in of.contested() if size == of.largest}
    shown = [f"c = {cost:g}: {', '.join(sorted(bold))}" for cost, bold in cells.items()]
    return Finding.where(
        ((f"{cost:g}", "CE" in bold) for cost, bold in cells.items()),
        f"best and equivalent at {of.largest} points per class: {'; '.join(shown)}",
    )


def _ova_behind(of: Figures) -> Finding:
    pairs = {cost: of.risks(of.largest, cost, *LOSSES_WITH_A_LINK) for cost in PAPER_COSTS}
    known = {cost: pair for cost, pair in pairs.items() if pair}
    shown = ", ".join(f"{ova:.3f} / {ce:.3f}" for ova, ce in known.values())
    return Finding.where(
        ((f"{cost:g}", ova >= ce) for cost, (ova, ce) in known.items()), f"risks of OVA+log / CE by cost: {shown}"
    )


def _errs_to_one_side(method: str, of: Figures) -> Finding:
    """Judge the beta of a loss by its population minimisers; the paper's tables show trained networks only."""
    sign = _side(method)
    trained = _rejects_otherwise(method, sign, of)
    if of.results is None:
        return trained
    own = {cost: errors for (name, cost), errors in of.known.population.items() if name == method}
    if not own:
        return trained
    shown = "; ".join(f"c = {cost:g}: {errors}" for cost, errors in own.items())
    evidence = f"population minimisers, % false accepts / false rejects: {shown}"
    if trained.verdict != "not tested":
        evidence += f". Trained networks: {trained.verdict} ({trained.counts}), {trained.evidence}"
    return Finding.where(((f"{cost:g}", _one_sided(errors, sign)) for cost, errors in own.items()), evidence)


def _side(method: str) -> int:
    """Return -1 for beta acc, which errs by accepting, and 1 for beta rej."""
    return -1 if method.endswith("acc") else 1


def _one_sided(errors: PopulationErrors, sign: int) -> bool:
    accepts, rejects = errors.false_accepts, errors.false_rejects
    return accepts == 0 < rejects if sign > 0 else rejects == 0 < accepts


def _rejects_otherwise(method: str, sign: int, of: Figures) -> Finding:
    """Compare a rejection ratio with the Bayes-optimal one; the paper's with its CE, since its means are unknown."""
    places, shown = [], []
    for cost, best in of.known.bayes.items():
        ratio = of.rejected(of.largest, cost, method)
        reference = of.rejected(of.largest, cost, "CE") if of.results is None else best.rejection_rate.value
        if ratio is not None and reference is not None:
            places.append((f"{cost:g}", sign * (ratio - reference) > 0))
            shown.append(f"c = {cost:g}: {100 * ratio:.1f} against {100 * reference:.1f}")
    against = "CE" if of.results is None else "the Bayes-optimal rule"
    return Finding.where(places, f"% rejected against {against}: {'; '.join(shown)}")


def _errs_on_its_side(of: Figures) -> Finding:
    if of.results is None:
        return NOT_TESTED
    population, shown, trained = of.known.population, [], []
    for method in dict.fromkeys(name for name, _ in population):
        shown.append(f"{method} {PopulationErrors.sum(one for (name, _), one in population.items() if name == method)}")
        scores = [
            score
            for cost in of.results.experiment.protocol.costs
            for score in of.results.scores.get((of.largest, cost, method), [])
        ]
        if scores:
            errors = [sum(getattr(score, name) or 0 for score in scores) for name in ("false_accepts", "false_rejects")]
            n = sum(score.n for score in scores)
            trained.append(f"{method} {' / '.join(f'{100 * count / n:.1f}' for count in errors)}")
    evidence = f"% false accepts / false rejects over all costs, at the population minimisers: {'; '.join(shown)}"
    if trained:
        evidence += f". Trained networks: {'; '.join(trained)}"
    places = [(f"{name} {cost:g}", _one_sided(errors, _side(name))) for (name, cost), errors in population.items()]
    return Finding.where(places, evidence)


def _unstable_at_largest(of: Figures) -> Finding:
    metric = "rejection_ratio" if of.results is None else "zoc_risk"
    places, shown = [], []
    for method in ("MPC+log+acc", "MPC+log+rej"):
        for cost in PAPER_COSTS:
            found = [of.numbers.std(metric, of.largest, cost, name) for name in (method, *LOSSES_WITH_A_LINK)]
            known = [value for value in found if value is not None]
            if len(known) == len(found):
                places.append((f"{method} {cost:g}", known[0] > max(known[1:]) + ROUNDING))
                shown.append(f"{method} {cost:g}: {', '.join(f'{value:.4f}' for value in known)}")
    what = "rejection ratio" if of.results is None else "risk"
    return Finding.where(places, f"standard deviations of the {what} of it, OVA+log, CE: {'; '.join(shown)}")


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

SYNTHETIC_CLAIMS = (
    Claim(
        f"CE converges to the Bayes-optimal risk (within {NEAR:.0%} of it at the largest size, at every cost)",
        "Section 5, Figure 1",
        _converges,
    ),
    Claim("CE is the best or equivalent to the best at the largest size", "Section 5", _ce_best_at_largest),
    Claim("OVA+log does no better than CE in spite of its calibration", "Section 5", _ova_behind),
    *(
        Claim(
            f"{loss} with beta {beta} over-{'accepts' if beta == 'acc' else 'rejects'}",
            "Section 5, Table 2" if loss == "MPC+log" else "Remark on Theorem 4",
            partial(_errs_to_one_side, f"{loss}+{beta}"),
        )
        for loss in ("MPC+log", "APC+log", "APC+exp")
        for beta in ("acc", "rej")
    ),
    Claim(
        "beta acc errs by accepting only, beta rej by rejecting only (against the best decision at each point)",
        "Theorem 4, Corollary 5",
        _errs_on_its_side,
    ),
    Claim("MPC+log is less stable between trials than OVA+log and CE", "Section 5", _unstable_at_largest),
)
"""Statements about the beta of a loss are judged on its population minimisers, which do not depend on how well networks
of three units can be trained; the networks' figures are in the evidence."""
