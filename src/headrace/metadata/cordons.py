"""Brokers and data directories that get nothing new (KIP-1066, `cordoned.log.dirs`): what they have stays.

A broker is cordoned when all its directories are: by name, or by `*`. The setting is that of the broker while it
runs, or what its file says, which it tells when it registers.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Mapping

from headrace.metadata.image import BrokerImage, MetadataImage

CORDONED = "cordoned.log.dirs"
EVERY_DIRECTORY = "*"


def cordoned_directories(image: MetadataImage, broker: BrokerImage) -> frozenset[str]:
    """The cordoned directories of its `log.dirs`, as absolute paths."""
    own = image.broker_configs.get(str(broker.id), {}).get(CORDONED)
    listed = broker.cordoned if own is None else parse_directories(own)
    return frozenset(broker.log_dirs if EVERY_DIRECTORY in listed else listed)


def is_cordoned(image: MetadataImage, broker: BrokerImage) -> bool:
    own = image.broker_configs.get(str(broker.id), {}).get(CORDONED)
    if EVERY_DIRECTORY in (broker.cordoned if own is None else parse_directories(own)):
        return True
    return bool(broker.log_dirs) and set(broker.log_dirs) <= cordoned_directories(image, broker)


def open_brokers(image: MetadataImage) -> Mapping[int, BrokerImage]:
    """The brokers that may get replicas."""
    if not any(
        broker.cordoned or CORDONED in image.broker_configs.get(str(id), {})
        for id, broker in image.brokers.items()
    ):
        return image.brokers
    return {id: broker for id, broker in image.brokers.items() if not is_cordoned(image, broker)}


def stopped_brokers(image: MetadataImage, known: Iterable[int]) -> list[int]:
    """Stopped brokers that registered and were not removed: they may get replicas for when they are back."""
    return [
        broker_id
        for broker_id in known
        if broker_id not in image.brokers and CORDONED not in image.broker_configs.get(str(broker_id), {})
    ]


def parse_directories(text: str) -> tuple[str, ...]:
    members = (member.strip() for member in text.split(","))
    return tuple(member if member == EVERY_DIRECTORY else os.path.abspath(member) for member in members if member)
