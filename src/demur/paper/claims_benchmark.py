"""The paper's statements about the benchmark, each with its test."""

from collections.abc import Iterator

import numpy as np

from demur.costs import PAPER_COSTS
from demur.paper.claims import Claim, Finding, list_of
from demur.paper.numbers import Numbers, Results
from demur.paper.significance import ROUNDING

__all__ = ["BENCHMARK_CLAIMS"]

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
