"""What processes that start Spark have around them in tests: a quick Java, and a Python that may be slow."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.spark.pipelines.running.session import find_java
from tests.spark.patient_python import patient_python
from tests.spark.quick_java import quick_options


def surroundings(folder: Path) -> dict[str, str]:
    """Variables for the environment. `NoJava` says what is missing."""
    java = find_java(os.environ)
    python = patient_python(folder)
    os.environ["PYSPARK_PYTHON"] = python  # also for the process that makes the image
    return {
        "JAVA_HOME": str(java.home),
        "SPARK_SUBMIT_OPTS": quick_options(java.home),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
    }
