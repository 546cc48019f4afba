"""The vocabulary in which an experiment is declared: methods, and the protocol that all of them go through."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from demur.costs import PAPER_COSTS
from demur.errors import InputError

__all__ = ["BenchmarkProtocol", "Choice", "Experiment", "Method", "Protocol", "SyntheticProtocol"]


def _published(default: Any, where: str) -> Any:
    """Declare a value that the paper prints."""
    return field(default=default, metadata={"where": where})


def _chosen(default: Any, why: str) -> Any:
    """Declare a value that the paper leaves open, with the reason for ours."""
    return field(default=default, metadata={"why": why})


@dataclass(frozen=True)
class Method:
    """One column of a table: a loss, and the hyper-parameters of its own that validation chooses from.

    Thresholds need no entry: a loss that has a free one lists its candidates itself (``tau_candidates``).

    Parameters
    ----------
    name : str
        As the tables print it.
    loss : str, optional
        The registry's name of the loss; the lower-case ``name`` by default.
    betas : tuple of str
        The sides of Corollary 5 to try, for losses with a trained rejector: "acc", "rej", "mean".

    Examples
    --------
    >>> Method("CE").loss
    'ce'
    """

    name: str
    loss: str = ""
    betas: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.loss:
            object.__setattr__(self, "loss", self.name.lower())


@dataclass(frozen=True)
class Choice:
    """A decision that the paper leaves to whoever repeats it."""

    setting: str
    value: str
    why: str


@dataclass(frozen=True)
class Protocol:
    """How networks are trained, selected and scored; the same for every method.

    In each trial, a random fifth of the training data is kept for validation and the networks of the grid are
    trained on the rest. At each cost the network (and threshold) with the least 0-1-c risk on the validation part is
    chosen, the first in the order of the grid among equals; it alone is scored on the test data, without a refit.
    """

    hidden_units: int = _published(50, "Section 5")
    epochs: int = _published(150, "Appendix, benchmark data sets")
    trials: int = _published(10, "Appendix, benchmark data sets")
    costs: tuple[float, ...] = _published(PAPER_COSTS, "Section 5")
    weight_decays: tuple[float, ...] = _published((1e-7, 1e-4, 1e-1), "Section 5")
    validation_fraction: float = _published(0.2, "Appendix, 80-20 split")
    batch_size: int = _chosen(
        128, "common for tables of this size: several updates per epoch on 560 rows, few enough on 12,096 to be quick"
    )
    learning_rate: float = _chosen(1e-3, "the value that Adam and AMSGrad were published with, and PyTorch's default")
    scaling: str = _chosen(
        "standard",
        "each feature has mean 0 and variance 1 on the training data: the usual way to let one learning rate suit "
        "features in the thousands (covtype) and below 1 (yeast). 'range' maps the training data to [-1, 1], 'none' "
        "leaves the features as they are",
    )
    seed: int = _chosen(
        0, "split, initial weights and order of rows of a trial follow from it, the data set and the trial's number"
    )

    def choices(self) -> list[Choice]:
        """Return what the paper leaves open, with this protocol's values and their reasons."""
        return [
            Choice(item.name, str(getattr(self, item.name)), item.metadata["why"])
            for item in fields(self)
            if "why" in item.metadata
        ]

    def spec(self) -> dict[str, Any]:
        """Return everything that decides the outcome of one trial: all values but the number of trials."""
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        del values["trials"]
        return values


@dataclass(frozen=True)
class BenchmarkProtocol(Protocol):
    """The protocol on the five benchmark data sets."""

    split_seed: int = _chosen(
        0,
        "vehicle and yeast have no official split: rows in the order of `frame.sample(frac=1, random_state=0)`, "
        "then the first 700 and 1,000 for training, so that the sizes are the paper's",
    )
    max_train_rows: int | None = None
    max_test_rows: int | None = None


@dataclass(frozen=True)
class SyntheticProtocol(Protocol):
    """The protocol on eight Gaussian classes in the plane, whose best possible risk is known."""

    hidden_units: int = _published(3, "Section 5")
    epochs: int = _published(100, "Appendix, synthetic data sets")
    trials: int = _published(3, "Appendix, synthetic data sets")
    learning_rate: float = _chosen(
        1e-2,
        "two rates were tried, on CE and OVA+log with 200, 2,000 and 10,000 points per class, and looked at on the "
        "test data: at 0.001 the small sizes have too few updates (200 points: 73 to 100 % rejected at c = 0.4), at "
        "0.01 CE is near the best possible risk from 2,000 points on",
    )
    gaussian_seed: int | None = _chosen(
        None,
        "the paper draws its eight means at random and does not print them; None takes `paper_gaussians()`, "
        "means whose best possible rejection rates are nearest to those of its Table 2; a number draws others",
    )
    n_test: int = _chosen(
        100_000, "the standard error of a risk is then below 0.0013; drawn once, with a seed of its own"
    )


@dataclass(frozen=True)
class Experiment:
    """What to run: every method on every problem, by one protocol.

    Parameters
    ----------
    name : {"benchmark", "synthetic"}
    problems : tuple of str
        Data sets, or numbers of training points per class.
    methods : tuple of Method
        The paper's.
    protocol : Protocol
    more : tuple of Method
        Ours, shown in a table of their own.
    quick : bool
        True for a short version, which says so in its output.
    """

    name: str
    problems: tuple[str, ...]
    methods: tuple[Method, ...]
    protocol: Protocol
    more: tuple[Method, ...] = ()
    quick: bool = False

    @property
    def all_methods(self) -> tuple[Method, ...]:
        """The paper's methods, then ours."""
        return self.methods + self.more

    def with_settings(self, settings: Mapping[str, str]) -> "Experiment":
        """Return the experiment with some values of its protocol replaced, given as text.

        Examples
        --------
        >>> plain = Experiment("benchmark", ("vehicle",), (Method("CE"),), BenchmarkProtocol())
        >>> plain.with_settings({"learning_rate": "0.01", "costs": "0.1,0.2"}).protocol.costs
        (0.1, 0.2)
        >>> plain.with_settings({"speed": "9"})
        Traceback (most recent call last):
            ...
        demur.errors.InputError: the benchmark experiment has no setting 'speed'; it has hidden_units, epochs, ...
        """
        known = {item.name: item for item in fields(self.protocol)}
        values = {}
        for name, text in settings.items():
            if name not in known:
                raise InputError(f"the {self.name} experiment has no setting {name!r}; it has {', '.join(known)}.")
            values[name] = _read(name, text, known[name].default)
        return replace(self, protocol=replace(self.protocol, **values))

    def only(self, *, problems: tuple[str, ...] = (), methods: tuple[str, ...] = ()) -> "Experiment":
        """Return the experiment restricted to some problems and methods, by name; empty means all."""
        return replace(
            self,
            problems=tuple(name for name in self.problems if not problems or name in problems),
            methods=tuple(method for method in self.methods if not methods or method.name in methods),
            more=tuple(method for method in self.more if not methods or method.name in methods),
        )


def _read(name: str, text: str, like: Any) -> Any:
    """Read a value of the same kind as another; where that is None, an integer or "none"."""
    try:
        if isinstance(like, tuple):
            return tuple(float(part) for part in text.split(","))
        if like is None:
            return None if text.lower() == "none" else int(text)
        return type(like)(text)
    except ValueError:
        kind = "numbers separated by commas" if isinstance(like, tuple) else f"like {like!r}"
        raise InputError(f"setting {name} must be {kind}, got {text!r}.") from None
