"""`headrace pipeline run` and signals: the first lets the current batch end, the second does not. No Spark."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import click
import pytest

from headrace.cli.common.failure import CommandError
from headrace.cli.pipeline.run import AT_ONCE, _attempt, _signals
from headrace.cli.pipeline.screen import PipelineScreen
from headrace.spark.pipelines.running.launching import Launch, LaunchSettings
from headrace.spark.pipelines.running.metrics import PortNotFree
from headrace.spark.pipelines.running.progress import QueryProgress


def launch(screen: PipelineScreen, *queries: QueryProgress) -> Launch:
    return Launch((), LaunchSettings(), screen, progress={query.name: query for query in queries})


def _signal_and_wait(number: int) -> None:
    os.kill(os.getpid(), number)
    threading.Event().wait(60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_says_what_it_means_and_ends_at_once(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = PipelineScreen("table", quiet=False)
    running = launch(screen)
    running.started = True  # no query yet: it waits for its schedule
    before = signal.getsignal(number)
    with _signals(running, screen):
        os.kill(os.getpid(), number)
        assert running.stop.wait(60)
        assert "Stopping when the current batch is done" in capsys.readouterr().err
        with pytest.raises(click.Abort):
            _signal_and_wait(number)
    assert capsys.readouterr().err == f"{AT_ONCE}\n"
    assert signal.getsignal(number) == before


def test_a_signal_while_spark_starts_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    screen = PipelineScreen("table", quiet=False)
    starting = launch(screen)
    with _signals(starting, screen):
        os.kill(os.getpid(), signal.SIGINT)
        assert starting.stop.wait(60)
    assert "Stopping when Spark has started" in capsys.readouterr().err


def test_a_busy_port_for_metrics_is_an_error_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(_: Launch) -> None:
        raise PortNotFree(9700, OSError(98, "Address already in use"))

    monkeypatch.setattr(Launch, "run", busy)
    with pytest.raises(CommandError) as raised:
        _attempt(launch(PipelineScreen("table", quiet=False)))
    assert raised.value.format_message() == (
        "Port 9700 for metrics cannot be used: it is already in use.\n"
        "  Choose another with --metrics-port, or 0 for a free one."
    )


def test_a_state_directory_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    running = launch(PipelineScreen("table", quiet=True))
    monkeypatch.setattr(Launch, "run", lambda _: (tmp_path / "file" / "orders").mkdir())
    with pytest.raises(CommandError) as refused:
        _attempt(running)
    message = refused.value.format_message()
    assert message.startswith(f"Cannot use {tmp_path}/file/orders: Not a directory.\n"), message
    assert "HEADRACE_STATE_DIR" in message
