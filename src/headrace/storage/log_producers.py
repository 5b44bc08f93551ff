"""The producers of one log: their state as of its end offset, and the snapshots of it beside the segments.

    00000000000000000042.snapshot     the state before offset 42; written when a segment is begun, and at a stop

Most partitions never see an idempotent producer, and keep nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.env import Disk
from headrace.storage.files import write_at
from headrace.storage.producer_snapshot import encode_snapshot
from headrace.storage.producer_state import NO_TRANSACTION, ProducerStates
from headrace.storage.replay import load_snapshot, replay_log, snapshot_offsets
from headrace.storage.resources import StorageResources
from headrace.storage.segment import SNAPSHOT, Segment, file_name

NOT_SAVED = -1


class LogProducers:
    __slots__ = ("_saved_at", "states")

    def __init__(self) -> None:
        self.states: ProducerStates | None = None
        """None while there are none."""
        self._saved_at = NOT_SAVED

    def made(self) -> ProducerStates:
        """The state, begun if there is none."""
        if self.states is None:
            self.states = ProducerStates()
        return self.states

    def take(self, states: ProducerStates, saved_at: int) -> None:
        """The state as of the end offset, and where it was last saved."""
        self.states = states if len(states) else None
        self._saved_at = saved_at

    def last_stable_offset(self, start_offset: int, high_watermark: int) -> int:
        """Up to where a read_committed consumer may read: before the first transaction that is not settled."""
        if self.states is None:
            return high_watermark
        first = self.states.first_unstable_offset(high_watermark)
        return high_watermark if first == NO_TRANSACTION else min(max(first, start_offset), high_watermark)

    def save(self, disk: Disk, directory: str, end_offset: int) -> None:
        """Write the state at the end offset, under that offset's name, if it is not there yet."""
        if self._saved_at == end_offset:
            return
        entries = self.states.snapshot() if self.states is not None else []
        write_at(disk, f"{directory}/{file_name(end_offset, SNAPSHOT)}", 0, encode_snapshot(entries))
        self._saved_at = end_offset

    def reload(
        self,
        directory: str,
        segments: Sequence[Segment],
        end_offset: int,
        resources: StorageResources,
    ) -> None:
        """After a cut: the state as of the new end offset. Snapshots beyond it are removed."""
        disk = resources.env.disk
        offsets = snapshot_offsets(disk.list_directory(directory))
        for offset in offsets:
            if offset > end_offset:
                disk.unlink(f"{directory}/{offset:020d}{SNAPSHOT}")
        found = load_snapshot(disk, directory, offsets, end_offset)
        states, from_offset = found or (ProducerStates(), segments[0].base_offset)
        replay_log(states, segments, from_offset, end_offset, resources)
        self.take(states, found[1] if found else NOT_SAVED)

    def clear(self, directory: str, disk: Disk) -> None:
        """Nothing is left of the log, so the saved state is about records that are gone."""
        for offset in snapshot_offsets(disk.list_directory(directory)):
            disk.unlink(f"{directory}/{offset:020d}{SNAPSHOT}")
        self.states, self._saved_at = None, NOT_SAVED
