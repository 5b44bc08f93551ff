"""Every mistake says what is wrong, where, and what to do; with its exit code, and without a traceback."""

from __future__ import annotations

import http.server
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.command_line import headrace

UNUSED = "127.0.0.1:1"


CASES = [
    # nothing listens
    (["topic", "list", "-b", UNUSED], 3, ["Cannot reach a broker at 127.0.0.1:1", "refused", "headrace start"]),
    (["-b", UNUSED, "topic", "list"], 3, ["127.0.0.1:1"]),
    (["topic", "list", "--bootstrap-servers", f"{UNUSED},127.0.0.1:2"], 3, ["any of the brokers", "127.0.0.1:2"]),
    (
        ["cluster", "info", "-b", "no-such-host.invalid"],
        3,
        ["no-such-host.invalid:9092", "host name is not known"],
    ),
    (["kafka-topics", "--list", "--bootstrap-server", UNUSED], 3, ["refused"]),
    # bad flags and values
    (["topic", "list", "--frmat", "json"], 2, ["No such option", "--format"]),
    (["topic", "list", "--format", "xml"], 2, ["'xml' is not one of"]),
    (["topic", "list", "-b", "host:port"], 2, ["'host:port' is not of the form host:port"]),
    (["topic", "list", "-b", "host:99999"], 2, ["ports are 1 to 65535"]),
    (["topic", "list", "--timeout", "soon"], 2, ["'soon' is not a valid duration"]),
    (["topic", "list", "["], 2, ["not a valid regular expression"]),
    (["topic", "lst"], 2, ["Did you mean 'list'?"]),
    (["topc"], 2, ["Did you mean 'topic'?"]),
    (["kafka-topic"], 2, ["Did you mean 'kafka-topics'?"]),
    (["topic", "create"], 2, ["Missing argument 'TOPIC...'"]),
    (["topic", "create", "t", "-p", "0"], 2, ["'-p'", "x>=1"]),
    (["topic", "create", "t", "-p", "three"], 2, ["'three' is not a whole number.\n"]),
    (["start", "--port", "9192"], 2, ["No such option '--port'. ", "--override listeners="]),
    (["debug", "dump-log", "/"], 2, ["/ is a directory; name its files, for example /*.log.\n"]),
    (["topic", "create", "t", "-c", "retention"], 2, ["key=value"]),
    (["topic", "alter", "t"], 2, ["Name what to change"]),
    (["topic", "add-partitions", "t"], 2, ["--count", "--total"]),
    (["topic", "consume", "t", "--from-beginning", "-b", UNUSED], 3, ["refused"]),  # Kafka's flag
    (["topic", "consume", "t", "-o", "soon"], 2, ["'soon' is not a valid offset", "@TIME"]),
    (["topic", "consume", "t", "-o", "@soon"], 2, ["'soon' is not a valid time"]),
    (["topic", "consume", "t", "-f", "%q"], 2, ["%q is not a known field"]),
    (["topic", "trim", "t"], 2, ["--before"]),
    (["topic", "trim", "t", "-o", "1:2"], 2, ["not a range"]),
    (["topic", "produce", "t", "-H", "=x", "v"], 2, ["not of the form name=value.\n"]),
    (["plan"], 2, ["--throughput"]),
    (["plan", "-t", "much"], 2, ["'much' is not a valid size"]),
    (["plan", "-t", "0"], 2, ["above zero"]),
    (["kafka-topics"], 2, ["exactly one of"]),
    (["kafka-topics", "--create"], 2, ["--create needs --topic"]),
    (["kafka-configs", "--describe"], 2, ["Give --entity-type"]),
    (["kafka-console-consumer", "--topic", "t", "--offset", "5"], 2, ["--offset needs --partition"]),
    (["kafka-console-producer", "--topic", "t", "--property", "nope=1"], 2, ["nope is not supported"]),
    (["kafka-producer-perf-test"], 2, ["Use: headrace perf produce TOPIC"]),
    (["produce", "orders"], 2, ["Use: headrace topic produce TOPIC"]),
    (["kafka-server-start.sh", "server.properties"], 2, ["Use: headrace start server.properties\n"]),
    (["kafka-streams-application-reset"], 2, ["Use: headrace group seek"]),
    (["kafka-acls", "--list"], 2, ["Use: headrace acl"]),
    (["completion", "tcsh"], 2, ["'tcsh' is not one of"]),
    # files
    (["start", "missing.properties"], 4, ["Cannot read missing.properties: No such file or directory."]),
    (["status", "missing.properties"], 4, ["Cannot read missing.properties: No such file or directory."]),
    (["debug", "dump-log", "missing.log"], 4, ["Cannot read missing.log"]),
    (["topic", "list", "--client-config", "missing"], 4, ["Cannot read missing: No such file or directory."]),
    (["topic", "list", "--client-config", "."], 2, ["File '.' is a directory."]),
    (["topic", "list", "--client-config", sys.executable], 1, ["it is not UTF-8 text"]),
    (["kafka-topics", "--list", "--command-config", "missing"], 4, ["Cannot read missing: No such file"]),
    (["user", "add", "u", "--password-file", "missing"], 4, ["Cannot read missing: No such file or directory."]),
    (["pipeline", "test", "missing.yml"], 4, ["There is no file missing.yml"]),
    (["pipeline", "preview", "missing.yml"], 4, ["There is no file missing.yml"]),
    (["pipeline", "run", "missing.yml"], 4, ["There is no file missing.yml"]),
    (["connector", "init", "lines", "-d", "/dev/null/x"], 1, ["Cannot use /dev/null/x: Not a directory."]),
    (["connector", "check", "missing.yml"], 4, ["There is no file missing.yml"]),
    (["debug", "dump-log", "notes.txt"], 2, ["is not a log file"]),
    (["kafka-dump-log", "--files", "missing.index"], 4, ["Cannot read missing.index"]),
]


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    CASES,
    ids=lambda value: " ".join(map(str, value))[:50] if isinstance(value, list) else None,
)
def test_mistakes(arguments: list[str], code: int, parts: list[str]) -> None:
    result = headrace(*arguments)
    assert result.returncode == code, result.stderr
    for part in parts:
        assert part in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == "", "stdout is data"


class _Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def web_server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Web) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_web_server_on_that_port(web_server: str) -> None:
    result = headrace("topic", "list", "-b", web_server, "--timeout", "1s")
    assert result.returncode == 3
    assert f"at {web_server}: an HTTP server answers there" in result.stderr
    assert "9092" in result.stderr


def test_a_port_that_stays_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = headrace("topic", "list", "-b", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "300ms")
    assert result.returncode == 3
    assert "no answer in time" in result.stderr


def test_the_environment_names_the_cluster_and_a_flag_wins(tmp_path: Path) -> None:
    environment = {"HEADRACE_BOOTSTRAP_SERVERS": "127.0.0.1:2"}
    assert "127.0.0.1:2" in headrace("topic", "list", environment=environment).stderr
    for arguments in (["topic", "list", "-b", UNUSED], ["-b", UNUSED, "topic", "list"]):
        assert f"at {UNUSED}" in headrace(*arguments, environment=environment).stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    result = headrace("completion", shell)
    assert result.returncode == 0
    assert "_HEADRACE_COMPLETE" in result.stdout


def test_completion_of_commands_and_options() -> None:
    def completed(words: str) -> list[str]:
        environment = {"_HEADRACE_COMPLETE": "bash_complete", "COMP_WORDS": words}
        environment["COMP_CWORD"] = str(len(words.split(" ")) - 1)
        return [line.split(",")[1] for line in headrace(environment=environment).stdout.split()]

    assert completed("headrace to") == ["topic"]
    assert completed("headrace topic d") == ["describe", "delete"]
    assert "--replication-factor" in completed("headrace topic create --rep")
    assert completed(f"headrace topic describe -b {UNUSED} x") == [], "no cluster, no topics, no noise"
    assert "kafka-topics" in completed("headrace kafka-")
    assert completed("headrace topic alter t --set cleanup.po") == ["cleanup.policy="]
    assert completed("headrace topic alter t --delete cleanup.po") == ["cleanup.policy"]
    assert completed("headrace topic create t -c cleanup.policy=d") == ["cleanup.policy=delete"]
    assert completed("headrace start --override auto.create.topics.enable=t") == ["auto.create.topics.enable=true"]
    assert completed("headrace start --override num.part") == ["num.partitions="]


def test_completion_of_pipelines(tmp_path: Path) -> None:
    (tmp_path / "pipelines" / "orders").mkdir(parents=True)
    (tmp_path / "pipelines" / "orders" / "lock").touch()
    environment = {"_HEADRACE_COMPLETE": "bash_complete", "COMP_WORDS": "headrace pipeline stop o"}
    environment |= {"COMP_CWORD": "3", "HEADRACE_STATE_DIR": str(tmp_path)}
    assert "orders" in headrace(environment=environment).stdout
