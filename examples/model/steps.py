"""The step of the pipeline that scores payments, with the code that trained the model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from features import score  # type: ignore[import-not-found]
from pyspark.sql import DataFrame

MODEL = Path(os.environ.get("HEADRACE_MODEL", Path(__file__).with_name("model.json")))


def scored(payments: DataFrame) -> DataFrame:
    """Each payment with a score; the model is read when the pipeline starts."""
    weights = np.array(json.loads(MODEL.read_text())["weights"])

    def each(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            yield batch[["id"]].assign(score=score(batch, weights).round(4))

    return payments.select("id", "time", "amount", "country", "home").mapInPandas(each, "id string, score double")
