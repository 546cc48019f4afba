"""From the body of a request to the body of its answer."""

import json
from typing import Any

import numpy as np

from demur.deploy.question import Question, QuestionReader
from demur.deploy.quick_model import quick_model
from demur.deploy.refusal import RefusedError
from demur.tabular import TableError, TableModel

__all__ = ["Decider"]


class Decider:
    """Answers requests with a model; it knows nothing of HTTP.

    Parameters
    ----------
    model : TableModel
    max_rows : int

    Examples
    --------
    >>> import pyarrow as pa
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"size": [1.0, 1.1, 1.2, 5.0, 5.1, 5.2] * 9, "y": list("aaabbb") * 9})
    >>> decider = Decider(fit_table(table, "y", model="lr"), max_rows=10)
    >>> answer = json.loads(decider.answer(b'{"row": {"size": 5.1}}'))
    >>> answer["decisions"][0]["prediction"], answer["cost"]
    ('b', 0.2)
    """

    def __init__(self, model: TableModel, max_rows: int) -> None:
        self.model = quick_model(model)
        self.reader = QuestionReader(model.schema, max_rows)
        self.about = {"name": str(model.facts.get("model", "model")), "target": model.target}

    def answer(self, body: bytes) -> bytes:
        """Return the answer as JSON, or raise a :class:`RefusedError`."""
        question = self.reader.read(body)
        cost = self.model.cost if question.cost is None else question.cost
        answers = self._answers(question)
        document = {"decisions": answers.to_pylist(), "cost": cost, "model": self.about}
        return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()

    def _answers(self, question: Question) -> Any:
        if question.cost is not None:
            try:
                self.model.check_cost(question.cost)
            except ValueError as error:
                raise RefusedError(str(error)) from error
        try:
            answers = self.model.answers(question.table, question.cost, where="the request")
        except TableError as error:
            raise RefusedError(str(error)) from error
        certain = np.isfinite(answers["confidence"].to_numpy())
        if not certain.all():  # a column of tiny numbers can make any other overflow once it is scaled
            row = int(np.argmin(certain)) + 1
            problem = f"row {row:,} holds a number too far from those that the model was fitted on"
            raise RefusedError(f"{problem}: correct it or give null")
        return answers
