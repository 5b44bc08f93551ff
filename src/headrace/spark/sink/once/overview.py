"""All sinks of a cluster, for an operator: what each has decided, what is open, and how to end it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.model.topics import SINKS_TOPIC, TopicPartition
from headrace.spark.client.cluster import EARLIEST, LATEST, READ_UNCOMMITTED, BlockingCluster
from headrace.spark.client.fetching import read_chunks
from headrace.spark.client.transactions import TransactionClient
from headrace.spark.sink.once.decisions import SinkLog, decode, decode_key
from headrace.spark.sink.once.driver import forget_sink, give_up_sink, plan_batch
from headrace.spark.sink.once.journal import records_of
from headrace.spark.sink.once.names import PREFIX, sink_of
from headrace.spark.sink.once.plan import SinkSettings

TIMEOUT_MS = 60_000
"""The transaction timeout for an operator, who begins no transaction."""


@dataclass(slots=True)
class SinkView:
    sink_id: str
    log: SinkLog = field(default_factory=SinkLog)
    open_ids: list[str] = field(default_factory=list)

    @property
    def to_carry_out(self) -> bool:
        return self.log.decision is not None and not self.log.done


def all_sinks(cluster: BlockingCluster) -> list[SinkView]:
    """All sinks by name, including sinks of which only open transactions are left."""
    found: dict[str, SinkView] = {}
    for offset, kind, sink_id, value in _records(cluster):
        record = decode(kind, value)
        view = found.setdefault(sink_id, SinkView(sink_id))
        if record is not None:
            view.log = view.log.after(offset, record)
    for transactional_id in TransactionClient(cluster).open_ids(PREFIX):
        owner = sink_of(transactional_id)
        if owner is not None:
            found.setdefault(owner, SinkView(owner)).open_ids.append(transactional_id)
    return [found[sink_id] for sink_id in sorted(found)]


def _records(cluster: BlockingCluster) -> Iterator[tuple[int, str, str, bytes | None]]:
    topic = cluster.topics([SINKS_TOPIC]).get(SINKS_TOPIC)
    places = [TopicPartition(SINKS_TOPIC, index) for index in range(topic.partition_count if topic else 0)]
    starts = cluster.list_offsets(dict.fromkeys(places, EARLIEST)) if places else {}
    ends = cluster.list_offsets(dict.fromkeys(places, LATEST)) if places else {}
    for place in places:
        start, end = starts[place], ends[place]
        assert start is not None
        assert end is not None
        for chunk in read_chunks(cluster, place, start.offset, end.offset, isolation=READ_UNCOMMITTED):
            for record in records_of(chunk):
                key = decode_key(record.key)
                if key is not None:
                    yield record.offset, *key, record.value


def end_sink(cluster: BlockingCluster, sink_id: str, patience_s: float, *, lose_decided: bool = False) -> None:
    """Take the sink from its driver, carry out the decision, abort the rest.

    `lose_decided`: abort a decision that is not carried out; the next driver treats its batch as written.
    """
    settings = SinkSettings(sink_id, TIMEOUT_MS, None)
    forget_sink(cluster, sink_id)
    if lose_decided:
        give_up_sink(cluster, settings, patience_s)
    else:
        plan_batch(cluster, settings, patience_s, needs_prepare=False)
