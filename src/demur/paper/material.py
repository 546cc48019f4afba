"""What tables, figures and the page are made from."""

from dataclasses import dataclass

from demur.datasets import BayesSummary
from demur.paper.claims import Judged
from demur.paper.comparison import Comparison, compare
from demur.paper.numbers import Results
from demur.paper.published import Published

__all__ = ["Material"]


@dataclass(frozen=True)
class Material:
    """The results at hand, the published ones, and what follows from both.

    Parameters
    ----------
    benchmark, synthetic : Results or None
        None where the store has nothing of it.
    bayes : dict
        The best possible rule on the synthetic data, by cost.
    published : Published
    claims : list of Judged
    rescaled : Results or None
        The benchmark on features scaled to [-1, 1], if the store has it too.
    """

    benchmark: Results | None
    synthetic: Results | None
    bayes: dict[float, BayesSummary]
    published: Published
    claims: list[Judged]
    rescaled: Results | None = None

    @property
    def parts(self) -> list[Results]:
        """The experiments that there are records of."""
        return [part for part in (self.synthetic, self.benchmark) if part is not None]

    @property
    def quick(self) -> bool:
        """Whether these are results of a quick run."""
        return any(part.experiment.quick for part in self.parts)

    @property
    def compared(self) -> list[Comparison]:
        """The benchmark's risks against the published ones, by method; empty where there is nothing to compare."""
        return self._compared(self.benchmark)

    @property
    def rescaled_compared(self) -> list[Comparison]:
        """The same for the benchmark on features scaled to [-1, 1]."""
        return self._compared(self.rescaled)

    def _compared(self, results: Results | None) -> list[Comparison]:
        if results is None:
            return []
        methods = [method.name for method in results.experiment.methods]
        found = compare(results.numbers(methods), self.published.benchmark, methods)
        return [one for one in found if one.n]

    def warning(self) -> str:
        """Return what every output must say: a quick run, stand-ins, incomplete data or results; else nothing."""
        lines = []
        if self.quick:
            lines.append(
                "**A quick run**: fewer trials, sizes, epochs and rows than in the paper. It shows that everything "
                "works; its figures mean little."
            )
        for part in self.parts:
            lines += [f"**{problem}**: {note}." for problem, note in part.notes.items() if note]
            missing = part.missing
            if missing:
                shown = "; ".join(missing[:5]) + (f"; and {len(missing) - 5} more" if len(missing) > 5 else "")
                lines.append(f"**Not complete** ({part.experiment.name}): missing {shown}.")
        return "\n".join(f"> {line}  " for line in lines)
