"""What a broker does while there is no controller that it could ask."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import cast

from headrace.env.real import real_env
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.image import Endpoint, MetadataImage
from headrace.model.errors import KafkaError
from headrace.replication.controller_link import ControllerLink
from headrace.replication.peers import Peer, Peers
from headrace.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse


class NoController:
    image = MetadataImage("")


async def _nowhere(endpoint: Endpoint) -> Peer:
    raise AssertionError


async def test_a_request_that_no_controller_answered_is_let_go() -> None:
    """It was kept until the collector came by: a request with thousands of topics, asked again and again."""
    peers = Peers(_nowhere, lambda: NoController.image, "PLAINTEXT")
    link = ControllerLink(real_env(), cast(ClusterMetadata, NoController()), peers, 1)
    request = CreateTopicsRequest(topics=[])
    reference = weakref.ref(request)
    gc.disable()
    try:
        with contextlib.suppress(KafkaError):
            await link.ask(request, CreateTopicsResponse, timeout_s=0)
        del request
        assert reference() is None
    finally:
        gc.enable()
