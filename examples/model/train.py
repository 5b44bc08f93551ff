"""Learns from archived payments which ones were frauds, by logistic regression.

headrace archive create payments-archive shop.payments.labelled
headrace archive run payments-archive
python examples/model/train.py payments-archive shop.payments.labelled examples/model/model.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow.dataset as ds
from features import NAMES, features  # type: ignore[import-not-found]
from numpy.typing import NDArray

STEPS = 100
ENOUGH = 1e-9
RIDGE = 1e-3
"""Keeps weights finite where a feature tells frauds from others without exception."""


def archived_payments(archive: str, topic: str) -> pd.DataFrame:
    """What the archive has of a topic: any reader of Parquet can read it."""
    rows = ds.dataset(f"{archive}/topic={topic}", format="parquet", partitioning="hive").to_table()
    return pd.DataFrame([json.loads(value) for value in rows.column("value").to_pylist()])


def train(payments: pd.DataFrame) -> NDArray[np.float64]:
    """The weights of the features, and last the one that is common to all."""
    seen = np.column_stack([features(payments), np.ones(len(payments))])
    truth = payments["fraud"].to_numpy(np.float64)
    weights = np.zeros(seen.shape[1])
    for _ in range(STEPS):  # Newton's method: it needs no rate, whatever the size of the numbers
        guessed = 1 / (1 + np.exp(-(seen @ weights)))
        slope = seen.T @ (guessed - truth) + RIDGE * weights
        curvature = (seen * (guessed * (1 - guessed))[:, None]).T @ seen + RIDGE * np.eye(len(weights))
        step = np.linalg.solve(curvature, slope)
        weights -= step
        if np.abs(step).max() < ENOUGH:
            return weights
    raise ValueError(f"no weights were found in {STEPS} steps")


def main(archive: str, topic: str, model: str) -> None:
    payments = archived_payments(archive, topic)
    weights = train(payments)
    Path(model).write_text(json.dumps({"features": NAMES, "weights": weights.tolist()}))
    print(f"Learned from {len(payments)} payments.")


if __name__ == "__main__":
    main(*sys.argv[1:])
