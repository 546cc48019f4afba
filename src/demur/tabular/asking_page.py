"""The part of the report about experts: the table and drawings, and what its script needs to decide at other prices."""

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.array_types import ByName
from demur.metrics import Interval, proportion_interval
from demur.tabular.asking import ASKING_SENTENCES, Asking
from demur.tabular.evaluation_words import UNDEFINED, cost_words, percent
from demur.tabular.report_charts import Chart, deferral_chart, expert_chart

__all__ = ["asking_data", "asking_parts", "highest_price"]

MOST_ROWS = 20_000
"""Rows whose estimates go into the page; of more, as many are drawn."""

_GAP = 255


def asking_parts(asking: Asking) -> ByName:
    """Return what the page shows about the experts, whether a script runs or not."""
    load = asking.load
    own = float((asking.ask < 0).mean())
    right = asking.model_right[asking.ask < 0]
    answering: list[ByName] = [
        {
            "name": "the model itself",
            "count": int((asking.ask < 0).sum()),
            "load": own,
            "interval": _between(proportion_interval(int((asking.ask < 0).sum()), asking.n_rows)),
            "right": float(right.mean()) if len(right) else float("nan"),
            "always": float(asking.nobody.estimate),
            "undefined": UNDEFINED,
        }
    ]
    answering += [
        {
            "name": name,
            "count": int((asking.ask == number).sum()),
            "load": float(load.estimate[number]),
            "interval": f"{percent(float(load.low[number]))} to {percent(float(load.high[number]))}",
            "right": float(asking.right_when_asked(number).estimate),
            "always": float(asking.always(number).estimate),
            "undefined": UNDEFINED,
        }
        for number, name in enumerate(asking.names)
    ]
    charts: list[tuple[Chart, float, int]] = []
    for number, name in enumerate(asking.names):
        found = asking.calibration(number)
        if found is not None:
            n_answered = int((~np.isnan(asking.expert_right[:, number])).sum())
            charts.append((expert_chart(name, number, found), found.error, n_answered))
    return {
        "experts": [{"name": name, "price": float(asking.prices[k])} for k, name in enumerate(asking.names)],
        "answering": answering,
        "expert_charts": charts,
        "highest_price": highest_price(asking.prices),
        "sampled": MOST_ROWS if asking.n_rows > MOST_ROWS else 0,
    }


def _between(found: Interval) -> str:
    return f"{percent(found.low)} to {percent(found.high)}"


def highest_price(prices: NDArray[np.float64]) -> float:
    """Return where the sliders end: at 1/2, at 1, or at the highest price.

    Examples
    --------
    >>> highest_price(np.array([0.05, 0.2])), highest_price(np.array([0.7])), highest_price(np.array([3.0]))
    (0.5, 1.0, 3.0)
    """
    top = float(prices.max())
    return 0.5 if top <= 0.5 else max(1.0, top)


def asking_data(asking: Asking) -> ByName:
    """Return what the script needs to decide every row at other prices exactly as the model would."""
    some = np.arange(asking.n_rows)
    if len(some) > MOST_ROWS:
        some = np.sort(np.random.default_rng(0).choice(len(some), MOST_ROWS, replace=False))
    chart = deferral_chart(asking)
    errors = [float(asking.always(k).estimate) - float(asking.prices[k]) for k in range(len(asking.names))]
    seen = np.where(np.isnan(asking.expert_right), _GAP, np.nan_to_num(asking.expert_right))
    return {
        "names": list(asking.names),
        "by_name": np.argsort(asking.names, kind="stable").tolist(),
        "prices": asking.prices.tolist(),
        "price_words": [cost_words(float(price)) for price in asking.prices],
        "sure": _base64(asking.sure[some], "<f8"),
        "expected": [_base64(column, "<f8") for column in asking.expected[some].T],
        "model_right": _base64(asking.model_right[some], "<u1"),
        "expert_right": [_base64(column, "<u1") for column in seen[some].T],
        "nobody": float(asking.nobody.estimate),
        "errors": [None if np.isnan(error) else error for error in errors],
        "sentences": ASKING_SENTENCES,
        "undefined": UNDEFINED,
        "axes": {name: [axis.high, axis.start, axis.end] for name, axis in (("x", chart.x), ("y", chart.y))},
    }


def _base64(numbers: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers).astype(dtype).tobytes()).decode("ascii")
