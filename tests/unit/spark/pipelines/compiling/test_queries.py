"""What is found in a checkpoint before a query begins. No Spark."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from py4j.protocol import Py4JError

from headrace.spark.pipelines.compiling.checkpoint_folders import CheckpointPlace, HadoopFiles
from headrace.spark.pipelines.compiling.checkpoints import Fingerprint
from headrace.spark.pipelines.compiling.grouping import Membership
from headrace.spark.pipelines.compiling.queries import _check_checkpoint, build_queries
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


def test_a_checkpoint_that_spark_cannot_open_is_a_problem_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an object store: no jar, the wrong keys, no such bucket. Java's stack trace is for the log."""
    file = tmp_path / "lake.yml"
    file.write_text(
        "name: lake\ncheckpoint: s3a://lake/state\nsources: {a: {topic: a, format: json, schema: id string}}\n"
        "sinks: {out: {from: a, console: true}}\n"
    )
    called = "An error occurred while calling o7.exists.\n: "
    refusal = "java.nio.file.AccessDeniedException: s3a://lake/state/metadata: 403 Forbidden\n\tat a.b.C(D.java:1)"
    monkeypatch.setattr(HadoopFiles, "is_file", mock.Mock(side_effect=Py4JError(called + refusal)))
    with pytest.raises(PipelineError) as told:
        build_queries(
            load_pipeline(file), mock.Mock(), bootstrap="b:1", checkpoint=CheckpointPlace("s3a://lake/state")
        )
    assert str(told.value) == (
        f"{file}:2:13: pipeline lake: the checkpoint cannot be opened: "
        "AccessDeniedException: s3a://lake/state/metadata: 403 Forbidden"
    )
