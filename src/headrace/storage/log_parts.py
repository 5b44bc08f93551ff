"""The parts of a log and what is true of them together: offsets, failures, what is on the device.

- `SegmentList`: the files, and where in them a batch is.
- `LogProducers`: what the batches say of their producers, and its snapshots.
- `LeaderEpochs`: where each leader began.
- `Durability`: what of all that is on the device.

Rules:
- One owner, the loop's thread. `flush` and searches by time alone may run in another thread meanwhile.
- `recovery_point`: everything below it is on the device. Above it, a start after a crash verifies every batch.
- Producer state and leader epochs are saved at rolls and flushes.
- An `OSError` of the disk is judged here, and leaves as KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import NO_TOPIC_ID, TopicId, TopicPartition
from headrace.storage.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, write_topic_id
from headrace.storage.compaction.swap import Cleaning
from headrace.storage.leader_epochs import LeaderEpochs
from headrace.storage.log_config import LogConfig
from headrace.storage.log_producers import LogProducers
from headrace.storage.producer_state import ProducerStates
from headrace.storage.resources import StorageResources
from headrace.storage.segment import SMALL_BYTES, Segment
from headrace.storage.segment_list import SegmentList
from headrace.storage.syncing import Durability


class LogParts:
    __slots__ = (
        "_durability",
        "_leader_epoch",
        "_leader_epochs",
        "_producers",
        "_resources",
        "_roll_ms",
        "_segments",
        "abandoned",
        "cleaning",
        "config",
        "directory",
        "end_offset",
        "first_dirty_offset",
        "partition",
        "start_offset",
        "topic_id",
    )

    def __init__(
        self,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        resources: StorageResources,
        segments: list[Segment],
    ) -> None:
        """`segments` in order and the last one open; the loader or creator sets offsets and states."""
        self.directory = directory
        self.partition = partition
        self.config = config
        self.topic_id: TopicId = NO_TOPIC_ID
        self._resources = resources
        self._segments = SegmentList(segments, resources)
        self.start_offset = segments[0].base_offset
        self.end_offset = segments[-1].base_offset
        self._durability = Durability(self.start_offset)
        self.abandoned = False
        """Deleted, or the process stops: its files may be gone while a thread still works on them."""
        self._producers = LogProducers()
        self._leader_epochs: LeaderEpochs | None = None
        self._leader_epoch = -1
        self.first_dirty_offset = -1
        """Up to where the log was compacted; -1 if it never was. Where it was, offsets may be missing."""
        self.cleaning: Cleaning | None = None
        self._roll_ms = self.config.jittered_roll_ms(self._resources.env.rng)

    # What it is

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments.all

    @property
    def active_base_offset(self) -> int:
        return self._segments.active.base_offset

    @property
    def start_raised(self) -> bool:
        """Does the log start inside a segment? Only then must a checkpoint remember where."""
        return self.start_offset > self._segments.first_offset

    @property
    def size(self) -> int:
        return self._segments.size

    @property
    def recovery_point(self) -> int:
        return self._durability.recovery_point

    @property
    def cuts(self) -> int:
        """How often its end was cut: what was read meanwhile may be of two files."""
        return self._durability.cuts

    @property
    def leader_epochs(self) -> LeaderEpochs:
        if self._leader_epochs is None:
            self._leader_epochs = LeaderEpochs(f"{self.directory}/{LEADER_EPOCHS}")
        return self._leader_epochs

    @property
    def producers(self) -> ProducerStates:
        return self._producers.made()

    def knows_producer(self, producer_id: int) -> bool:
        """Whether it remembers anything that this producer wrote."""
        states = self._producers.states
        return states is not None and states.knows(producer_id)

    @property
    def failure(self) -> OSError | None:
        """Why the data directory is offline: this log, and all beside it, take no more."""
        return self._resources.health.failure

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to where a read_committed consumer may read: before the first transaction that is not settled."""
        states = self._producers.states
        if states is None or states.all_settled:
            return high_watermark
        return self._producers.last_stable_offset(self.start_offset, high_watermark)

    @property
    def open_transactions(self) -> int:
        states = self._producers.states
        return 0 if states is None else states.open_transactions

    def has_late_transaction(self, oldest_ms: int) -> bool:
        """Whether the transaction that began first is open and was last written to before this time."""
        states = self._producers.states
        written_at = None if states is None else states.oldest_transaction_written_at()
        return written_at is not None and 0 <= written_at < oldest_ms

    @property
    def has_aborted(self) -> bool:
        """Whether a transaction was aborted in it: a reader of committed records must know which."""
        return self._segments.has_aborted

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self._roll_ms = self.config.jittered_roll_ms(self._resources.env.rng)

    # What it is told by whoever loads it, or makes it of another

    def assign_leader_epoch(self, epoch: int) -> None:
        """This replica leads from now on: the epoch begins at the end of the log."""
        self.leader_epochs.assign(epoch, self.end_offset)
        self._leader_epoch = self.leader_epochs.latest

    def set_leader_epochs(self, epochs: LeaderEpochs) -> None:
        self._leader_epochs = epochs
        self._leader_epoch = epochs.latest

    def set_producers(self, producers: ProducerStates, snapshot_offset: int) -> None:
        """The state as of the end offset, and where it was last saved."""
        self._producers.take(producers, snapshot_offset)

    def adopt(self, topic_id: TopicId) -> None:
        """Take the id of the topic this log belongs to, where its own record of it was lost."""
        assert self.topic_id == NO_TOPIC_ID
        self.topic_id = topic_id
        write_topic_id(self._resources.env.disk, f"{self.directory}/{PARTITION_METADATA}", topic_id)
        self._durability.directory_changed()

    def load_offsets(self, start_offset: int, end_offset: int, recovery_point: int) -> None:
        """Called once, by the code that loads the log."""
        assert start_offset <= end_offset
        assert recovery_point <= end_offset
        self.start_offset, self.end_offset = start_offset, end_offset
        self._durability.recovery_point = recovery_point

    def relocate(self, directory: str, resources: StorageResources) -> None:
        """The files were renamed into another data directory, and are all there."""
        self._segments.relocate(directory, resources)
        self.directory, self._resources = directory, resources
        self.set_leader_epochs(self.leader_epochs.copy_to(f"{directory}/{LEADER_EPOCHS}"))
        self._durability.directory_changed()

    # Failures

    def _refused(self, error: OSError) -> KafkaError:
        if not self.abandoned:  # else its files may well be gone
            self._resources.health.judge(error)
        return self._storage_error(error)

    def _failed(self, error: OSError) -> KafkaError:
        """What is in memory and what is on disk may have parted: whatever the error, the directory is given up."""
        self._resources.health.fail(error)
        return self._storage_error(error)

    def _storage_error(self, error: OSError) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.partition} in {self.directory}: {error}")

    # Flush and close

    def flush(self, up_to: int | None = None, save_index: bool = True) -> None:
        """Blocking. Everything below `up_to` (or the end) is on the device when this returns.

        A failed sync is never tried again: the kernel may have dropped the pages it could not write. Without
        `save_index` a recovery has further back to look, and loses nothing.
        """
        durability = self._durability
        cuts = durability.cuts
        end_offset = self.end_offset  # after the cuts: see `syncing`
        if (end_offset if up_to is None else up_to) <= durability.recovery_point:
            return
        if self.failure is not None:
            raise self._storage_error(self.failure)
        try:
            durability.sync(self._resources, self._segments, self.directory, self._leader_epochs, save_index)
        except OSError as error:
            if self.abandoned:
                return
            raise self._failed(error) from error
        durability.synced(end_offset, cuts)

    def save_state(self, final: bool = False) -> None:
        """Blocking. Write, without syncing, what lets recovery in the same boot begin at the end of now.

        `final`: also what a start after a clean stop needs so as not to scan. A few batches without a producer are
        read again in less time than that takes.
        """
        active = self._segments.active
        if not final or active.size > SMALL_BYTES or (active.size and self._producers.states is not None):
            active.save_index(self._resources, final)
            if final:
                self._producers.save(self._resources.env.disk, self.directory, self.end_offset)
        self._save_leader_epochs()

    def _save_leader_epochs(self) -> None:
        if self._leader_epochs is not None:
            self._leader_epochs.save(self._resources.env.disk)

    def mark_synced(self) -> None:
        """Everything on the volume was synced at once, and nothing was written since."""
        self._durability.all_synced(self.end_offset)

    def close(self) -> None:
        """Blocking. Everything on the device, and every file let go of."""
        self.save_state(final=True)
        self.flush()
        self.abandon()

    def abandon(self) -> None:
        """Let go of every file without writing anything: the log is deleted, or the process stops uncleanly."""
        self.abandoned = True
        self._abort_cleaning()
        self._segments.let_go()

    def _abort_cleaning(self) -> None:
        if self.cleaning is not None:
            self.cleaning.abort()
