"""Makes the environment with Spark's own Kafka connector that W17 and its test compare with; prints its Python."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.testing.spark_connector import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent))
