"""Limits that protect the broker whatever its configuration says."""

from __future__ import annotations

MAX_TAGGED_FIELDS = 1024
"""Unknown tagged fields in one structure; a client sends none or a few."""

MAX_CLIENT_ID_BYTES = 4096

MAX_PARTITIONS_PER_TOPIC = 100_000

MAX_PARTITIONS_PER_REQUEST = 10_000
"""Partitions that one CreateTopics or CreatePartitions may add (Kafka's own batch limit)."""

MAX_PENDING_RESPONSES = 256
"""Requests of one connection that may wait for their answer before we stop reading from it."""
