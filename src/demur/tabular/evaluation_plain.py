"""An evaluation as plain data, for programs."""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from demur.tabular.evaluation import Evaluation

__all__ = ["as_json", "finite"]


def finite(number: float) -> float | None:
    """Return the number, or None where it is NaN or infinite, which JSON does not know.

    Examples
    --------
    >>> finite(0.5), finite(float("nan"))
    (0.5, None)
    """
    return float(number) if math.isfinite(number) else None


def as_json(evaluation: "Evaluation") -> dict[str, Any]:
    """Return everything that an evaluation says as plain dicts, lists, strings and finite numbers."""
    return {
        "n_rows": evaluation.n_rows,
        "n_unknown_labels": evaluation.n_unknown,
        "classes": list(evaluation.class_names),
        "cost": evaluation.cost if evaluation.is_priced else None,
        "cost_is_free": evaluation.cost_is_free,
        "rule": evaluation.rule_words,
        "sentences": evaluation.sentences(),
        "counts": {
            "answered": evaluation.counts.n_answered,
            "rejected": evaluation.counts.n_rejected,
            "wrong": evaluation.counts.n_wrong,
        },
        "figures": {
            name: {"estimate": finite(found.estimate), "low": finite(found.low), "high": finite(found.high)}
            for name, found in evaluation.figures.items()
            if evaluation.is_priced or name != "risk"
        },
        "baselines": {
            "answer_everything": evaluation.risk_if_all_answered,
            "reject_everything": evaluation.risk_if_all_rejected if evaluation.is_priced else None,
        },
        "by_class": [
            {
                "name": one.name,
                "n_rows": one.n_rows,
                "n_rejected": one.n_rejected,
                "accepted_accuracy": finite(one.accepted_accuracy),
                "precision": finite(one.precision),
                "recall": finite(one.recall),
            }
            for one in evaluation.by_class
        ],
        "confusion": evaluation.confusion.tolist(),
        "calibration": _calibration(evaluation),
    }


def _calibration(evaluation: "Evaluation") -> dict[str, Any] | None:
    found = evaluation.reliability
    if found is None:
        return None
    bins = [
        {
            "from": float(found.edges[k]),
            "to": float(found.edges[k + 1]),
            "n_rows": int(found.n_rows[k]),
            "confidence": finite(found.confidence[k]),
            "accuracy": finite(found.accuracy[k]),
        }
        for k in range(len(found.n_rows))
    ]
    return {"expected_calibration_error": finite(found.ece), "bins": bins}
