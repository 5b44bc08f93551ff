"""A broker's process ends when it is told to, also while it still starts."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.node import Node
from headrace.running import run_broker


def config(tmp_path: Path) -> BrokerConfig:
    flags = {
        "log.dirs": str(tmp_path / "data"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "headrace.admin.port": "0",
    }
    return BrokerConfig.build(flags=flags)


async def test_a_start_that_hangs_is_ended_by_the_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(node: Node) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
        raise AssertionError("it was told to stop")

    monkeypatch.setattr(Node, "start", hang)
    await asyncio.wait_for(run_broker(config(tmp_path)), 60)


async def test_a_worker_is_not_ready_before_it_knows_the_others_but_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headrace.running.MEETING_SECONDS", 0.05)
    said: list[str] = []

    def tell(bootstrap: str) -> None:
        said.append("ready")
        os.kill(os.getpid(), signal.SIGTERM)

    running = run_broker(
        config(tmp_path), on_serving=lambda _: said.append("serving"), on_ready=tell, beside=[1, 7]
    )
    await asyncio.wait_for(running, 60)
    assert said == ["serving", "ready"]
    assert "started with this one: [7]" in caplog.text, "it knows itself"


async def test_a_running_broker_is_stopped_by_the_signal(tmp_path: Path) -> None:
    ready: list[str] = []

    def tell(bootstrap: str) -> None:
        ready.append(bootstrap)
        os.kill(os.getpid(), signal.SIGTERM)

    await asyncio.wait_for(run_broker(config(tmp_path), on_ready=tell), 60)
    assert ready
    assert not list((tmp_path / "data").rglob("headrace.pid"))
