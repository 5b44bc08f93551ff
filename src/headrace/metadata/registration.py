"""What each broker writes for itself, controller or not: its presence, and its blocks of producer ids."""

from __future__ import annotations

from dataclasses import replace

from headrace.coordination.contract import BadVersion, Create, NodeExists, Put, SessionLost, Store, Unknown
from headrace.metadata.image import BrokerImage
from headrace.metadata.layout import (
    BROKER_EPOCH,
    PRODUCER_ID_BLOCK,
    broker_path,
    decode_json,
    encode_broker,
    encode_json,
)
from headrace.model.errors import ErrorCode, KafkaError

PRODUCER_ID_BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1
MAX_ATTEMPTS = 20
"""Against other brokers that write the same node; each failure means that one of them succeeded."""


async def register(store: Store, broker: BrokerImage) -> BrokerImage:
    """Make the broker's ephemeral node; returns it with its new epoch.

    DUPLICATE_BROKER_REGISTRATION if a live process has the id.
    """
    path = broker_path(broker.id)
    for _ in range(MAX_ATTEMPTS):
        epoch, present = await store.get_many([BROKER_EPOCH, path])
        assert epoch is not None, "the store is not laid out"
        if present is not None:
            if decode_json(present)["session"] == store.session.id:
                return replace(broker, epoch=decode_json(present)["epoch"])  # An attempt whose answer was lost.
            raise _duplicate(broker.id)
        registered = replace(broker, epoch=int(epoch.value) + 1)
        begin_epoch = Put(BROKER_EPOCH, str(registered.epoch).encode(), epoch.version)
        announce = Create(path, encode_broker(registered, store.session.id), ephemeral=True)
        try:
            await store.multi([begin_epoch, announce])
        except (BadVersion, NodeExists, Unknown):
            continue
        return registered
    raise _busy()


async def allocate_producer_id_block(store: Store, broker_id: int) -> range:
    """The next ids, never given to anybody else; a block whose write has an unknown result is never used.

    COORDINATOR_NOT_AVAILABLE, which clients try again, if the store does not take it.
    """
    for _ in range(MAX_ATTEMPTS):
        try:
            return await _next_block(store, broker_id)
        except (BadVersion, Unknown):
            continue
        except SessionLost as error:
            raise _busy() from error
    raise _busy()


async def _next_block(store: Store, broker_id: int) -> range:
    node = await store.get(PRODUCER_ID_BLOCK)
    assert node is not None, "the store is not laid out"
    first = int(decode_json(node)["block_end"]) + 1 if node.value else 0
    if first > MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been given out.")
    last = first + PRODUCER_ID_BLOCK_SIZE - 1
    value = encode_json(broker=broker_id, block_start=str(first), block_end=str(last))
    await store.put(PRODUCER_ID_BLOCK, value, node.version)
    return range(first, last + 1)


def _duplicate(broker_id: int) -> KafkaError:
    detail = f"A broker with id {broker_id} is already running in this cluster."
    return KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, detail)


def _busy() -> KafkaError:
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordination store did not take the write.")
