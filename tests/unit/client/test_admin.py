"""Administrative calls when the controller moves, and one answer for each thing asked for."""

from __future__ import annotations

from headrace.client.address import Address
from headrace.client.admin import NewTopic, create_topics, delete_topics
from headrace.client.cluster import Cluster
from headrace.client.connection import ClientSettings
from headrace.env.real import real_env
from headrace.model.errors import ErrorCode
from headrace.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from headrace.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from headrace.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from headrace.wire.schema import Response
from tests.unit.client.conftest import Serve, broker

SETTINGS = ClientSettings(request_timeout_s=60.0, retry_backoff_s=0.01)
METADATA, CREATE, DELETE = 3, 19, 20


class Controller:
    """Says twice that it is not the controller."""

    def __init__(self) -> None:
        self.address = Address("127.0.0.1", 1)
        self.refusals = 2

    def answer(self, key: int, version: int, body: bytes) -> Response:
        if key == METADATA:
            member = MetadataResponseBroker(node_id=1, host=self.address.host, port=self.address.port)
            return MetadataResponse(brokers=[member], controller_id=1)
        self.refusals -= 1
        moved = int(ErrorCode.NOT_CONTROLLER) if self.refusals >= 0 else 0
        if key == CREATE:
            created = CreateTopicsRequest.decode(body, version).topics
            return CreateTopicsResponse(
                topics=[
                    CreatableTopicResult(
                        name=topic.name, error_code=moved or (36 if topic.name == "old" else 0), error_message=None
                    )
                    for topic in created
                ]
            )
        request = DeleteTopicsRequest.decode(body, version)
        names = [topic.name or "" for topic in request.topics] or request.topic_names
        return DeleteTopicsResponse(
            responses=[DeletableTopicResult(name=name, error_code=moved) for name in names]
        )


async def test_the_controller_is_asked_again_when_it_moves(serve: Serve) -> None:
    controller = Controller()
    controller.address = await serve(
        broker(controller.answer, {METADATA: (0, 12), CREATE: (2, 7), DELETE: (1, 6)})
    )
    async with Cluster(real_env(), (controller.address,), SETTINGS) as cluster:
        outcomes = await create_topics(cluster, [NewTopic("new"), NewTopic("old")])
        assert controller.refusals < 0
        old = outcomes["old"]
        assert outcomes["new"] is None
        assert old is not None
        assert old.code == ErrorCode.TOPIC_ALREADY_EXISTS
        controller.refusals = 1
        assert await delete_topics(cluster, ["new"]) == {"new": None}


async def test_names_are_sent_as_old_versions_want_them(serve: Serve) -> None:
    controller = Controller()
    controller.refusals = 0
    controller.address = await serve(broker(controller.answer, {METADATA: (0, 12), DELETE: (1, 5)}))
    async with Cluster(real_env(), (controller.address,), SETTINGS) as cluster:
        assert await delete_topics(cluster, ["a", "b"]) == {"a": None, "b": None}
