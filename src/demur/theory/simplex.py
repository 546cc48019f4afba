"""Class probabilities worth trying: the extremes, the neighbourhood of the boundary, ties, zeros, and random ones.

Every function returns float64 tensors of shape (n_rows, n_classes). Unless said otherwise, class 0 is on top.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from demur.array_types import Floats
from demur.theory.bayes import Target
from demur.theory.examined_loss import ExaminedLoss, draw_towards
from demur.theory.pointwise_risk import RiskProblem, equal_values

Region: TypeAlias = Literal["answer", "reject", "boundary"]
"""Where max eta >= 1 - c, where it is <= 1 - c, and where it equals 1 - c."""

NEAREST = 1e-5
"""The least distance of max eta from 1 - c: nearer, a wrong decision costs less than the minimiser's accuracy."""
SMALL_SHARES = (0.003, 0.01, 0.03, 0.1)
"""Share of the last class in the probability of all but the largest: a loss may be flat for very rare classes."""


def tops_around(cost: float, n_classes: int) -> Tensor:
    """Return values of max eta on both sides of 1 - c, most of them close to it.

    Examples
    --------
    >>> tops_around(0.2, 3).numpy().round(3)[[0, 1, 4, 5, -1]]
    array([0.8  , 0.8  , 0.801, 0.799, 0.333])
    """
    step = torch.tensor([NEAREST, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 0.95, 0.9999], dtype=torch.float64)
    threshold, lowest = 1 - cost, 1 / n_classes
    above = threshold + torch.where(step < 0.05, step, step * cost)
    below = threshold - torch.where(step < 0.05, step, step * (threshold - lowest))
    tops = torch.stack([above, below], -1).reshape(-1)
    distinct = (tops - threshold).abs() >= NEAREST * (1 - 1e-6)
    return tops[distinct & (tops < 1) & (tops > lowest)]


def structured_eta(tops: Tensor, n_classes: int) -> Tensor:
    """Return each top with the rest spread in extreme ways: equally over m classes, or most of it on one class.

    Examples
    --------
    >>> structured_eta(torch.tensor([0.8], dtype=torch.float64), 3)[:4].round(decimals=4).tolist()
    [[0.8, 0.1, 0.1], [0.8, 0.2, 0.0], [0.8, 0.1998, 0.0002], [0.8, 0.15, 0.05]]
    """
    rest = n_classes - 1
    sizes = sorted({rest, rest - 1, n_classes // 2, 3, 2, 1}, reverse=True)
    shapes = [_first(m, rest) for m in sizes if 1 <= m <= rest]
    if rest > 1:
        likeliest, others, last = _first(1, rest), _first(rest - 1, rest).flip(0), _first(1, rest).flip(0)
        rare = [(0.001, others), (0.25, others), *((share, last) for share in SMALL_SHARES)]
        shapes += [(1 - share) * likeliest + share * where for share, where in rare]
    spread = torch.stack(shapes)
    top = tops.repeat_interleave(len(spread)).unsqueeze(-1)
    eta = torch.cat([top, (1 - top) * spread.repeat(len(tops), 1)], -1)
    return eta[eta[:, 1:].amax(-1) < eta[:, 0]]


def over_all_classes(eta: Tensor, limit: int) -> Tensor:
    """Return the rows with every class on top in turn, at most ``limit`` of them, each class equally often.

    Examples
    --------
    >>> over_all_classes(torch.tensor([[0.8, 0.2, 0.0]]), limit=3)
    tensor([[0.8000, 0.2000, 0.0000],
            [0.0000, 0.8000, 0.2000],
            [0.2000, 0.0000, 0.8000]])
    """
    n_rows, n_classes = eta.shape
    kept = max(1, min(n_rows, limit // n_classes))
    chosen = eta[torch.linspace(0, n_rows - 1, kept).round().long()]
    rows = torch.stack([chosen.roll(shift, -1) for shift in range(n_classes)], 1)
    # Every other row backwards, so that what is left of the probability is not dealt out in one direction only.
    rows[1::2] = rows[1::2].flip(-1)
    return rows.reshape(-1, n_classes)


def random_eta(target: Target, n_pairs: int, generator: torch.Generator, *, tied: bool = False) -> Tensor:
    """Return random rows on both sides of the boundaries between decisions, from a thousandth near to far.

    Pairs of random eta with different best decisions are joined by a segment, and the place where the best decision
    changes is found by bisection. There are at most ten rows for each pair.

    Parameters
    ----------
    target : Target
    n_pairs : int
    generator : Generator
    tied : bool
        Whether all classes but the first share three values: small problems for any number of classes.

    Examples
    --------
    >>> from demur.theory.bayes import as_target
    >>> target = as_target([0.1, 0.3, 0.3], 3)
    >>> eta = random_eta(target, 20, torch.Generator().manual_seed(0))
    >>> bool((target.clearance(eta) < 0.05).any()), sorted(set(target.best(eta).tolist()))
    (True, [-1, 0, 1, 2])
    """
    n_draws = 4 * n_pairs
    shape = (n_draws, target.n_classes)
    power = torch.tensor([0.3, 1.0, 3.0, 8.0], dtype=torch.float64)[torch.arange(n_draws) % 4].unsqueeze(-1)
    groups = torch.randint(1, 4, shape, generator=generator)
    groups[:, 0] = 0
    if not tied:
        groups = torch.arange(target.n_classes).expand(shape)
    ends = []
    for _ in range(2):
        values = torch.empty(n_draws, 4 if tied else target.n_classes, dtype=torch.float64)
        draws = values.exponential_(generator=generator).gather(-1, groups)
        ends.append(draws**power / (draws**power).sum(-1, keepdim=True))
    one, other = ends
    # Most classes are rarely likely enough to be answered: lift one class, the first where the others are tied.
    place = groups[:, 0] if tied else torch.randint(target.n_classes, (n_draws,), generator=generator)
    weight = torch.rand(n_draws, 1, generator=generator, dtype=torch.float64) ** 0.25
    one = (1 - weight) * one + weight * torch.eye(target.n_classes, dtype=torch.float64)[place]
    differ = (target.best(one) != target.best(other)).nonzero()[:n_pairs, 0]
    one, other = one[differ], other[differ]
    start = target.best(one)
    edge = draw_towards(other, one, lambda eta: target.best(eta) == start)
    steps = torch.tensor([1e-3, 0.01, 0.1, 0.5, 1.0], dtype=torch.float64)[:, None, None]
    rows = torch.cat([edge + steps * (one - edge), edge + steps * (other - edge)]).reshape(-1, target.n_classes)
    return rows[target.clearance(rows) >= NEAREST]


def adversarial_eta(subject: ExaminedLoss, cost: float) -> Iterator[Tensor]:
    """Yield eta beside the boundary max eta = 1 - c at which the rule accepts most, or least, at the minimiser.

    Examples
    --------
    >>> from demur.losses import get
    >>> rows = next(adversarial_eta(ExaminedLoss.untried(get("ce"), 3, 0.2, symmetric=True), 0.2))
    >>> bool(((rows.amax(-1) - 0.8).abs() < 0.05).all())
    True
    """

    def acceptance(sign: int, eta: Tensor) -> Tensor:
        found = eta.new_empty(len(eta))
        for rows, problem in RiskProblem.batches(subject, eta):  # one start: each eta found is tried thoroughly
            unknowns, _ = problem.descend(problem.risk, problem.guess()[0])
            found[rows] = subject.loss.rule(problem.scores(unknowns), cost).acceptance.detach().double()
        return sign * found

    rows = []
    for sign in (1, -1):  # where it accepts most it should reject, and the reverse
        _, worst = extreme_over(partial(acceptance, sign), subject, "boundary", rounds=3)
        place = torch.nn.functional.one_hot(torch.tensor(int(worst.argmax())), subject.n_classes)
        others = (1 - place) * torch.from_numpy(worst) / cost
        rows += [(1 - cost - sign * step) * place + (cost + sign * step) * others for step in (1e-4, 1e-3, 5e-3, 0.02)]
    yield torch.stack(rows)


def extreme_over(
    function: Callable[[Tensor], Tensor], subject: ExaminedLoss, region: Region, *, rounds: int = 2
) -> tuple[float, Floats]:
    """Return the largest value of a function of eta over a region, and where: structured rows, then local search.

    Like any search it gives a lower bound of the supremum; for the paper's losses the supremum is at one of the
    structured rows.

    Examples
    --------
    >>> from demur.losses import get
    >>> subject = ExaminedLoss.untried(get("ce"), 3, 0.2, symmetric=True)
    >>> value, eta = extreme_over(lambda eta: eta[:, 1], subject, "boundary")
    >>> round(value, 6), eta.round(6)
    (0.2, array([0.8, 0.2, 0. ]))
    """
    n_classes, cost = subject.n_classes, subject.target.single
    assert cost is not None
    tops = torch.cat([torch.tensor([1 - cost], dtype=torch.float64), tops_around(cost, n_classes)])
    inside = {"answer": tops >= 1 - cost, "reject": tops <= 1 - cost, "boundary": tops == 1 - cost}[region]
    eta = structured_eta(tops[inside], n_classes)
    if not subject.symmetric:
        eta = over_all_classes(eta, limit=max(40 * n_classes, 240))
    generator = subject.generator()
    values = function(eta)
    best, at = float(values.max()), eta[values.argmax()]
    for round_number in range(rounds):
        leaders = eta[values.topk(min(6, len(eta))).indices]
        eta = _neighbours(leaders, 0.3 * 0.1**round_number, cost, generator)
        if not len(eta):
            break
        values = function(eta)
        if float(values.max()) > best:
            best, at = float(values.max()), eta[values.argmax()]
    return best, at.numpy()


def _neighbours(leaders: Tensor, scale: float, cost: float, generator: torch.Generator) -> Tensor:
    """Vary each leader, keeping its ties and its side of the boundary."""
    eta = leaders.repeat_interleave(8, 0)
    noise = torch.randn(eta.shape, generator=generator, dtype=torch.float64).gather(-1, equal_values(eta)) * scale
    place = eta.argmax(-1, keepdim=True)
    top = 1 - cost + (eta.gather(-1, place) - (1 - cost)) * torch.exp(noise.gather(-1, place))
    others = (eta * torch.exp(noise)).scatter(-1, place, 0.0)
    total = others.sum(-1, keepdim=True)
    others = others / total.clamp(min=1e-300) * (1 - top)
    varied = others.scatter(-1, place, top)
    return varied[(total[:, 0] > 0) & (top[:, 0] < 1) & (others.amax(-1) < top[:, 0])]


def _first(m: int, n: int) -> Tensor:
    share = torch.zeros(n, dtype=torch.float64)
    share[:m] = 1 / m
    return share
