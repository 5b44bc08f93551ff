"""Topics whose records are deleted: by DeleteRecords, by retention, by compaction that comes and goes.

Somebody changes their settings all the time, `min.insync.replicas` too; records have keys and the present time.
With 1 of those a clean stop may leave a machine that is lost already, and nobody knows, as the only member.
"""

from __future__ import annotations

from headrace.client.admin import ConfigResource, alter_configs
from headrace.client.offsets import EARLIEST, list_offsets
from headrace.model.config_resources import ConfigOperation, ResourceType
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.builder import NewRecord
from headrace.storage.log_config import LogConfig
from headrace.testing.sim.clients import (
    FAILURES,
    PRODUCE_TIMEOUT_MS,
    RETRY_SECONDS,
    Known,
    Producer,
    Reader,
    SimClient,
)
from headrace.testing.sim.deletions import Deletions
from headrace.testing.sim.world import BIRTH_MS, World
from headrace.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

TRIMMED, TURNED = "trims", "turns"
"""A topic whose records go by DeleteRecords and retention, and one whose policy changes besides."""
KEYS = 5
CHANGE_SECONDS = 0.8
DELETE_CHANCE = 0.5
CLOCK_SKEW_MS = 50_000_000
"""About half of what the clocks of brokers may be apart: to some of them all is too old, and to others nothing."""
SETTINGS = {
    TRIMMED: {
        "retention.ms": ("-1", "3000", str(CLOCK_SKEW_MS)),
        "retention.bytes": ("-1", "300", "2000"),
        "min.insync.replicas": ("2", "3"),
    },
    TURNED: {
        "cleanup.policy": ("delete", "compact", "compact,delete"),
        "retention.ms": ("-1", str(CLOCK_SKEW_MS)),
        "min.insync.replicas": ("2", "3"),
    },
}


class KeyedProducer(Producer):
    """With keys, and the time at which it writes."""

    def record(self, value: bytes) -> NewRecord:
        key = b"k%d" % (int(value.rpartition(b":")[2]) % KEYS)
        return NewRecord(value, key, BIRTH_MS + int(self.world.loop.time() * 1000))


class TrimmedReader(Reader):
    """One that finds its position gone begins where the log does."""

    async def fetch(self, broker: int, place: TopicPartition, offset: int) -> list[tuple[int, bytes]]:
        try:
            return await super().fetch(broker, place, offset)
        except KafkaError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
        return await super().fetch(broker, place, await self.earliest(place))

    async def earliest(self, place: TopicPartition) -> int:
        return (await list_offsets(self.cluster, {place: EARLIEST}))[place].offset

    async def read_rest(self, place: TopicPartition, end: int) -> tuple[int, dict[int, bytes]]:
        """Where the leader's log starts in the end, and everything from there to `end`, however long it takes."""
        while True:
            try:
                start = await self.earliest(place)
                found: dict[int, bytes] = {}
                while (offset := max(found, default=start - 1) + 1) < end:
                    found.update(await Reader.fetch(self, await self.leader(place), place, offset))
                if await self.earliest(place) == start:
                    return start, found
            except FAILURES:
                await self.leave_entry()
            await self.pause()


class Trimmer(SimClient):
    """Deletes records, and changes the settings of topics."""

    def __init__(self, world: World, name: str, known: Known, deletions: Deletions) -> None:
        super().__init__(world, name, known)
        self._deletions = deletions
        self._sure: dict[tuple[str, str], str] = {}
        """What topics are surely set to."""
        self._unsure: set[tuple[str, str]] = set()
        """What may still be changed, by a request whose outcome is not known."""

    async def run(self) -> None:
        while not self.stopping:
            await self.wait(CHANGE_SECONDS)
            try:
                await (self._delete() if self.rng.random() < DELETE_CHANCE else self._configure())
            except FAILURES as error:
                self.world.count(
                    f"trimming {error.code.name}" if isinstance(error, KafkaError) else "trimming unknown"
                )
                await self.leave_entry()
                await self.wait(RETRY_SECONDS)

    async def _delete(self) -> None:
        place = self.rng.choice(self.places)
        committed = self.history.ledger.by_name(place)
        end = committed.end_offset if committed is not None else 0
        offset = self.rng.randrange(min(self._deletions.highest.get(place, 0), end), end + 1)
        asked = self.world.loop.time()
        connection = await self.cluster.broker(await self.leader(place))
        wanted = DeleteRecordsPartition(partition_index=place.partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=place.topic, partitions=[wanted])], timeout_ms=PRODUCE_TIMEOUT_MS
        )
        self._deletions.ask(place, offset)
        part = (await self.ask(connection, request, DeleteRecordsResponse)).topics[0].partitions[0]
        if part.error_code:
            raise KafkaError(ErrorCode(part.error_code))
        self.world.count("deletions")
        if part.low_watermark < offset:
            self.world.violated(f"{place}: deleted up to {part.low_watermark}, where {offset} was asked for")
        self._deletions.acknowledge(place, offset, asked)

    async def _configure(self) -> None:
        topic = self.rng.choice(list(SETTINGS))
        name = self.rng.choice(list(SETTINGS[topic]))
        value = self.rng.choice(SETTINGS[topic][name])
        self._sure.pop((topic, name), None)
        try:
            await alter_configs(
                self.cluster, ConfigResource(ResourceType.TOPIC, topic), [(name, ConfigOperation.SET, value)]
            )
        except FAILURES:
            self._unsure.add((topic, name))
            raise
        self.world.count("settings changed")
        self._sure[topic, name] = value

    def check_settings(self, topic: str, configs: dict[int, LogConfig]) -> None:
        """What each broker goes by in the end."""
        if len(set(configs.values())) > 1:
            self.world.violated(f"brokers do not agree on the settings of {topic}: {configs}")
        for (name, setting), value in self._sure.items():
            if name == topic and (name, setting) not in self._unsure:
                for broker, config in configs.items():
                    if _text_of(config, setting) != value:
                        self.world.violated(f"{topic}: {setting} is {value}, and on broker {broker} {config}")


def _text_of(config: LogConfig, setting: str) -> str:
    value = getattr(config, setting.replace(".", "_"))
    return ",".join(sorted(value)) if isinstance(value, frozenset) else str(value)
