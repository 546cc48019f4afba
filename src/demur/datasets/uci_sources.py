"""The five benchmark data sets of the paper: their sizes, files, hashes and splits."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from demur.errors import UserError

__all__ = ["COVTYPE_ARCHIVE", "DATA_FOLDER_VARIABLE", "SOURCES", "DatasetError", "LocalFile", "Source"]

DATA_FOLDER_VARIABLE = "DEMUR_DATA"
"""The environment variable that names a folder with the data sets."""


class DatasetError(UserError):
    """A data set could not be had, or is not the one it should be."""


@dataclass(frozen=True)
class LocalFile:
    """A gzip-compressed CSV file with a header and the class in the last column."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Source:
    """What is known of a data set before it is read.

    Parameters
    ----------
    name : str
    files : tuple of LocalFile
        In a local folder; with two of them, the training rows and the test rows.
    sha256 : str
        Of all data lines of ``files`` in order, without the headers: the same for a copy from elsewhere.
    n_features, n_classes, n_train, n_test : int
        The sizes of the paper's Table 3.
    features : tuple of str
    train_first : callable
        Takes the number of rows and a seed; returns the order in which the first ``n_train`` rows are the training
        rows.
    page : str
        Where a person finds the data set.
    url : str
        Where the program finds it.
    members : tuple of str
        The files inside the archive at ``url``, in the order of the rows; empty if it is a gzip file.
    read_line : callable
        Turns a line of those files into the columns of a line of ``files``.
    n_test_local : int, optional
        How many test rows the local file has, where that is not all of them.
    """

    name: str
    files: tuple[LocalFile, ...]
    sha256: str
    n_features: int
    n_classes: int
    n_train: int
    n_test: int
    features: tuple[str, ...]
    train_first: Callable[[int, int], NDArray[np.int64]]
    page: str
    url: str
    members: tuple[str, ...] = ()
    read_line: Callable[[str], list[str]] = str.split
    n_test_local: int | None = None


def _by_position(n_rows: int, seed: int) -> NDArray[np.int64]:
    return np.arange(n_rows, dtype=np.int64)


def _shuffled(n_rows: int, seed: int) -> NDArray[np.int64]:
    """Return the row order of pandas' ``frame.sample(frac=1, random_state=seed)``, without pandas."""
    order = np.random.RandomState(seed).permutation(n_rows)  # pandas draws from the old generator
    return order.astype(np.int64)


def _class_first(line: str) -> list[str]:
    label, *values = line.split(",")
    return [*values, label]


def _without_name(line: str) -> list[str]:
    return line.split()[1:]


_UCI = "https://archive.ics.uci.edu"

_VEHICLE = LocalFile("vehicle.csv.gz", "565134d91f91a08d4cc9223147a63613f60de1a5a421ca6a1df1c3ee036e6f22")
_SATIMAGE = (
    LocalFile("satimage_train.csv.gz", "6c9adb9e6e7a0584050b11586900ab8ebd0ef3e3decda0119c8dc7d33e8a67e3"),
    LocalFile("satimage_test.csv.gz", "6c848792c772157e4bd1f204f2b048efe17ae09d763af07422cfca97fb011d76"),
)
_YEAST = LocalFile("yeast.csv.gz", "4a815542d6bfe49b9aa3835188ad2973ad450a1d69c7ce4556bb4c31e62f7a22")
_COVTYPE = LocalFile("covtype.csv.gz", "d9eb599e4b1e784af582fc89ed4696f70c2266a10bb0afa4fd64de4d814ec3e6")
_LETTER = LocalFile("letter.csv.gz", "61ec94fa40c14d69f29dbb0848fe5047be87bf4e0c29d0af41e71e83592332a7")

COVTYPE_ARCHIVE = "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771"
"""The sha256 of the whole covtype.data.gz; scikit-learn's fetch_covtype checks the same one."""

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
            files=(_VEHICLE,),
            sha256="63e275a99c957ee9cdd6cc7dbada4e68ed761ecdb5141ac6771cd25a9ac90292",
            n_features=18,
            n_classes=4,
            n_train=700,
            n_test=146,
            features=tuple(_VEHICLE_FEATURES.split()),
            train_first=_shuffled,
            page=f"{_UCI}/dataset/149/statlog+vehicle+silhouettes",
            url=f"{_UCI}/static/public/149/statlog+vehicle+silhouettes.zip",
            members=tuple(f"xa{letter}.dat" for letter in "abcdefghi"),
        ),
        Source(
            "satimage",
            files=_SATIMAGE,
            sha256="e23a322e05dd9b7772f4889746bf67e51727336916e1be057e8fb3f8a971ac47",
            n_features=36,
            n_classes=6,
            n_train=4435,
            n_test=2000,
            features=tuple(f"attribute{number}" for number in range(1, 37)),
            train_first=_by_position,
            page=f"{_UCI}/dataset/146/statlog+landsat+satellite",
            url=f"{_UCI}/static/public/146/statlog+landsat+satellite.zip",
            members=("sat.trn", "sat.tst"),
        ),
        Source(
            "yeast",
            files=(_YEAST,),
            sha256="8d1421bbf5478edb6dc576ab4ab48fc60f64c0f1ca3d2b5d3decd805e45ef3f7",
            n_features=8,
            n_classes=10,
            n_train=1000,
            n_test=484,
            features=("mcg", "gvh", "alm", "mit", "erl", "pox", "vac", "nuc"),
            train_first=_shuffled,
            page=f"{_UCI}/dataset/110/yeast",
            url=f"{_UCI}/static/public/110/yeast.zip",
            members=("yeast.data",),
            read_line=_without_name,
        ),
        Source(
            "covtype",
            files=(_COVTYPE,),
            sha256="07bb157db99c2c3e4b9fe391aefa6eda5a83db87f841c0740d71e608ac7412c4",
            n_features=54,
            n_classes=7,
            n_train=15_120,
            n_test=565_892,
            n_test_local=415_463,
            features=(
                *_COVTYPE_FEATURES.split(),
                *(f"Wilderness_Area{number}" for number in range(1, 5)),
                *(f"Soil_Type{number}" for number in range(1, 41)),
            ),
            train_first=_by_position,
            page=f"{_UCI}/dataset/31/covertype",
            url="https://ndownloader.figshare.com/files/5976039",
            read_line=lambda line: line.split(","),
        ),
        Source(
            "letter",
            files=(_LETTER,),
            sha256="6150021956684ad3d40ef3789aedd0ed2be11cc7061be0d65332337c4ff85f1c",
            n_features=16,
            n_classes=26,
            n_train=15_000,
            n_test=5_000,
            features=tuple(_LETTER_FEATURES.split()),
            train_first=_by_position,
            page=f"{_UCI}/dataset/59/letter+recognition",
            url=f"{_UCI}/static/public/59/letter+recognition.zip",
            members=("letter-recognition.data",),
            read_line=_class_first,
        ),
    )
}
"""In the order of the paper's Table 3."""
