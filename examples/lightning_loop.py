"""A rejection loss with Lightning: the loss goes into ``training_step``, the predicted scores into ``loss.decide``."""

import logging
import warnings

import lightning
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

from demur.losses import Loss, get
from demur.metrics import accepted_accuracy, coverage

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")


class RejectingNetwork(lightning.LightningModule):
    """A small network that learns with a rejection loss and predicts scores."""

    def __init__(self, loss: Loss, n_features: int, n_classes: int, cost: float) -> None:
        super().__init__()
        self.loss, self.cost = loss, cost
        n_outputs = loss.n_outputs(n_classes)
        self.network = torch.nn.Sequential(
            torch.nn.Linear(n_features, 50), torch.nn.ReLU(), torch.nn.Linear(50, n_outputs)
        )

    def training_step(self, batch, _):
        rows, labels = batch
        return self.loss(self.network(rows), labels, self.cost).mean()

    def predict_step(self, batch, _):
        return self.network(batch[0])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3, amsgrad=True)


lightning.seed_everything(0, verbose=False)
X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0, stratify=y)
training = TensorDataset(torch.tensor(X_train, dtype=torch.float32), torch.tensor(y_train))
testing = TensorDataset(torch.tensor(X_test, dtype=torch.float32))

model = RejectingNetwork(get("ce"), n_features=64, n_classes=10, cost=0.1)
trainer = lightning.Trainer(
    max_epochs=30, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)  # fmt: skip
trainer.fit(model, DataLoader(training, batch_size=128, shuffle=True))
scores = torch.cat(trainer.predict(model, DataLoader(testing, batch_size=128)))
decision = model.loss.decide(scores, model.cost)
answers = decision.labels(classes=range(10), reject_label=-1)
print(
    f"answered {coverage(answers):.1%} of the test images, {accepted_accuracy(y_test, answers):.1%} of those correctly"
)
