"""Each test process uses one thread: two processes share two cores."""

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("demur", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("demur")

AROUND_A_MODEL = {"cli", "deploy", "evaluation", "export", "persistence", "report", "service", "table_model", "tables"}
"""What these folders test holds for a network however well it is trained."""


@pytest.fixture(autouse=True, scope="module")
def _short_training(request):
    if request.path.parent.name not in AROUND_A_MODEL:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("demur.estimators.fold_networks._MOST_EPOCHS", 12)
        patch.setattr("demur.estimators.fold_networks._FEWEST_EPOCHS", 4)
        patch.setattr("demur.estimators.reject_classifier._EPOCHS", 12)
        yield
