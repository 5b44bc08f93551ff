"""Mistakes in a test that uses three brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing import BrokerCluster


def test_a_broker_that_there_is_not(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"broker-{number}").mkdir()
    with pytest.raises(ValueError, match="there is no broker 7; the brokers are 1, 2, 3"):
        BrokerCluster(data_dir=tmp_path).kill_broker(7)
