"""Brings the jars of the Apache Kafka release that is our oracle into the cache, and prints where they are."""

from __future__ import annotations

import sys

from headrace.testing.apache_kafka import main

if __name__ == "__main__":
    sys.exit(main())
