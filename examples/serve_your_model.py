"""Your own scikit-learn pipeline as a service: wrap it, save it, serve it, send a request."""

import json
import re
import subprocess
import sys
import urllib.request

from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import demur
from demur.tabular import TableModel

# Your model: a pipeline that was fitted on a data frame with a column of text.
wine = load_wine(as_frame=True)
frame = wine.data[["alcohol", "hue", "proline"]].assign(
    body=wine.data["flavanoids"].gt(2).map({True: "full", False: "light"}),
    cultivar=wine.target_names[wine.target],
)
old, new = train_test_split(frame, test_size=0.5, random_state=0, stratify=frame["cultivar"])
columns = make_column_transformer(
    (StandardScaler(), ["alcohol", "hue", "proline"]), (OneHotEncoder(handle_unknown="ignore"), ["body"])
)
pipeline = make_pipeline(columns, LogisticRegression()).fit(old.drop(columns="cultivar"), old["cultivar"])

# Calibrate it on rows that it was not trained on.
model = TableModel.wrap(pipeline, frame, target="cultivar", cost=0.1, calibrate=new)
demur.save(model, "wine-model")
print(model)

# The folder works with every command: demur serve, predict, evaluate and monitor.
serving = [sys.executable, "-m", "demur", "serve", "wine-model", "--port", "0", "--log-level", "warning"]
with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as service:
    try:
        address = re.search(r"http://\S+", "".join(service.stdout.readline() for _ in range(2)))[0]
        for row in (
            {"alcohol": 13.8, "hue": 1.1, "proline": 1280, "body": "full"},
            {"alcohol": 12.9, "hue": 0.9, "proline": 640, "body": "light"},
        ):
            question = json.dumps({"row": row, "proba": True}).encode()
            request = urllib.request.Request(f"{address}/decide", question, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as response:
                decision = json.load(response)["decisions"][0]
            sure = ", ".join(f"{name} {share:.0%}" for name, share in decision["proba"].items())
            print(f"{decision['prediction'] or 'declined'}: {sure}")
    finally:
        service.terminate()
