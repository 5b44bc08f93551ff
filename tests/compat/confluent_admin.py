"""The names of confluent-kafka's admin interface that we use, imported in one place.

The package shows them as `confluent_kafka.admin.*` but does not export them there as far as types are concerned.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import AdminClient as AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._config import AlterConfigOpType as AlterConfigOpType
from confluent_kafka.admin._config import ConfigEntry as ConfigEntry
from confluent_kafka.admin._config import ConfigResource as ConfigResource
from confluent_kafka.admin._config import ConfigSource as ConfigSource
from confluent_kafka.admin._listoffsets import OffsetSpec as OffsetSpec
from confluent_kafka.admin._resource import ResourcePatternType
from confluent_kafka.admin._resource import ResourceType as ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
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


def acl_binding(topic: str, principal: str) -> AclBinding:
    """A rule that lets somebody read a topic."""
    literal, read, allow = ResourcePatternType.LITERAL, AclOperation.READ, AclPermissionType.ALLOW
    return AclBinding(ResourceType.TOPIC, topic, literal, principal, "*", read, allow)


def any_acl() -> AclBindingFilter:
    pattern, operation, permission = ResourcePatternType.ANY, AclOperation.ANY, AclPermissionType.ANY
    anything: Any = None  # allowed, although the types do not say so
    return AclBindingFilter(ResourceType.ANY, anything, pattern, anything, anything, operation, permission)


def scram_deletion(user: str) -> UserScramCredentialDeletion:
    return UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)


def scram_upsertion(user: str, password: bytes) -> UserScramCredentialUpsertion:
    return UserScramCredentialUpsertion(user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), password)
