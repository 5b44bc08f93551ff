"""What the checkpoints say about one log, and what is left of that when the log itself has been read.

Every number is compared with the log before it is acted on: a checkpoint can be older than its log, spoilt, or
about another topic. One that the log contradicts is reported and not believed; nothing is dropped for its sake.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import NamedTuple

logger = logging.getLogger(__name__)


class LastStop(NamedTuple):
    """How the broker that last had the directory ended."""

    clean: bool
    same_boot: bool
    power_lost: bool
    """The machine was started again after an unclean stop: what was not synced may be gone, from any file."""


@dataclass(frozen=True, slots=True)
class LoadHints:
    clean: bool = False
    """The last stop was clean."""
    start_offset: int = 0
    recovery_point: int = 0
    verified_point: int = 0
    """Everything below was whole at a checkpoint of this boot, synced or not."""
    first_dirty_offset: int = -1
    """Up to where the log was compacted; -1 if it never was."""
    power_lost: bool = False
    """See `LastStop`."""
    written_offset: int = 0
    """Where the log ended at the last checkpoint, of whatever boot."""

    starts_known: bool = True
    """There is a checkpoint of start offsets, which has those of the logs that do not begin with a segment."""

    @property
    def known_end(self) -> int:
        """The log reached this far once, whatever is left of it."""
        return self.written_offset or max(self.start_offset, self.recovery_point)

    def may_have_lost(self, base_offset: int) -> bool:
        """Whether a segment that begins at this offset was part of the log, and none of it was ever synced."""
        known = max(self.recovery_point, self.verified_point)
        return not self.clean and self.start_offset <= base_offset and known <= base_offset

    def start_of(self, directory: str, base_offset: int, end_offset: int) -> int:
        """Where a log starts that has records from one offset to another; beyond its end if all were deleted."""
        start = self.start_offset
        if start <= end_offset:
            return max(start, base_offset)
        # Only power takes back what was written, and only then can a start be beyond what is left.
        if self.power_lost and start <= self.written_offset:
            logger.warning(
                "%s: the log ends at offset %d, but everything below %d had been deleted when its tail was lost: "
                "the rest of it is set aside, and it continues at offset %d",
                directory,
                end_offset,
                start,
                start,
            )
            return start
        logger.error(
            "%s: the checkpoint of start offsets says %d, and the log ends at %d: that value is ignored, and the "
            "log starts at %d. Records that were deleted before may be there again; delete them once more if so",
            directory,
            start,
            end_offset,
            base_offset,
        )
        return base_offset

    def tell_what_was_deleted(self, directory: str, start_offset: int, first_epoch_offset: int) -> None:
        """Without the checkpoint of start offsets: a log's first leader epoch begins where the log began."""
        if not self.starts_known and first_epoch_offset > start_offset:
            logger.error(
                "%s: the records below offset %d had been deleted, and are there again from offset %d on, since "
                "the checkpoint of start offsets is missing. Delete them once more",
                directory,
                first_epoch_offset,
                start_offset,
            )

    def dirty_from(self, directory: str, start_offset: int, end_offset: int) -> int:
        """Up to where the log was compacted; -1 if it never was."""
        if self.first_dirty_offset <= end_offset:
            return self.first_dirty_offset
        logger.warning(
            "%s: the cleaner's checkpoint says %d, and the log ends at %d: it is compacted again from its start",
            directory,
            self.first_dirty_offset,
            end_offset,
        )
        return start_offset
