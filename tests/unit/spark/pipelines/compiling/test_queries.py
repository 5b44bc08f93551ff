"""What is found in a checkpoint before a query begins. No Spark."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from headrace.spark.pipelines.compiling.checkpoints import Fingerprint
from headrace.spark.pipelines.compiling.grouping import Membership
from headrace.spark.pipelines.compiling.queries import _check_checkpoint
from headrace.spark.pipelines.definition import PipelineError
from headrace.spark.pipelines.loading.files import load_pipeline

READ = (("orders", ("orders",)),)


def test_a_query_that_lost_all_its_sinks_is_refused_and_its_checkpoint_stays_as_it_was(tmp_path: Path) -> None:
    """Another file with the same name, or all sinks renamed: undoing that must be enough to continue."""
    file = tmp_path / "first.yml"
    file.write_text(
        "name: orders\nsources: {orders: {topic: orders, format: json, schema: id string}}\n"
        "sinks: {out: {from: orders, console: true}}\n"
    )
    building = mock.Mock(pipeline=load_pipeline(file))
    building.checkpoints.recorded.return_value = Fingerprint(READ * 3, (), "orders")
    left = Membership("paid.shared", (), ("orders",))
    with pytest.raises(PipelineError) as refused:
        _check_checkpoint(building, left, building.pipeline, "c/paid.shared", Fingerprint((), (), "orders"))
    assert "none of the sinks that checkpoint paid.shared was made for" in str(refused.value)
    assert "headrace pipeline reset FILE" in str(refused.value)
    building.checkpoints.record.assert_not_called()
    building.checkpoints.list_query.assert_not_called()

    alone = Membership("orders.dead-letter", (), ("orders",))
    _check_checkpoint(building, alone, building.pipeline, "c/orders.dead-letter", Fingerprint(READ, (), "orders"))
    building.checkpoints.record.assert_called_once()
