"""The paper's five benchmark data sets, from a local folder or downloaded once."""

import gzip
import hashlib
import logging
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from demur.array_types import FilePath, Floats, Ints
from demur.errors import InputError, MissingExtraError, UserError
from demur.named_classes import suggestion

DATA_FOLDER_VARIABLE = "DEMUR_DATA"
"""Environment variable that names a folder with the data sets."""


class DatasetError(UserError):
    """A data set is not available, or its content is not the expected one."""


@dataclass(frozen=True)
class Source:
    """Facts about a data set.

    Parameters
    ----------
    name : str
    files : tuple of str
        Names of gzip-compressed CSV files in a local folder, with a header and the class in the last column; if there
        are two, they hold the training rows and the test rows.
    sha256 : str
        Hash of all lines of ``files`` in order, without the headers; equal for a downloaded copy.
    n_classes, n_train, n_test : int
        Sizes in the paper's Table 3.
    features : tuple of str
    shuffled : bool
        Whether the rows are shuffled before the first ``n_train`` are taken for training.
    page : str
        Web page of the data set.
    url : str
        Address of the download.
    members : tuple of str
        Files in the archive at ``url``, in the order of the rows; empty if it is a gzip file.
    read_line : callable
        Converts a line of those files to the columns of a line of ``files``.
    n_test_local : int, optional
        Number of test rows in the local file, if these are not all.
    """

    name: str
    files: tuple[str, ...]
    sha256: str
    n_classes: int
    n_train: int
    n_test: int
    features: tuple[str, ...]
    shuffled: bool
    page: str
    url: str
    members: tuple[str, ...] = ()
    read_line: Callable[[str], list[str]] = str.split
    n_test_local: int | None = None

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.features)


def _class_first(line: str) -> list[str]:
    label, *values = line.split(",")
    return [*values, label]


_UCI = "https://archive.ics.uci.edu"

COVTYPE_ARCHIVE = "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771"
"""sha256 of covtype.data.gz; scikit-learn's fetch_covtype checks the same."""

_VEHICLE_FEATURES = """COMPACTNESS CIRCULARITY DISTANCE_CIRCULARITY RADIUS_RATIO PR_AXIS_ASPECT_RATIO
MAX_LENGTH_ASPECT_RATIO SCATTER_RATIO ELONGATEDNESS PR_AXIS_RECTANGULARITY MAX_LENGTH_RECTANGULARITY
SCALED_VARIANCE_MAJOR_AXIS SCALED_VARIANCE_MINOR_AXIS SCALED_RADIUS_OF_GYRATION SKEWNESS_ABOUT_MAJOR_AXIS
SKEWNESS_ABOUT_MINOR_AXIS KURTOSIS_ABOUT_MINOR_AXIS KURTOSIS_ABOUT_MAJOR_AXIS HOLLOWS_RATIO"""
_LETTER_FEATURES = "x-box y-box width high onpix x-bar y-bar x2bar y2bar xybar x2ybr xy2br x-ege xegvy y-ege yegvx"
_COVTYPE_FEATURES = """Elevation Aspect Slope Horizontal_Distance_To_Hydrology Vertical_Distance_To_Hydrology
Horizontal_Distance_To_Roadways Hillshade_9am Hillshade_Noon Hillshade_3pm Horizontal_Distance_To_Fire_Points"""

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            "vehicle",
            files=("vehicle.csv.gz",),
            sha256="63e275a99c957ee9cdd6cc7dbada4e68ed761ecdb5141ac6771cd25a9ac90292",
            n_classes=4,
            n_train=700,
            n_test=146,
            features=tuple(_VEHICLE_FEATURES.split()),
            shuffled=True,
            page=f"{_UCI}/dataset/149/statlog+vehicle+silhouettes",
            url=f"{_UCI}/static/public/149/statlog+vehicle+silhouettes.zip",
            members=tuple(f"xa{letter}.dat" for letter in "abcdefghi"),
        ),
        Source(
            "satimage",
            files=("satimage_train.csv.gz", "satimage_test.csv.gz"),
            sha256="e23a322e05dd9b7772f4889746bf67e51727336916e1be057e8fb3f8a971ac47",
            n_classes=6,
            n_train=4435,
            n_test=2000,
            features=tuple(f"attribute{number}" for number in range(1, 37)),
            shuffled=False,
            page=f"{_UCI}/dataset/146/statlog+landsat+satellite",
            url=f"{_UCI}/static/public/146/statlog+landsat+satellite.zip",
            members=("sat.trn", "sat.tst"),
        ),
        Source(
            "yeast",
            files=("yeast.csv.gz",),
            sha256="8d1421bbf5478edb6dc576ab4ab48fc60f64c0f1ca3d2b5d3decd805e45ef3f7",
            n_classes=10,
            n_train=1000,
            n_test=484,
            features=("mcg", "gvh", "alm", "mit", "erl", "pox", "vac", "nuc"),
            shuffled=True,
            page=f"{_UCI}/dataset/110/yeast",
            url=f"{_UCI}/static/public/110/yeast.zip",
            members=("yeast.data",),
            read_line=lambda line: line.split()[1:],  # without the name of the sequence
        ),
        Source(
            "covtype",
            files=("covtype.csv.gz",),
            sha256="07bb157db99c2c3e4b9fe391aefa6eda5a83db87f841c0740d71e608ac7412c4",
            n_classes=7,
            n_train=15_120,
            n_test=565_892,
            n_test_local=415_463,
            features=(
                *_COVTYPE_FEATURES.split(),
                *(f"Wilderness_Area{number}" for number in range(1, 5)),
                *(f"Soil_Type{number}" for number in range(1, 41)),
            ),
            shuffled=False,
            page=f"{_UCI}/dataset/31/covertype",
            url="https://ndownloader.figshare.com/files/5976039",
            read_line=lambda line: line.split(","),
        ),
        Source(
            "letter",
            files=("letter.csv.gz",),
            sha256="6150021956684ad3d40ef3789aedd0ed2be11cc7061be0d65332337c4ff85f1c",
            n_classes=26,
            n_train=15_000,
            n_test=5_000,
            features=tuple(_LETTER_FEATURES.split()),
            shuffled=False,
            page=f"{_UCI}/dataset/59/letter+recognition",
            url=f"{_UCI}/static/public/59/letter+recognition.zip",
            members=("letter-recognition.data",),
            read_line=_class_first,
        ),
    )
}
"""In the order of the paper's Table 3."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A classification data set with a fixed split.

    Parameters
    ----------
    name : str
    X_train, X_test : array of shape (n, n_features), float64
        Features as in the source, unscaled.
    y_train, y_test : array of shape (n,), int64
        Indices into ``classes``.
    classes : tuple of str
    feature_names : tuple of str
    sha256 : str
        Hash of the rows, the same for local and downloaded copies.
    source : str
        Folder or address that they were read from.
    note : str
        A caveat about figures measured on these data; empty if there is none.
    """

    name: str
    X_train: Floats
    y_train: Ints
    X_test: Floats
    y_test: Ints
    classes: tuple[str, ...]
    feature_names: tuple[str, ...]
    sha256: str
    source: str
    note: str = ""


def available_datasets() -> list[str]:
    """Return the names that :func:`load` knows, in the order of the paper's Table 3.

    Examples
    --------
    >>> available_datasets()
    ['vehicle', 'satimage', 'yeast', 'covtype', 'letter']
    """
    return list(SOURCES)


def load(name: str, data_dir: FilePath | None = None, *, split_seed: int = 0) -> Dataset:
    """Return one of the paper's benchmark data sets, with the paper's numbers of training and test rows.

    Its files are read from a local folder if they are there, and otherwise downloaded from the UCI repository (covtype
    from scikit-learn's mirror), checked, and kept in the user's cache. The splits: satimage has an official one;
    covtype's first 15,120 and letter's first 15,000 rows train; vehicle and yeast have none, so their rows are
    shuffled as ``frame.sample(frac=1, random_state=0)`` does, and the first 700 and 1,000 train.

    Parameters
    ----------
    name : str
        One of :func:`available_datasets`.
    data_dir : path, optional
        The local folder; without it, the one that the variable ``DEMUR_DATA`` names.
    split_seed : int, default 0
        The ``random_state`` of that shuffle; the other data sets ignore it.

    Returns
    -------
    Dataset

    Raises
    ------
    ValueError
        If there is no such data set.
    DatasetError
        If it can be neither found nor downloaded, or its content is not the expected one.

    Examples
    --------
    >>> load("lettre")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: unknown data set 'lettre'. Did you mean 'letter'? Available: vehicle, satimage, ...
    """
    source, folder = _find(name), _looked_in(data_dir)
    if folder is None or not is_local(name, folder):
        lines, where = _download_lines(source, folder), source.url
    else:
        lines, where = _local_lines(source, folder), str(folder)
    sha256, note = fingerprint(name, data_dir)
    X = np.loadtxt(BytesIO(lines), delimiter=",", usecols=range(source.n_features), ndmin=2)
    classes, codes = np.unique([line.rpartition(b",")[2].decode() for line in lines.splitlines()], return_inverse=True)
    y, order = codes.astype(np.int64), np.arange(len(X))
    if source.shuffled:  # as pandas' frame.sample(frac=1, random_state=split_seed), which uses the old generator
        order = np.random.RandomState(split_seed).permutation(len(X))
    train, test = order[: source.n_train], order[source.n_train :]
    return Dataset(
        name,
        *(X[train], y[train], X[test], y[test]),
        classes=tuple(classes.tolist()),
        feature_names=source.features,
        sha256=sha256,
        source=where,
        note=note,
    )


def is_local(name: str, data_dir: FilePath | None = None) -> bool:
    """Return whether the files of a data set are in the local folder."""
    folder = _looked_in(data_dir)
    return folder is not None and all((folder / file).is_file() for file in _find(name).files)


def fingerprint(name: str, data_dir: FilePath | None = None) -> tuple[str, str]:
    """Return the hash and the note of ``load(name, data_dir)`` without reading the data."""
    source = _find(name)
    if source.n_test_local is None:
        return source.sha256, ""
    if not is_local(name, data_dir):
        return COVTYPE_ARCHIVE, ""
    return source.sha256, f"measured on {source.n_test_local:,} of {source.n_test:,} test rows"


def _find(name: str) -> Source:
    if name not in SOURCES:
        raise InputError(f"unknown data set {name!r}.{suggestion(name, SOURCES)} Available: {', '.join(SOURCES)}.")
    return SOURCES[name]


def _looked_in(data_dir: FilePath | None) -> Path | None:
    folder = data_dir or os.environ.get(DATA_FOLDER_VARIABLE)
    return Path(folder) if folder else None


def _local_lines(source: Source, folder: Path) -> bytes:
    """Return the lines of all files, without their headers."""
    try:
        texts = [gzip.decompress((folder / file).read_bytes()) for file in source.files]
        lines = b"".join(text[text.index(b"\n") + 1 :] for text in texts)
    except (OSError, EOFError, ValueError, zlib.error):
        lines = b""
    if hashlib.sha256(lines).hexdigest() != source.sha256:
        raise DatasetError(
            f"{' or '.join(source.files)} in {folder} is not the known file. Replace it, or remove it to download "
            f"{source.name} from {source.page}."
        )
    return lines


def _download_lines(source: Source, looked_in: Path | None) -> bytes:
    """Download a data set and return its lines as the local files hold them.

    The rows are compared with the known hash, since an archive may be packed again; covtype's file is compared whole.

    Raises
    ------
    DatasetError
        If there is no network, or the rows are not the known ones.
    MissingExtraError
        If pooch is not installed.
    """
    wanted = " and ".join(source.files)
    where = f"not in {looked_in}" if looked_in else f"not at hand ({DATA_FOLDER_VARIABLE} is not set)"
    by_hand = f"put {wanted} into a folder and name it with --data or {DATA_FOLDER_VARIABLE}."
    try:
        files = _fetch(source)
    except ImportError as error:
        raise MissingExtraError(
            f'{source.name} is {where}. Downloading it needs pooch: pip install "demur[paper]". Or {by_hand}'
        ) from error
    except Exception as error:  # pooch, requests and zipfile raise many types of errors
        raise DatasetError(
            f"{source.name} is {where}, and downloading it from {source.url} failed ({type(error).__name__}). "
            f"Without a network, {by_hand}"
        ) from error
    if not source.members:
        return gzip.decompress(files[0].read_bytes())
    texts = [file.read_text() for file in files]
    rows = [source.read_line(line.strip()) for text in texts for line in text.splitlines() if line.strip()]
    lines = "".join(",".join(row) + "\n" for row in rows).encode()
    found = hashlib.sha256(lines).hexdigest()
    if found != source.sha256:
        raise DatasetError(
            f"{source.url} no longer holds the known rows of {source.name}: their sha256 is {found}, expected "
            f"{source.sha256}. Look at {source.page}, or use a local copy with {DATA_FOLDER_VARIABLE}."
        )
    return lines


def _fetch(source: Source) -> list[Path]:
    """Download the archive unless the cache has it, and return its data files in the order of the rows."""
    import pooch  # type: ignore[import-untyped] # it has no type hints

    pooch.get_logger().setLevel(logging.WARNING)
    cache = pooch.os_cache("demur") / source.name
    if not source.members:
        return [Path(pooch.retrieve(source.url, COVTYPE_ARCHIVE, "covtype.data.gz", cache))]
    unpacked = pooch.retrieve(source.url, None, f"{source.name}.zip", cache, processor=pooch.Unzip())
    by_name = {Path(path).name: Path(path) for path in unpacked}
    return [by_name[member] for member in source.members]
