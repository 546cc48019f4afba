"""Small tables of text with classes that words tell apart, and rows that belong to none of them."""

import numpy as np
import pandas as pd

_OBJECTS = {
    "open": ("door", "window", "gate", "garage"),
    "play": ("song", "album", "record", "playlist"),
    "pay": ("bill", "invoice", "rent", "ticket"),
}


def text_rows(n_each=40, n_outside=0, seed=0):
    """Return rows with a text, a size and a label ``y``; out-of-scope rows have the label "none"."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"please {verb} the {rng.choice(objects)} {rng.choice(['now', 'today', 'for me'])}, request {k}", verb)
        for verb, objects in _OBJECTS.items()
        for k in range(n_each)
    ]
    cities = ("rome", "oslo", "lima", "cairo", "quito")
    rows += [(f"will it rain in {rng.choice(cities)} on day {k} of the holidays?", "none") for k in range(n_outside)]
    table = pd.DataFrame(rows, columns=["text", "y"])
    table["size"] = rng.normal(size=len(table))
    return table.sample(frac=1, random_state=seed).reset_index(drop=True)
