"""The paper's statements about the synthetic experiment, each with its test at the largest training size."""

from functools import partial

from demur.costs import PAPER_COSTS
from demur.datasets import BayesSummary
from demur.paper.claims import Claim, Finding
from demur.paper.numbers import Numbers, Results
from demur.paper.published import LARGEST_SIZE
from demur.paper.significance import ROUNDING

__all__ = ["synthetic_claims"]

NEAR = 0.05
"""A risk is near the best possible one if it is at most 5 % above it."""


def synthetic_claims(bayes: dict[float, BayesSummary], sizes: list[str]) -> tuple[Claim, ...]:
    """Return the claims for some training sizes, of which the last is the largest."""
    largest = sizes[-1]
    over_accept = partial(_rejects_less_than_best, bayes, largest)
    over_reject = partial(_rejects_more_than_best, bayes, largest)
    return (
        Claim(
            f"CE converges to the Bayes-optimal risk (within {NEAR:.0%} of it at the largest size, at every cost)",
            "Section 5, Figure 1",
            partial(_converges, bayes, sizes),
        ),
        Claim("CE is the best or equivalent to the best at the largest size", "Section 5", partial(_ce_best, largest)),
        Claim("OVA+log does no better than CE in spite of its calibration", "Section 5", partial(_ova_behind, largest)),
        Claim("MPC+log with beta acc over-accepts", "Section 5, Table 2", partial(over_accept, "MPC+log+acc")),
        Claim("MPC+log with beta rej over-rejects", "Section 5, Table 2", partial(over_reject, "MPC+log+rej")),
        Claim("APC+log with beta acc over-accepts", "Remark on Theorem 4", partial(over_accept, "APC+log+acc")),
        Claim("APC+log with beta rej over-rejects", "Remark on Theorem 4", partial(over_reject, "APC+log+rej")),
        Claim("APC+exp with beta acc over-accepts", "Remark on Theorem 4", partial(over_accept, "APC+exp+acc")),
        Claim("APC+exp with beta rej over-rejects", "Remark on Theorem 4", partial(over_reject, "APC+exp+rej")),
        Claim(
            "beta acc errs by accepting, beta rej by rejecting (against the Bayes-optimal decision of each point)",
            "Theorem 4, Corollary 5",
            partial(_errs_on_its_side, largest),
        ),
        Claim("MPC+log is less stable between trials than OVA+log and CE", "Section 5", partial(_unstable, largest)),
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


def _ce_best(size: str, numbers: Numbers, results: Results | None) -> Finding:
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


def _rejects_less_than_best(
    bayes: dict[float, BayesSummary], size: str, method: str, numbers: Numbers, results: Results | None
) -> Finding:
    return _rejection(bayes, size, method, numbers, results, sign=-1)


def _rejects_more_than_best(
    bayes: dict[float, BayesSummary], size: str, method: str, numbers: Numbers, results: Results | None
) -> Finding:
    return _rejection(bayes, size, method, numbers, results, sign=1)


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


def _errs_on_its_side(size: str, numbers: Numbers, results: Results | None) -> Finding:
    if results is None:
        return Finding((), ())
    places, shown = [], []
    for family in ("APC+log", "APC+exp", "MPC+log"):
        for side in ("acc", "rej"):
            accepts = rejects = total = 0
            for cost in results.experiment.protocol.costs:
                for score in results.scores.get((size, cost, f"{family}+{side}"), []):
                    accepts += score.false_accepts or 0
                    rejects += score.false_rejects or 0
                    total += score.n
            if total:
                places.append((f"{family} {side}", accepts > rejects if side == "acc" else rejects > accepts))
                shown.append(f"{family} {side} {100 * accepts / total:.1f} / {100 * rejects / total:.1f}")
    return Finding.where(places, f"% false accepts / false rejects over all costs: {'; '.join(shown)}")


def _unstable(size: str, numbers: Numbers, results: Results | None) -> Finding:
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
