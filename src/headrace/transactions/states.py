"""The states of a transactional id, with Kafka's numbers, and the complete table of what may follow what.

Empty              no transaction yet, or a producer that started over
Ongoing            partitions were added; also a prepared transaction (see `transaction.py`)
PrepareCommit      decided: commit markers are on their way to the partitions
PrepareAbort       decided: abort markers are on their way
CompleteCommit     all markers are written
CompleteAbort      all markers are written
Dead               expired: stored as a record without a value, so no transaction is ever seen in it
PrepareEpochFence  a producer is being fenced. In Kafka a state in memory only, before PrepareAbort is stored; here
                   both are one step, and the name is there for those who ask for it
"""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """As Kafka spells it: PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_S = TransactionState

NEXT: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT, _S.PREPARE_EPOCH_FENCE}),
    _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
    _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.COMPLETE_ABORT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.DEAD: frozenset(),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.PREPARE_ABORT}),
}
"""PrepareAbort after a state without partitions: a client of transactions version 2 ends what it does not know to
be empty, and its epoch is bumped all the same (KIP-890)."""

assert NEXT.keys() == set(TransactionState)

ENDING = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""Decided, with markers still to be written."""
ENDED = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
IDLE = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""Nothing is open: what expires, and what a producer may begin a transaction from."""

BY_TITLE = {state.title: state for state in TransactionState}
