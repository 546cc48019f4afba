"""A rejection loss in your own PyTorch loop: train with ``loss(scores, y)``, decide with ``loss.decide``."""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from demur.losses import get
from demur.metrics import accepted_accuracy, coverage, zero_one_c_risk

COST = 0.1  # declining costs a tenth of a mistake

torch.manual_seed(0)
X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0, stratify=y)
rows, labels = torch.tensor(X_train, dtype=torch.float32), torch.tensor(y_train)

loss = get("ce")  # any name from `demur methods`; losses trained for a cost take it as a third argument
model = torch.nn.Sequential(torch.nn.Linear(64, 50), torch.nn.ReLU(), torch.nn.Linear(50, loss.n_outputs(n_classes=10)))
optimiser = torch.optim.Adam(model.parameters(), lr=3e-3, amsgrad=True)
for _ in range(40):
    for batch in torch.randperm(len(rows)).split(128):
        optimiser.zero_grad()
        loss(model(rows[batch]), labels[batch]).mean().backward()
        optimiser.step()

with torch.no_grad():
    decision = loss.decide(model(torch.tensor(X_test, dtype=torch.float32)), cost=COST)
answers = decision.labels(classes=range(10), reject_label=-1)
print(
    f"answered {coverage(answers):.1%} of the test images, {accepted_accuracy(y_test, answers):.1%} of those correctly"
)
print(f"average cost per image: {zero_one_c_risk(y_test, answers, cost=COST):.4f}")
