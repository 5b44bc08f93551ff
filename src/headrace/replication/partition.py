"""One partition on this broker: its log, and what this broker's role lets it do with it.

The high watermark is the end of what every in-sync replica has; clients read below it. With this broker as the
only replica it follows each append at once, or, where the topic commits to disk before the ack, each sync. It
never goes back within a leader epoch.
"""

from __future__ import annotations

from headrace.metadata.image import PartitionImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import INTERNAL_TOPICS, TopicId, TopicPartition
from headrace.replication.flushing import Flusher
from headrace.replication.waiters import Waiter, WakeList
from headrace.storage.log import Log

ACKS_ALL = -1


class Partition:
    __slots__ = (
        "_wakes",
        "flusher",
        "high_watermark",
        "image",
        "internal",
        "is_leader",
        "leader_epoch",
        "log",
        "topic_id",
        "topic_partition",
        "waiters",
    )

    def __init__(self, topic_partition: TopicPartition, topic_id: TopicId, log: Log, wakes: WakeList) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.internal = topic_partition.topic in INTERNAL_TOPICS
        """Written by the broker itself, not by its clients."""
        self.log = log
        self.is_leader = False
        self.leader_epoch = -1
        self.high_watermark = log.start_offset
        self.image: PartitionImage | None = None
        self.flusher: Flusher | None = None
        """Where the topic's flush policy asks for more than the page cache."""
        self.waiters: dict[Waiter, None] = {}
        """Long polls that wait for the high watermark to move; a dict because sets have no order."""
        self._wakes = wakes

    def become_leader(self, image: PartitionImage) -> None:
        """Take the lead in a new epoch, or note a change of the in-sync set in this one."""
        assert image.leader_epoch >= self.leader_epoch
        if image.leader_epoch > self.leader_epoch or not self.is_leader:
            self.log.assign_leader_epoch(image.leader_epoch)
        self.image = image
        self.leader_epoch = image.leader_epoch
        self.is_leader = True
        self._advance_high_watermark()

    def resign(self) -> None:
        """No longer lead: whoever waits here must ask again and learn who does."""
        self.is_leader = False
        self._wakes.wake(self.waiters)

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client whose knowledge of the leader is older, or newer, than ours (KIP-320)."""
        if epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if epoch > self.leader_epoch:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def append(self, batch: memoryview, acks: int) -> tuple[int, int]:
        """Append one batch as the leader: (base offset, log append time or -1)."""
        if acks != 1:
            self._check_enough_replicas(acks)
        result = self.log.append_as_leader(batch, self.leader_epoch)
        if self.flusher is not None:
            self.flusher.appended()
        self._advance_high_watermark()
        return result

    def set_flusher(self, flusher: Flusher | None) -> None:
        """The topic's flush policy is new, or has changed."""
        if self.flusher is not None:
            self.flusher.close()
        self.flusher = flusher
        if flusher is not None:
            flusher.appended()
        if self.is_leader:
            self._advance_high_watermark()

    def flushed(self) -> None:
        """A sync ended, well or badly: whoever waits must look again."""
        if self.log.failure is not None:
            self._wakes.wake(self.waiters)
        elif self.is_leader:
            self._advance_high_watermark()

    def _check_enough_replicas(self, acks: int) -> None:
        assert self.image is not None
        if acks == ACKS_ALL:
            needed = min(self.log.config.min_insync_replicas, len(self.image.replicas))
        elif acks > len(self.image.replicas):
            raise KafkaError(
                ErrorCode.INVALID_REQUIRED_ACKS,
                f"acks={acks} can never be met: {self.topic_partition} has {len(self.image.replicas)} replicas",
            )
        else:
            needed = acks
        if len(self.image.isr) < needed:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(self.image.isr)} in-sync replicas where {needed} are needed",
            )

    def _advance_high_watermark(self) -> None:
        # The only in-sync replica is this one; followers will bound it by their own log ends.
        flusher = self.flusher
        end = self.log.end_offset if flusher is None or not flusher.commits else self.log.recovery_point
        if end > self.high_watermark:
            self.high_watermark = end
            if self.waiters:
                self._wakes.wake(self.waiters)

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    def delete_records(self, offset: int) -> int:
        """Let go of everything below `offset` (-1: the high watermark); the new low watermark."""
        if offset == -1:
            offset = self.high_watermark
        if offset < 0 or offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} is beyond the high watermark {self.high_watermark} of {self.topic_partition}",
            )
        self.log.delete_records_to(offset)
        return self.log.start_offset
