"""One network against an ensemble of ten, over all costs at once.

The ensemble's networks train together as one tensor program, so that ten take little longer than one.
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from demur import RejectClassifier
from demur.metrics import CostCurve

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.8, random_state=0, stratify=y)

print("cost c         0.05    0.1    0.2    0.4   mean over c from 0 to 1/2")
for n_members in (1, 10):
    model = RejectClassifier(
        "ce", n_members=n_members, calibration="temperature", epochs=60, batch_size=32, random_state=0
    )
    model.fit(X_train, y_train)
    # one training serves every cost: the curve comes from one set of probabilities
    curve = CostCurve.from_proba(model.predict_proba(X_test), y_test)
    risks = " ".join(f"{risk:6.3f}" for risk in curve.risk_at([0.05, 0.1, 0.2, 0.4]))
    name = f"{n_members} network" + "s" * (n_members > 1)
    print(f"{name:12} {risks}   {curve.mean_risk(0, 0.5):.4f}")

try:
    import matplotlib as mpl
except ImportError:
    print("to draw the curve: pip install demur[plot]")
else:
    mpl.use("agg")
    from demur.metrics import CostCurveDisplay

    display = CostCurveDisplay(curve, name="10 networks").plot()
    print(f"drawn with axes {display.ax_.get_xlabel()!r} and {display.ax_.get_ylabel()!r}")
