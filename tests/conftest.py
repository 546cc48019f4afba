"""Each test process uses one thread: two processes share two cores."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("demur", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("demur")
