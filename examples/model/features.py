"""What a model sees of a payment. Training and scoring both use this, so they cannot disagree."""

from __future__ import annotations

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

NAMES = ("amount", "at night", "abroad")
NIGHT_ENDS = 6


def features(payments: pd.DataFrame) -> NDArray[np.float64]:
    """A row of numbers for each payment."""
    hours = pd.to_datetime(payments["time"], utc=True).dt.hour.to_numpy()
    return np.column_stack(
        [
            np.log1p(payments["amount"].to_numpy(np.float64)),
            (hours < NIGHT_ENDS).astype(np.float64),
            (payments["country"] != payments["home"]).to_numpy(np.float64),
        ]
    )


def score(payments: pd.DataFrame, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """How likely each is a fraud. The last weight is for what is common to all."""
    sums: NDArray[np.float64] = features(payments) @ weights[:-1] + weights[-1]
    return 1 / (1 + np.exp(-sums))
