"""Which scores of a row are one unknown: what makes the pointwise risk of a hundred classes a small problem.

A loss that treats the classes alike has, by convexity, a minimiser that gives equal scores to classes of equal
probability. A row of eta with three different values is then a problem in three unknowns, whatever K is.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Ties", "equal_values"]


@dataclass(frozen=True)
class Ties:
    """The unknowns behind the scores of each row.

    Parameters
    ----------
    columns : integer tensor of shape (n_rows, n_outputs)
        The unknown that each score is a copy of.
    labels : integer tensor of shape (n_rows, n_groups)
        One class of each group.
    weights : tensor of shape (n_rows, n_groups)
        The probability of the whole group.
    each : tensor of shape (n_rows, n_groups)
        The probability of one class of the group.
    n_unknowns : int
    """

    columns: Tensor
    labels: Tensor
    weights: Tensor
    each: Tensor
    n_unknowns: int

    @classmethod
    def none(cls, eta: Tensor, n_outputs: int) -> "Ties":
        """Every score an unknown of its own, every class a group of its own."""
        n_rows, n_classes = eta.shape
        return cls(
            columns=torch.arange(n_outputs).expand(n_rows, -1),
            labels=torch.arange(n_classes).expand(n_rows, -1),
            weights=eta,
            each=eta,
            n_unknowns=n_outputs,
        )

    @classmethod
    def from_groups(cls, eta: Tensor, groups: Tensor, n_outputs: int) -> "Ties":
        """Classes with the same group number share a score; outputs beyond the classes stay free.

        Examples
        --------
        >>> eta = torch.tensor([[0.7, 0.1, 0.1, 0.1]], dtype=torch.float64)
        >>> ties = Ties.from_groups(eta, torch.tensor([[0, 1, 1, 1]]), n_outputs=5)
        >>> ties.columns, ties.labels, ties.weights.round(decimals=3)
        (tensor([[0, 1, 1, 1, 2]]), tensor([[0, 1]]), tensor([[0.7000, 0.3000]], dtype=torch.float64))
        """
        n_rows, n_classes = eta.shape
        n_groups = int(groups.max()) + 1
        n_free = n_outputs - n_classes
        member = groups.unsqueeze(-1) == torch.arange(n_groups)
        free = torch.arange(n_groups, n_groups + n_free).expand(n_rows, -1)
        labels = member.to(torch.int8).argmax(-2)
        return cls(
            columns=torch.cat([groups, free], -1),
            labels=labels,
            weights=(member * eta.unsqueeze(-1)).sum(-2),
            each=eta.gather(-1, labels),
            n_unknowns=n_groups + n_free,
        )

    @classmethod
    def of(cls, eta: Tensor, groups: Tensor | None, n_outputs: int) -> "Ties":
        """Return the ties of the groups, or none without groups."""
        return cls.none(eta, n_outputs) if groups is None else cls.from_groups(eta, groups, n_outputs)

    @classmethod
    def batches(cls, eta: Tensor, n_outputs: int, *, symmetric: bool) -> Iterator[tuple[Tensor, "Ties"]]:
        """Split the rows into parts of similar size, each with its ties: (numbers of the rows, ties).

        Parameters
        ----------
        eta : tensor of shape (n_rows, n_classes)
        n_outputs : int
        symmetric : bool
            Whether classes of equal probability may share a score.
        """
        if not symmetric:
            yield torch.arange(len(eta)), cls.none(eta, n_outputs)
            return
        groups = equal_values(eta)
        n_groups = groups.amax(-1) + 1
        few = n_groups <= 4
        for part in (few, ~few):
            rows = part.nonzero()[:, 0]
            if len(rows):
                yield rows, cls.from_groups(eta[rows], groups[rows], n_outputs)

    def select(self, rows: Tensor) -> "Ties":
        """Return the ties of some rows."""
        return Ties(self.columns[rows], self.labels[rows], self.weights[rows], self.each[rows], self.n_unknowns)

    def scores(self, unknowns: Tensor, rows: Tensor) -> Tensor:
        """Return the scores (m, n_outputs) that the unknowns (m, n_unknowns) of some rows stand for."""
        return unknowns.gather(-1, self.columns[rows])


def equal_values(eta: Tensor) -> Tensor:
    """Return group numbers (n_rows, n_classes): classes of exactly equal probability share one.

    Examples
    --------
    >>> equal_values(torch.tensor([[0.7, 0.1, 0.2], [0.5, 0.25, 0.25]]))
    tensor([[2, 0, 1],
            [1, 0, 0]])
    """
    ordered = eta.sort(-1)
    fresh = torch.zeros_like(eta, dtype=torch.long)
    fresh[:, 1:] = (ordered.values.diff(dim=-1) > 0).long()
    return torch.zeros_like(fresh).scatter(-1, ordered.indices, fresh.cumsum(-1))
