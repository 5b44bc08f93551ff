"""Runs Apache Kafka with temporary data until Ctrl-C: `python scripts/run_kafka.py [key=value ...]`."""

from __future__ import annotations

import signal
import sys

from headrace.testing.apache_kafka import KAFKA_VERSION, ApacheKafka, OracleUnavailable


def main(arguments: list[str]) -> int:
    overrides = dict(argument.split("=", 1) for argument in arguments)
    try:
        with ApacheKafka(overrides) as kafka:
            print(f"Apache Kafka {KAFKA_VERSION} on {kafka.bootstrap}, data in {kafka.data_dir}", flush=True)
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
    except OracleUnavailable as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.exit(main(sys.argv[1:]))
