"""Text as numbers: word and character n-grams, and a dense view of them beside static embeddings."""

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from demur.array_types import Estimator, Features, Floats, Objects
from demur.errors import MissingExtraError
from demur.estimators.boosted_trees import is_installed

_EMBEDDINGS = "wordllama"
_MANY_ROWS = 1_000
"""Number of rows from which a character n-gram must occur in at least two of them."""
_MOST_TERMS = 1 << 16
"""Maximum numbers of words and pairs of words, and of character n-grams; the most frequent are kept."""
_MOST_CHARACTERS = 1_000
"""Number of characters from which character n-grams are taken; longer texts have enough words."""
_MOST_LEARNED = 30_000
"""Maximum number of texts from which the axes are learned."""
_AXES = 256
_LENGTH = 10.0
"""Norm of a row of the dense view, which determines the strength of the penalty of a logistic regression."""
_AT_ONCE = 16
"""Number of texts that are embedded together, padded to the longest."""
_ROWS_PER_AXIS = 10
"""Number of training texts per axis; with fewer texts, the axes would overfit them."""


_PARTS: tuple[dict[str, Any], ...] = (
    {"ngram_range": (1, 2)},
    {"ngram_range": (2, 5), "analyzer": "char_wb"},
)


def _read(texts: Objects) -> tuple[Any, Any]:
    """Return the texts for words and for characters."""
    return texts, [text[:_MOST_CHARACTERS] for text in texts]


_vectorizer = partial(TfidfVectorizer, sublinear_tf=True, dtype=np.float32)


class Ngrams:
    """Word 1-2-grams, and character 2-5-grams of the first 1,000 characters, weighted by tf-idf.

    Examples
    --------
    >>> ngrams = Ngrams()
    >>> ngrams.fit_transform(np.array(["open the door", "close the door"], dtype=object)).shape[0]
    2
    >>> ngrams.transform(np.array(["", "the door"], dtype=object)).getnnz(axis=1)
    array([ 0, 27], dtype=int32)
    """

    def fit_transform(self, texts: Objects) -> sparse.csr_matrix:
        """Learn the n-grams, and return the weights of the same texts."""
        words, characters = (_vectorizer(max_features=_MOST_TERMS, **part) for part in _PARTS)
        characters.set_params(min_df=2 if len(texts) >= _MANY_ROWS else 1)
        self.parts_ = (words, characters)
        # a table of empty texts has n-grams as well
        given = [[*read, "text", "text"] for read in _read(texts)]
        found = [part.fit_transform(one)[: len(texts)] for part, one in zip(self.parts_, given, strict=True)]
        return sparse.csr_matrix(sparse.hstack(found, format="csr"))

    def transform(self, texts: Objects) -> sparse.csr_matrix:
        """Return the weights, a row for each text."""
        found = [part.transform(read) for part, read in zip(self.parts_, _read(texts), strict=True)]
        return sparse.csr_matrix(sparse.hstack(found, format="csr"))

    def __getstate__(self) -> dict[str, Any]:
        # An archive stores arrays well, and a dictionary of 50,000 terms badly.
        return {"stored": [(part.get_feature_names_out().astype(str), part.idf_) for part in self.parts_]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        parts = []
        for own, (terms, idf) in zip(_PARTS, state["stored"], strict=True):
            part = _vectorizer(vocabulary=terms.tolist(), **own)
            part.idf_ = idf
            parts.append(part)
        self.parts_ = tuple(parts)


@dataclass(frozen=True, eq=False)
class DenseText:
    """A dense view of texts: a truncated SVD of their n-grams, and static embeddings if ``demur[text]`` is installed.

    Rows have norm 10, to which both parts contribute equally, so distances correspond to cosine similarities.

    Parameters
    ----------
    ngrams : Ngrams
    axes : array of shape (n_terms, n_axes)
        The right singular vectors of the training texts.
    embeddings : str or None
        The package that makes the embeddings. Its weights are not stored.

    Examples
    --------
    >>> from dataclasses import replace
    >>> texts = np.array(["open the door", "close the door", "play a song"] * 9, dtype=object)
    >>> points = replace(DenseText.learn(texts), embeddings=None).transform(texts[:3])
    >>> (points @ points.T / 100).round(1) + 0.0
    array([[1., 1., 0.],
           [1., 1., 0.],
           [0., 0., 1.]])
    """

    ngrams: Ngrams
    axes: NDArray[np.float32]
    embeddings: str | None

    @classmethod
    def learn(cls, texts: Objects) -> Self:
        """Learn from training texts; labels are not used."""
        ngrams = Ngrams()
        weights = ngrams.fit_transform(texts)[:: -(-len(texts) // _MOST_LEARNED)]
        n_axes = max(2, min(_AXES, len(texts) // _ROWS_PER_AXIS, weights.shape[1] - 1))
        # One power iteration: five take twice the time and are no better for classification.
        axes = randomized_svd(weights, n_axes, n_iter=1, random_state=0)[2].T
        embeddings = _EMBEDDINGS if is_installed(_EMBEDDINGS) else None
        return cls(ngrams, np.ascontiguousarray(axes, dtype=np.float32), embeddings)

    def transform(self, texts: Objects) -> Floats:
        """Return the numbers, a row for each text."""
        return self.with_ngrams(texts)[0]

    def with_ngrams(self, texts: Objects) -> tuple[Floats, sparse.csr_matrix]:
        """Return the numbers, and the n-grams that they were computed from."""
        weights = self.ngrams.transform(texts)
        parts = [normalize(weights @ self.axes)]
        if self.embeddings is not None:
            parts.append(_embedded(texts))
        return np.hstack(parts).astype(np.float64) * (_LENGTH / np.sqrt(len(parts))), weights


def beside(weights: sparse.csr_matrix, dense: Any, codes: Floats) -> sparse.csr_matrix:
    """Return n-grams with other columns beside them, which ``dense`` turns into numbers on one scale."""
    if dense is None:
        return weights
    other = sparse.csr_matrix(np.asarray(dense.transform(codes), dtype=np.float32))
    return sparse.csr_matrix(sparse.hstack([weights, other], format="csr"))


def top_score(model: Estimator, X: Features) -> Floats:
    """Return the largest one-versus-rest score of each row."""
    scores = np.asarray(model.decision_function(X), dtype=np.float64)
    return np.abs(scores) if scores.ndim == 1 else scores.max(axis=1)


def _embedded(texts: Objects) -> NDArray[np.float32]:
    """Return unit-length embeddings, zeros for empty texts."""
    given = [text or " " for text in texts.tolist()]
    found = np.asarray(_wordllama().embed(given, norm=True, batch_size=_AT_ONCE), dtype=np.float32)
    found[~np.isfinite(found).all(axis=1)] = 0.0
    return found


@lru_cache(maxsize=1)
def _wordllama() -> Any:
    """Return the model that the wheel of wordllama holds; nothing is downloaded."""
    from pathlib import Path

    if not is_installed(_EMBEDDINGS):
        raise MissingExtraError("this model uses text embeddings, which need a package: pip install demur[text]")
    import wordllama  # type: ignore[import-not-found,import-untyped,unused-ignore]

    # In its own folder it finds the tokenizer of the wheel, elsewhere it would download one.
    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
