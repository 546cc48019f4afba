"""What a claim of the paper is here: a statement, and a test of it on figures."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from demur.paper.numbers import Numbers, Results

__all__ = ["Claim", "Finding", "Judged", "Verdict", "judge", "list_of"]

Verdict: TypeAlias = Literal["holds", "does not hold", "depends", "not tested"]


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
        """Holds if true everywhere, does not hold if true nowhere, depends otherwise.

        Examples
        --------
        >>> Finding(("letter",), ("yeast",)).verdict
        'depends'
        """
        if not self.true_at and not self.false_at:
            return "not tested"
        if not self.false_at:
            return "holds"
        return "depends" if self.true_at else "does not hold"

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
    return [
        Judged(
            claim,
            ours=claim.test(_numbers(results), results),
            paper=_if_tested(claim.test(published, None)) if published.values else None,
            rescaled=None if rescaled is None else _if_tested(claim.test(_numbers(rescaled), rescaled)),
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
