"""R-LOG-3: batches are stored and served as the client compressed them, by every client and every codec.

A round trip alone proves nothing: a client that believes the broker cannot compress sends plain batches and reads
them back happily. So the codec bits of the *stored* batches are looked at, through a Fetch of our own.
"""

from __future__ import annotations

import pytest

from headrace.testing.raw_client import CODECS, stored_batches
from tests.compat.clients import ALL_CODECS, CLIENTS, Client, Confluent, Record, Settings
from tests.compat.confluent_admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.compat.conftest import MakeTopic

VALUES = [b"a line that compresses well, number %d " % number * 20 for number in range(50)]


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_stored_as_sent(bootstrap: str, topic: str, client: Client, codec: str) -> None:
    """R-LOG-3."""
    client.produce(bootstrap, topic, [Record(value) for value in VALUES], Settings(codec, linger_ms=50))
    stored = stored_batches(bootstrap, topic)
    assert {batch.codec for batch in stored} == {CODECS[codec]}
    assert sum(batch.record_count for batch in stored) == len(VALUES)
    if codec != "none":
        assert sum(batch.length for batch in stored) < sum(map(len, VALUES)) / 4


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_every_client_reads_what_every_client_wrote(bootstrap: str, topic: str, codec: str) -> None:
    """R-LOG-3: three writers, three readers, one codec."""
    for writer in CLIENTS:
        writer.produce(bootstrap, topic, [Record(value) for value in VALUES], Settings(codec, linger_ms=50))
    for reader in CLIENTS:
        read = reader.read(bootstrap, topic, 0, 3 * len(VALUES))
        assert [one.value for one in read] == 3 * VALUES, reader.name
        assert [one.offset for one in read] == list(range(3 * len(VALUES)))


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_idempotent_batches_keep_their_codec(bootstrap: str, topic: str, codec: str) -> None:
    """R-PRO-3 with R-LOG-3: producer id and sequence are in the stored batch, compressed or not."""
    Confluent().produce(bootstrap, topic, [Record(value) for value in VALUES], Settings(codec, idempotent=True))
    stored = stored_batches(bootstrap, topic)
    assert {batch.codec for batch in stored} == {CODECS[codec]}
    assert all(batch.producer_id >= 0 for batch in stored)
    assert [batch.base_sequence for batch in stored] == [batch.base_offset for batch in stored]


@pytest.mark.parametrize("target", ["gzip", "zstd", "lz4", "snappy", "uncompressed"])
def test_topic_says_its_codec(bootstrap: str, make_topic: MakeTopic, target: str) -> None:
    """compression.type of a topic other than `producer`: the broker compresses anew, and only then."""
    name = make_topic(configs={"compression.type": target})
    sent = "zstd" if target != "zstd" else "gzip"
    placed = Confluent().produce(
        bootstrap, name, [Record(value) for value in VALUES], Settings(sent, linger_ms=50)
    )
    assert [offset for _, offset in placed] == list(range(len(VALUES)))
    wanted = CODECS["none" if target == "uncompressed" else target]
    assert {batch.codec for batch in stored_batches(bootstrap, name)} == {wanted}
    for reader in CLIENTS:
        assert [one.value for one in reader.read(bootstrap, name, 0, len(VALUES))] == VALUES, reader.name


def test_topic_codec_can_change(bootstrap: str, topic: str, admin: AdminClient) -> None:
    """Old batches stay as they are; new ones follow the topic's setting of their time."""
    Confluent().produce(bootstrap, topic, [Record(b"x" * 500)], Settings("gzip"))
    entry = ConfigEntry("compression.type", "lz4", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)
    Confluent().produce(bootstrap, topic, [Record(b"y" * 500)], Settings("gzip"))
    assert [batch.codec for batch in stored_batches(bootstrap, topic)] == [CODECS["gzip"], CODECS["lz4"]]
