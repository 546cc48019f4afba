"""A reject option for any scikit-learn classifier: the average cost without it, with it, and calibrated."""

from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from demur import RejectOption
from demur.metrics import zero_one_c_scorer

COST = 0.1  # declining costs a tenth of a mistake; declining everything would cost 0.1 per row

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)

classifiers = [
    GaussianNB(),
    LinearDiscriminantAnalysis(),
    make_pipeline(StandardScaler(), RidgeClassifier()),  # has no predict_proba
    make_pipeline(StandardScaler(), KNeighborsClassifier()),
    RandomForestClassifier(random_state=0),
]
scorer = zero_one_c_scorer(COST)  # minus the average cost: 1 for a mistake, COST for a rejection
print(f"{'average cost of a row':28} always answers  may decline  ... and is calibrated")
for classifier in classifiers:
    models = classifier, RejectOption(classifier, cost=COST, calibration=None), RejectOption(classifier, cost=COST)
    costs = [-scorer(model.fit(X_train, y_train), X_test, y_test) for model in models]
    name = type(classifier[-1] if hasattr(classifier, "steps") else classifier).__name__
    print(f"{name:28} {costs[0]:14.3f} {costs[1]:12.3f} {costs[2]:22.3f}")
