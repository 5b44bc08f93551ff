"""Command-line tools of Apache Kafka, many of them in one Java: to start it takes longer than what they do."""

from __future__ import annotations

import base64
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.testing.apache_kafka import fetch_libraries

SOURCE = Path(__file__).parent / "java" / "Tools.java"
PATIENCE_S = 240.0

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


class JavaTools:
    """`with JavaTools() as tools: tools.run(TOPICS, "--list", ...)`."""

    def __init__(self, *options: str) -> None:
        common = ["-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *options]
        command = ["java", *common, "-cp", f"{fetch_libraries()}/*", str(SOURCE)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, main_class: str, *arguments: str, stdin: str = "") -> tuple[int, str]:
        """What it ended with, and what it printed."""
        words = [main_class, stdin, *arguments]
        line = " ".join(base64.b64encode(word.encode()).decode() for word in words)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        patience = threading.Timer(PATIENCE_S, self._process.kill)
        patience.start()
        try:
            answer = self._process.stdout.readline()
        finally:
            patience.cancel()
        assert answer, f"{main_class} ended Java, or took longer than {PATIENCE_S} s"
        code, _, said = answer.partition(" ")
        return int(code), base64.b64decode(said).decode()

    def must(self, main_class: str, *arguments: str, stdin: str = "") -> str:
        code, said = self.run(main_class, *arguments, stdin=stdin)
        assert code == 0, said
        return said

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
