"""The paper's experiments as data: methods, data sets and protocol.

Adding a method to the benchmark is one line in ``BENCHMARK``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

from demur.costs import PAPER_COSTS
from demur.errors import InputError
from demur.losses import available, get, resolve
from demur.losses.pairwise import PairwiseLoss


def _chosen(default: Any, why: str, **later: bool) -> Any:  # as dataclasses.field itself
    """Declare a setting that the paper does not state, with its default and the reason for it.

    A setting added ``later`` is omitted from specifications if it has its default, so that older records stay valid.
    """
    return field(default=default, metadata={"why": why, **later})


@dataclass(frozen=True)
class Method:
    """A column of a table: a loss, and the sides of beta that validation chooses from.

    The candidates for a threshold are those of the loss (``tau_candidates``).

    Parameters
    ----------
    name : str
        Name in the tables.
    loss : str, optional
        Registered name or "file.py:Class" (see :func:`demur.losses.resolve`); by default the lower-case ``name``.
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
class Protocol:
    """The training, selection and scoring of networks; the same for every method.

    In each trial, a random fifth of the training data is held out for validation and the networks of the grid are
    trained on the rest. At each cost the network (and threshold) of least 0-1-c risk on the validation rows is chosen,
    the first in the order of the grid in case of a tie. It alone is scored on the test data, without a refit.
    """

    # The paper prints these values, in Section 5 and in its appendix.
    hidden_units: int = 50
    epochs: int = 150
    trials: int = 10
    costs: tuple[float, ...] = PAPER_COSTS
    weight_decays: tuple[float, ...] = (1e-7, 1e-4, 1e-1)
    validation_fraction: float = 0.2
    batch_size: int = _chosen(
        128, "common for tables of this size: several updates per epoch on 560 rows, few enough on 12,096 to be quick"
    )
    learning_rate: float = _chosen(1e-3, "the value that Adam and AMSGrad were published with, and PyTorch's default")
    scaling: str = _chosen(
        "standard",
        "each feature has mean 0 and variance 1 on the training data: the usual way to let one learning rate suit "
        "features in the thousands (covtype) and below 1 (yeast). 'range' maps the training data to [-1, 1], 'unit' to "
        "[0, 1], 'none' leaves the features as they are, 'source' is 'none' for yeast, which lies in [0, 1] at its "
        "source, 'unit' for covtype and else 'range', as LIBSVM's page offers them",
    )
    validation: str = _chosen(
        "random",
        "the validation rows are a share of the training rows, drawn anew in each trial; 'source' holds out 30 % of "
        "letter and satimage, the sizes in which LIBSVM's page offers them, the same rows in each trial",
        later=True,
    )
    rejector: str = _chosen(
        "joint",
        "the rejector of a pairwise loss is one more output of the classifier's network; 'separate' gives it a network "
        "of its own, with as many hidden units",
        later=True,
    )
    thresholds: str = _chosen(
        "validation",
        "the threshold tau of a hinge loss is chosen on the validation rows; 'test' takes the one of least risk on the "
        "test rows, which is not a valid procedure",
        later=True,
    )
    seed: int = _chosen(
        0, "determines, with the data set and the number of the trial, its split, initial weights and order of rows"
    )

    def choices(self) -> dict[str, tuple[str, str]]:
        """Return the settings that the paper leaves open: for each the value of this protocol, and the reason."""
        return {
            item.name: (str(getattr(self, item.name)), item.metadata["why"])
            for item in fields(self)
            if "why" in item.metadata
        }

    def spec(self) -> dict[str, int | float | str | list[float] | None]:
        """Return everything that determines the result of one trial: all settings except the number of trials."""
        return {
            item.name: list(value) if isinstance(value, tuple) else value
            for item in fields(self)
            if (value := getattr(self, item.name)) != item.default or "later" not in item.metadata
            if item.name != "trials"
        }


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

    hidden_units: int = 3
    epochs: int = 100
    trials: int = 3
    learning_rate: float = _chosen(
        3e-2,
        "of 0.001, 0.003, 0.01 and 0.03 the rate of least 0-1-c risk on the validation rows, averaged over methods, "
        "sizes, costs and trials (0.172, 0.138, 0.114 and 0.105); the records of all four are in the store, and no "
        "test row was looked at for it. It is the largest that was tried",
    )
    gaussian_seed: int | None = _chosen(
        None,
        "the paper draws its eight means at random and does not print them; None takes `paper_gaussians()`, "
        "means whose best possible rejection rates are nearest to those of its Table 2; a number draws others",
    )
    n_test: int = _chosen(
        100_000, "the standard error of a risk is then below 0.0013; drawn once, with a seed of its own"
    )


AnyProtocol: TypeAlias = BenchmarkProtocol | SyntheticProtocol


@dataclass(frozen=True)
class Experiment:
    """An experiment: every method on every problem, with one protocol.

    Parameters
    ----------
    name : {"benchmark", "synthetic", "modern"}
    problems : tuple of str
        Data sets, or numbers of training points per class.
    methods : tuple of Method
        Methods of the paper.
    protocol : BenchmarkProtocol or SyntheticProtocol
    more : tuple of Method
        Further methods, shown in separate tables.
    quick : bool
        Whether this is a short version, which its output states.
    """

    name: str
    problems: tuple[str, ...]
    methods: tuple[Method, ...]
    protocol: AnyProtocol
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
        known = {item.name: item.default for item in fields(self.protocol)}
        for name in settings:
            if name not in known:
                raise InputError(f"the {self.name} experiment has no setting {name!r}; it has {', '.join(known)}.")
        values = {name: _read(name, text, known[name]) for name, text in settings.items()}
        return replace(self, protocol=replace(self.protocol, **values))

    def find(self, name: str) -> Method | None:
        """Return the method with this name (in any case) or file.py:Class, or None."""
        for method in self.all_methods:
            if name.lower() == method.name.lower() or (":" in name and name == method.loss):
                return method
        return None

    def only(self, *, problems: Sequence[str] = (), methods: Sequence[str] = ()) -> "Experiment":
        """Return the experiment restricted to some problems and methods, by name; empty means all."""
        kept = [self.find(name) for name in methods] or self.all_methods
        return replace(
            self,
            problems=tuple(name for name in self.problems if name in (problems or self.problems)),
            methods=tuple(method for method in self.methods if method in kept),
            more=tuple(method for method in self.more if method in kept),
        )


def _read(name: str, text: str, like: Any) -> Any:
    """Parse a value of the same type as ``like``; an integer or "none" if that is None."""
    try:
        if isinstance(like, tuple):
            return tuple(float(part) for part in text.split(","))
        if like is None:
            return None if text.lower() == "none" else int(text)
        return type(like)(text)
    except ValueError:
        kind = "numbers separated by commas" if isinstance(like, tuple) else f"like {like!r}"
        raise InputError(f"setting {name} must be {kind}, got {text!r}.") from None


ALL_BETAS = ("acc", "rej", "mean")

BENCHMARK = Experiment(
    "benchmark",
    problems=("vehicle", "satimage", "yeast", "covtype", "letter"),
    methods=(
        Method("APC+log", betas=ALL_BETAS),
        Method("APC+exp", betas=ALL_BETAS),
        Method("MPC+log", betas=ALL_BETAS),
        Method("OVA+log"),
        Method("OVA+exp"),
        Method("CE"),
        Method("OVA+hin"),
    ),
    more=(
        Method("OVA+sq"),
        Method("OVA+sqhin"),
        Method("CS+hin"),
        Method("BEP"),
    ),
    protocol=BenchmarkProtocol(),
)
"""Tables 6 to 8 and Figures 2 and 4: 7,950 networks for the paper's seven methods, 1,800 for four more."""

SYNTHETIC = Experiment(
    "synthetic",
    problems=("20", "50", "100", "200", "500", "1000", "1500", "2000", "5000", "10000"),
    methods=(
        *(
            Method(f"{loss}+{side}", loss.lower(), betas=(side,))
            for loss in ("APC+log", "APC+exp", "MPC+log")
            for side in ("acc", "rej")
        ),
        Method("OVA+log"),
        Method("OVA+exp"),
        Method("CE"),
    ),
    protocol=SyntheticProtocol(),
)
"""Table 2 and Figure 1; a problem is a number of training points per class."""

MODERN = Experiment(
    "modern",
    problems=BENCHMARK.problems,
    methods=tuple(
        Method(name, betas=ALL_BETAS if isinstance(get(name), PairwiseLoss) else ()) for name in available(n_classes=3)
    ),
    protocol=BenchmarkProtocol(),
)
"""Every registered loss that takes many classes, under the protocol of the benchmark."""

PUBLISHED_SETTINGS = {
    "scaling": "source",
    "validation": "source",
    "rejector": "separate",
    "thresholds": "test",
}
"""The settings that come nearest to the paper's figures, found by a search (``research/protocol_search``)."""

PROTOCOLS = ("ours", "published")

EXPERIMENTS = {"synthetic": SYNTHETIC, "benchmark": BENCHMARK, "modern": MODERN}


def quick(experiment: Experiment) -> Experiment:
    """Return a short version of an experiment: every method, and every data set, but fewer of everything else.

    Examples
    --------
    >>> quick(SYNTHETIC).problems
    ('20', '200', '1000')
    """
    protocol = experiment.protocol
    if isinstance(protocol, SyntheticProtocol):
        protocol = replace(protocol, trials=2, epochs=20, n_test=20_000)
        return replace(experiment, problems=("20", "200", "1000"), protocol=protocol, quick=True)
    short = replace(protocol, trials=2, epochs=10, max_train_rows=4_000, max_test_rows=10_000)
    return replace(experiment, protocol=short, quick=True)


def published_benchmark() -> Experiment:
    """Return the paper's seven methods under the protocol that comes nearest to its printed figures.

    Examples
    --------
    >>> published_benchmark().protocol.scaling
    'source'
    """
    return replace(BENCHMARK.with_settings(PUBLISHED_SETTINGS), more=())


def chosen_experiments(
    which: str, *, short: bool, settings: Mapping[str, str], protocol: str = "ours"
) -> list[Experiment]:
    """Return the experiments of a name, with their settings; "all" are the paper's two.

    Parameters
    ----------
    which : str
    short : bool
    settings : mapping of str to str
    protocol : {"ours", "published"}
        For the benchmark: ours, or the one that comes nearest to the paper's printed figures.

    Raises
    ------
    InputError
        If there is no such experiment or protocol, or no such setting in any of them.

    Examples
    --------
    >>> [one.name for one in chosen_experiments("all", short=True, settings={"n_test": "1000"})]
    ['synthetic', 'benchmark']
    """
    if which not in (*EXPERIMENTS, "all"):
        raise InputError(f"unknown experiment {which!r}; there are {', '.join(EXPERIMENTS)} and all.")
    if protocol not in PROTOCOLS:
        raise InputError(f"unknown protocol {protocol!r}; there are {' and '.join(PROTOCOLS)}.")
    chosen = [SYNTHETIC, BENCHMARK] if which == "all" else [EXPERIMENTS[which]]
    if protocol == "published":
        if BENCHMARK not in chosen:
            raise InputError(f"the published protocol is one of the benchmark, not of {which!r}.")
        chosen = [published_benchmark()]
    if short:
        chosen = [quick(one) for one in chosen]
    for name in sorted(set(settings).difference(*(vars(one.protocol) for one in chosen))):
        chosen[0].with_settings({name: ""})  # which raises the error
    return [
        one.with_settings({name: text for name, text in settings.items() if name in vars(one.protocol)})
        for one in chosen
    ]


def with_losses(experiments: Sequence[Experiment], names: Sequence[str]) -> list[Experiment]:
    """Add losses that the experiments do not have: registered ones by name, and any other as "file.py:Class".

    Raises
    ------
    InputError
        If a name is neither that of a method nor of a loss.

    Examples
    --------
    >>> [method.name for method in with_losses([BENCHMARK], ["CE", "apc+log"])[0].more]
    ['OVA+sq', 'OVA+sqhin', 'CS+hin', 'BEP']
    >>> with_losses([SYNTHETIC], ["bep"])[0].more
    (Method(name='bep', loss='bep', betas=()),)
    """
    new = [name for name in dict.fromkeys(names) if not any(one.find(name) for one in experiments)]
    methods = [_method_of(name, experiments) for name in new]
    return [replace(one, more=(*one.more, *methods)) for one in experiments]


def _method_of(name: str, experiments: Sequence[Experiment]) -> Method:
    try:
        loss = resolve(name)
    except InputError as error:
        if ":" in name:
            raise
        known = dict.fromkeys(method.name for one in experiments for method in one.all_methods)
        raise InputError(
            f"unknown method {name!r}; there are {', '.join(known)}, every loss of `demur methods`, and file.py:Class "
            "for a loss of your own."
        ) from error
    if loss.binary_only:
        raise InputError(f"{name} is for two classes only; the experiments have four and more.")
    if any(one.find(loss.name) for one in experiments):
        raise InputError(f"the loss of {name} is named {loss.name!r} like a method of the paper; give it another name.")
    return Method(loss.name, name, betas=ALL_BETAS if isinstance(loss, PairwiseLoss) else ())


def restrict(experiments: Sequence[Experiment], problems: Sequence[str], methods: Sequence[str]) -> list[Experiment]:
    """Keep some problems and methods; empty means all.

    Raises
    ------
    InputError
        If a problem is unknown to every experiment.

    Examples
    --------
    >>> [one.name for one in restrict([SYNTHETIC, BENCHMARK], ["letter", "yeast"], ["CE"])]
    ['benchmark']
    """
    known = list(dict.fromkeys(name for one in experiments for name in one.problems))
    for name in problems:
        if name not in known:
            raise InputError(f"unknown problem {name!r}; there are {', '.join(known)}.")
    kept = [one.only(problems=problems, methods=methods) for one in experiments]
    return [one for one in kept if one.problems and one.all_methods]


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """Read NAME=VALUE texts.

    Examples
    --------
    >>> parse_settings(["epochs=10"])
    {'epochs': '10'}
    """
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set takes NAME=VALUE, got {text!r}.")
        settings[name.strip()] = value.strip()
    return settings
