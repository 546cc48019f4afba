"""Data of a problem: loaded or drawn, scaled, and identified by a hash."""

import hashlib
import json
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from demur.array_types import Floats, Ints
from demur.datasets import GaussianClasses, load, make_gaussian_classes, paper_gaussians
from demur.datasets.uci import SOURCES, fingerprint, is_local
from demur.errors import InputError
from demur.paper.experiments import AnyProtocol, BenchmarkProtocol, Protocol, SyntheticProtocol

STAND_IN_NOTE = "synthetic stand-in of the same shape, not the real data"


@dataclass(frozen=True)
class DataPlace:
    """Where the real data sets are read from.

    Parameters
    ----------
    folder : str, optional
        Local folder; see :func:`demur.datasets.load`.
    stand_ins : bool
        Whether a data set that is not in the folder is replaced by Gaussian classes of the same shape.
    """

    folder: str | None = None
    stand_ins: bool = False

    def stands_in(self, name: str) -> bool:
        """Return whether the real data set is replaced."""
        return self.stand_ins and not is_local(name, self.folder)


class DataIdentity(NamedTuple):
    """Hash of the data of a problem, and a caveat about figures measured on them."""

    sha256: str
    note: str = ""


class Problem(NamedTuple):
    """Training and test data as tensors, features scaled.

    Parameters
    ----------
    n_classes : int
    X, X_test : tensor of float32
    y, y_test : tensor of int64
    best_confidence : tensor, optional
        max_y eta_y(x) of each test row, if the distribution is known.
    """

    n_classes: int
    X: Tensor
    y: Tensor
    X_test: Tensor
    y_test: Tensor
    best_confidence: Tensor | None = None


def identify(name: str, protocol: AnyProtocol, place: DataPlace) -> DataIdentity:
    """Return the identity of a problem's data without loading them.

    Examples
    --------
    >>> identify("1000", SyntheticProtocol(), DataPlace()).note
    ''
    """
    if isinstance(protocol, SyntheticProtocol):
        gaussians = gaussians_of(protocol)
        return DataIdentity(_hash("gaussians", gaussians.means.tolist(), gaussians.variance))
    if place.stands_in(name):
        source = SOURCES[name]
        return DataIdentity(_hash("stand-in", name, source.n_features, source.n_classes), STAND_IN_NOTE)
    sha256, note = fingerprint(name, place.folder)
    limit, n_test = protocol.max_test_rows, SOURCES[name].n_test
    if limit is not None and limit < (SOURCES[name].n_test_local or n_test):
        note = f"measured on {limit:,} of {n_test:,} test rows"
    return DataIdentity(sha256, note)


def ensure(name: str, protocol: AnyProtocol, place: DataPlace) -> None:
    """Download a problem's data if they are missing, so that a run without them fails at once.

    Raises
    ------
    DatasetError
        If they are not available.
    """
    if isinstance(protocol, BenchmarkProtocol) and not place.stands_in(name) and not is_local(name, place.folder):
        load(name, place.folder)


def prepare(name: str, protocol: AnyProtocol, place: DataPlace, device: torch.device) -> Problem:
    """Load or draw data, scale the features by statistics of the training rows, and move them to a device."""
    confidence = None
    if isinstance(protocol, SyntheticProtocol):
        gaussians = gaussians_of(protocol)
        n_classes = len(gaussians.means)
        X, y = gaussians.sample(n_per_class=int(name), seed=seed_for(protocol.seed, "synthetic", name))
        X_test, y_test = gaussians.sample(n=protocol.n_test, seed=seed_for(protocol.seed, "synthetic", "test"))
        confidence = torch.as_tensor(gaussians.posterior(X_test).max(axis=1), device=device)
    else:
        if place.stands_in(name):
            train, test = _stand_in(name)
        else:
            data = load(name, place.folder, split_seed=protocol.split_seed)
            train, test = (data.X_train, data.y_train), (data.X_test, data.y_test)
        n_classes = SOURCES[name].n_classes
        X, y = _some_rows(train, protocol.max_train_rows, seed_for(protocol.seed, name, "train rows"))
        X_test, y_test = _some_rows(test, protocol.max_test_rows, seed_for(protocol.seed, name, "test rows"))
    shift, scale = _scaling(name, X, protocol.scaling)
    own, tested = (torch.as_tensor((rows - shift) / scale, dtype=torch.float32, device=device) for rows in (X, X_test))
    labels, tested_labels = (torch.as_tensor(classes, device=device) for classes in (y, y_test))
    return Problem(n_classes, own, labels, tested, tested_labels, confidence)


def training_rows(name: str, protocol: AnyProtocol) -> int:
    """Return the number of training rows of a problem, validation rows included.

    Examples
    --------
    >>> training_rows("vehicle", BenchmarkProtocol()), training_rows("20", SyntheticProtocol())
    (700, 160)
    """
    if isinstance(protocol, SyntheticProtocol):
        return int(name) * len(gaussians_of(protocol).means)
    n_rows = SOURCES[name].n_train
    return n_rows if protocol.max_train_rows is None else min(n_rows, protocol.max_train_rows)


def gaussians_of(protocol: SyntheticProtocol) -> GaussianClasses:
    """Return the distribution of the synthetic problems."""
    if protocol.gaussian_seed is None:
        return paper_gaussians()
    return make_gaussian_classes(8, 2, seed=protocol.gaussian_seed)


Rows: TypeAlias = tuple[Floats, Ints]
"""Features and classes."""


def _stand_in(name: str) -> tuple[Rows, Rows]:
    """Draw overlapping Gaussian classes of the shape of a data set, with at most 10,000 test rows."""
    source = SOURCES[name]
    gaussians = make_gaussian_classes(
        source.n_classes, source.n_features, spread=2.0 / source.n_features**0.5, seed=seed_for("stand-in", name)
    )
    n_test = min(source.n_test, 10_000)
    X, y = gaussians.sample(n=source.n_train + n_test, seed=seed_for("stand-in rows", name))
    return (X[: source.n_train], y[: source.n_train]), (X[source.n_train :], y[source.n_train :])


def _some_rows(data: Rows, limit: int | None, seed: int) -> Rows:
    X, y = data
    if limit is None or limit >= len(X):
        return data
    rows = np.random.default_rng(seed).permutation(len(X))[:limit]
    return X[rows], y[rows]


def scaling_of(name: str, scaling: str) -> str:
    """Return the scaling of a data set: "source" means a different one for each.

    Examples
    --------
    >>> scaling_of("yeast", "source"), scaling_of("letter", "source"), scaling_of("yeast", "unit")
    ('none', 'range', 'unit')
    """
    return {"yeast": "none", "covtype": "unit"}.get(name, "range") if scaling == "source" else scaling


def is_divided(name: str, protocol: Protocol) -> bool:
    """Return whether the validation rows of a data set are fixed, in the sizes that LIBSVM's page offers.

    Examples
    --------
    >>> is_divided("letter", Protocol(validation="source")), is_divided("letter", Protocol())
    (True, False)
    """
    if protocol.validation not in ("random", "source"):
        raise InputError(f"validation must be 'random' or 'source', got {protocol.validation!r}.")
    return protocol.validation == "source" and name in ("letter", "satimage")


def _scaling(name: str, X: Floats, scaling: str) -> tuple[Floats, Floats]:
    """Return the shift and the scale of each feature; a constant feature becomes 0."""
    low, high = X.min(axis=0), X.max(axis=0)
    kinds = {
        "none": (np.zeros_like(low), np.ones_like(low)),
        "range": ((low + high) / 2, (high - low) / 2),
        "unit": (low, high - low),
        "standard": (X.mean(axis=0), X.std(axis=0)),
    }
    scaling = scaling_of(name, scaling)
    if scaling not in kinds:
        raise InputError(f"scaling must be 'standard', 'range', 'unit', 'source' or 'none', got {scaling!r}.")
    shift, scale = kinds[scaling]
    return shift, np.where(scale > 0, scale, 1.0)


def _hash(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def seed_for(*names: object) -> int:
    """Return a seed that depends only on the names, so that every trial can be repeated by itself.

    Examples
    --------
    >>> seed_for("letter", 3) == seed_for("letter", 3) != seed_for("letter", 4)
    True
    """
    text = "/".join(str(name) for name in names)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1
