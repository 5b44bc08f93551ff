"""What a principal was allowed once is kept, within limits; of a topic that is gone it must not count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.config.broker_config import BrokerConfig
from headrace.env.real import RealDisk
from headrace.metadata.topic_decisions import TopicCreation
from headrace.model.errors import ErrorCode
from headrace.node import Node
from headrace.server.authorization.hot import PermittedTopics
from headrace.testing.in_process import connect, env_with
from headrace.testing.raw_client import build_batch
from headrace.wire.messages import produce as producing


async def test_a_topic_that_is_made_again_is_found_again(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": "headrace", "allow.everyone.if.no.acl.found": "true"}
    flags = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), **settings}
    node = Node(env_with(RealDisk()), BrokerConfig.build(flags=flags))
    try:
        client = await connect(await node.start())
        controller: Any = node._controller
        partition = producing.PartitionProduceData(index=0, records=build_batch([b"value"]))
        topic = producing.TopicProduceData(name="again", partition_data=[partition])
        request = producing.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
        for _ in range(3):
            await controller.create_topics([TopicCreation("again", 1, 1)])
            await node.replicas.settled()
            for offset in range(2):
                answer = await client.ask(request, producing.ProduceResponse, 9)
                (row,) = answer.responses[0].partition_responses
                assert (row.error_code, row.base_offset) == (0, offset)
            await controller.delete_topics(["again"])
            await node.replicas.settled()
            answer = await client.ask(request, producing.ProduceResponse, 9)
            (row,) = answer.responses[0].partition_responses
            assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    finally:
        await node.stop()


def test_names_that_no_topic_can_have_are_not_kept() -> None:
    """Ten thousand of 30 KB were 290 MB."""
    permitted = PermittedTopics({}, lambda name: name.decode(), lambda name: name.startswith("x"))
    for name, allowed in ((b"x" * 30_000, True), (b"y" * 30_000, False)):
        assert permitted.get(name) is None
        assert permitted.allows(name) is allowed
    assert not permitted
    assert not permitted._decided
