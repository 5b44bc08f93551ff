"""How a broker logs: one line for people, or one JSON object a line for programs. Always to stderr.

    text  2024-05-01 12:00:00.123 INFO broker 1 is the controller, epoch 1
    json  {"time": "2024-05-01T12:00:00.123Z", "level": "INFO", "logger": "headrace.node", "message": "..."}

An exception adds its traceback: further lines of text, or the key "exc". Where several brokers write one log, each
line says whose it is: `[broker 2]` after the level, or the key "broker".
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
FORMAT_VARIABLE = "HEADRACE_LOG_FORMAT"
LEVEL_VARIABLE = "HEADRACE_LOG_LEVEL"
TEXT = "%(asctime)s.%(msecs)03d %(levelname)s %(message)s"


class TextFormatter(logging.Formatter):
    def __init__(self, broker: int | None = None) -> None:
        self._whose = "" if broker is None else f"[broker {broker}] "
        super().__init__(TEXT.replace("%(message)s", f"{self._whose}%(message)s"), "%F %T")

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\n", f"\n{self._whose}")


class JsonFormatter(logging.Formatter):
    def __init__(self, broker: int | None = None) -> None:
        super().__init__()
        self._whose = {} if broker is None else {"broker": broker}

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            **self._whose,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exc"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(format: str, level: str, broker: int | None = None) -> None:
    """`broker` where several write one log."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(broker) if format == "json" else TextFormatter(broker))
    logging.basicConfig(handlers=[handler], level=level.upper())
