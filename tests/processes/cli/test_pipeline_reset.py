"""The offsets of a pipeline set against a real broker."""

from __future__ import annotations

import json

from headrace.cli.pipeline.reset import replayed
from headrace.spark.pipelines.loading.files import load_pipeline
from headrace.spark.pipelines.running.run_files import RunFiles
from headrace.testing import Broker
from tests.unit.cli.pipeline.test_reset import files, reset

__all__ = ["files"]


def test_offsets_stay_inside_the_log(files: RunFiles) -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        for where in ("7", "-3"):
            said = reset("orders.yml", "--to", where, "--yes", "-b", broker.bootstrap_servers)
            assert ("All partitions end before offset 7" in said) == (where == "7")
            (pipeline,) = replayed([load_pipeline("orders.yml")])
            assert json.loads(pipeline.sources[0].starting) == {"orders": {"0": 0, "1": 0}}
