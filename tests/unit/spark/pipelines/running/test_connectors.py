"""Connectors that run beside pipelines. No Spark, and no broker."""

from __future__ import annotations

import threading
from unittest import mock

import pytest

from headrace.connect.api import ConnectorError
from headrace.spark.pipelines.running import connectors
from headrace.spark.pipelines.running.connectors import ConnectorFailed, connectors_beside

WAIT_S = 60.0


@pytest.mark.parametrize(
    ("error", "told"), [(ConnectorError("no rights"), ConnectorFailed), (KeyError("a bug"), KeyError)]
)
def test_a_connector_that_ends_stops_the_pipelines(
    error: Exception, told: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it was: without it the pipelines would wait for records that never come."""
    runner = mock.Mock(run=mock.AsyncMock(side_effect=error))
    monkeypatch.setattr(connectors, "Runner", mock.Mock(return_value=runner))
    monkeypatch.setattr(connectors, "load_file", mock.Mock())
    monkeypatch.setattr(connectors, "_own", lambda definition, way: (definition, mock.MagicMock()))
    monkeypatch.setattr(connectors, "_way", mock.Mock())
    monkeypatch.setattr(connectors, "_make_topics", mock.AsyncMock())
    pipeline = mock.Mock(sources=[mock.Mock(connector="orders.yml")], sinks=[])
    stop = threading.Event()
    with pytest.raises(told), connectors_beside([pipeline], mock.Mock(), stop, once=False):
        assert stop.wait(WAIT_S)
