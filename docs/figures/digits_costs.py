"""Draw the figure of the tutorial, with its model: ``python docs/figures/digits_costs.py``."""

from pathlib import Path

from matplotlib import rc_context
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from demur import RejectOption
from demur.metrics import CostCurveDisplay


def main() -> None:
    """Write the drawing beside this file."""
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.4, random_state=0, stratify=y
    )
    model = RejectOption(
        make_pipeline(StandardScaler(), LogisticRegression()), cost=0.1
    ).fit(X_train, y_train)
    with rc_context(
        {"svg.hashsalt": "demur", "axes.spines.top": False, "axes.spines.right": False}
    ):
        display = CostCurveDisplay.from_estimator(
            model, X_test, y_test, name="digits", max_cost=0.15, color="#0b5fa5"
        )
        target = Path(__file__).with_name("digits-costs.svg")
        display.figure_.savefig(
            target, metadata={"Date": None}, facecolor="white", bbox_inches="tight"
        )


if __name__ == "__main__":
    main()
