"""Limits that protect the broker whatever its configuration says."""

from __future__ import annotations

MAX_TAGGED_FIELDS = 1024
"""Unknown tagged fields in one structure; a client sends none or a few."""

MAX_CLIENT_ID_BYTES = 4096

MAX_STRING_BYTES = 32_767
"""The limit of a name or another text in a request: what the oldest encoding holds, and what Kafka accepts in
every encoding."""

MAX_PARTITIONS_PER_TOPIC = 100_000

MAX_PARTITIONS_PER_REQUEST = 10_000
"""Partitions that one CreateTopics or CreatePartitions may add (Kafka's own batch limit)."""

MAX_ELEMENTS_PER_REQUEST = 250_000
"""Array elements, nested ones included, that a request may hold: each becomes an object when it is decoded."""

MAX_PRODUCE_PARTITIONS = 10_000
"""Batches in one Produce."""

MAX_FETCH_REQUEST_BYTES = 1024 * 1024
"""The limit of a Fetch request: one of thirty thousand partitions is smaller. It is parsed in one go, which takes
some tens of milliseconds."""

MAX_WATCHED_PARTITIONS = 1_000_000
"""Partitions in all fetch sessions together; beyond that a client is served without a session."""

MAX_EXPANSION = 32
"""How many times `max.message.bytes` a batch may expand to where the broker must decompress it."""

MAX_CHECKED_RECORDS = 40_000
"""Records of one batch where the broker must look at each: as many as a compacted topic accepts. They take about
50 ms, during which nobody else is served."""

MAX_RECORD_ERRORS = 1000
"""Records of one batch whose errors a response lists; for more it only says how many there are."""

MAX_PRODUCERS_PER_PARTITION = 50_000
"""Idempotent producers that a partition remembers; beyond that the ones that were silent longest are forgotten."""

MAX_PENDING_RESPONSES = 256
"""Requests of one connection that may wait for their answer before we stop reading from it."""
