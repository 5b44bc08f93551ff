"""The names of confluent-kafka's admin interface that we use, imported in one place.

The package shows them as `confluent_kafka.admin.*` but does not export them there as far as types are concerned.
"""

from __future__ import annotations

from confluent_kafka.admin import AdminClient as AdminClient
from confluent_kafka.admin._config import AlterConfigOpType as AlterConfigOpType
from confluent_kafka.admin._config import ConfigEntry as ConfigEntry
from confluent_kafka.admin._config import ConfigResource as ConfigResource
from confluent_kafka.admin._config import ConfigSource as ConfigSource
from confluent_kafka.admin._listoffsets import OffsetSpec as OffsetSpec
from confluent_kafka.admin._resource import ResourceType as ResourceType
from confluent_kafka.cimpl import NewPartitions as NewPartitions
from confluent_kafka.cimpl import NewTopic as NewTopic

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""What `offset_spec` takes besides a time."""


def offset_spec(value: int) -> OffsetSpec:
    """LATEST, EARLIEST, MAX_TIMESTAMP or a time in milliseconds."""
    if value < 0:
        return OffsetSpec._values[value]
    spec: OffsetSpec = OffsetSpec.for_timestamp(value)
    return spec
