"""One transactional id as it was last decided: a value. Every decision makes a new one, which is stored whole.

Who may speak for the id is its *identity*: a producer id and an epoch. Three pairs of them play a part:

- `producer_id`, `producer_epoch`: whose records are, or will be, in the partitions. In PrepareCommit and
  PrepareAbort this is what the markers carry; with transactions version 2 already one epoch further than the
  records.
- `next_producer_id`, `next_producer_epoch`, where set: whose turn it is instead. While the state is Ongoing it
  belongs to a client that took over a transaction and left it open (InitProducerId with keepPreparedTxn, KIP-939);
  in PrepareCommit and PrepareAbort it is the identity from the end on.
- `previous_producer_id`: the id before the last change of it, by which a repeated request is recognised.

A transaction is *prepared* once a client of two-phase commit has taken it over so: it has no timeout from then on
(`timeout_ms` is `NO_TIMEOUT`, which Kafka too stores for two-phase commit), and no partition joins it any more.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.model.topics import TopicPartition
from headrace.transactions.states import ENDING, NEXT, TransactionState

NO_PRODUCER_ID = -1
NO_EPOCH = -1
MAX_EPOCH = 32767
LAST_USABLE_EPOCH = MAX_EPOCH - 1
"""A producer gets no higher one: fencing it must still be able to bump it."""
NO_TIMEOUT = 2**31 - 1
NOT_PREPARED = -1
CLASSIC, BUMPS_EPOCH = 0, 2
"""Transaction versions as records have them: with 2 every end of a transaction bumps the epoch (KIP-890)."""


class ProducerIdentity(NamedTuple):
    producer_id: int
    epoch: int

    @property
    def exhausted(self) -> bool:
        return self.epoch >= LAST_USABLE_EPOCH


NOBODY = ProducerIdentity(NO_PRODUCER_ID, NO_EPOCH)


class Transaction(NamedTuple):
    """A named tuple rather than a dataclass: three are made from others in every transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: TransactionState
    timeout_ms: int
    updated_ms: int
    start_ms: int = -1
    partitions: frozenset[TopicPartition] = frozenset()
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_EPOCH
    client_version: int = CLASSIC
    timeout_before_ms: int = NOT_PREPARED
    """The timeout of a prepared transaction that counts again after its end."""
    last_epoch: int = NO_EPOCH
    """The epoch before a bump that its own producer asked for: who repeats the request is no stranger, not even
    after a failover. Kafka does not store it, and fences such a producer there."""

    @property
    def identity(self) -> ProducerIdentity:
        """Who may speak for the id now, or, while it is ending, from then on."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdentity(self.next_producer_id, max(self.next_producer_epoch, 0))
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def taken_over(self) -> bool:
        """Whether it was left open for another client to end."""
        return self.state is TransactionState.ONGOING and self.next_producer_id != NO_PRODUCER_ID

    @property
    def prepared(self) -> bool:
        return self.taken_over and self.timeout_ms == NO_TIMEOUT

    @property
    def commits(self) -> bool:
        assert self.state in ENDING
        return self.state is TransactionState.PREPARE_COMMIT

    def time_left_ms(self, now_ms: int) -> int | None:
        """Until it is aborted; None if it is not open, or has no timeout.

        Never more than its timeout, whatever the clocks of the brokers say.
        """
        if self.state is not TransactionState.ONGOING or self.timeout_ms == NO_TIMEOUT:
            return None
        return min(max(self.start_ms + self.timeout_ms - now_ms, 0), self.timeout_ms)


def check_transition(before: Transaction | None, after: Transaction | None) -> None:
    """Assert that a decision is one of the table; None is an id that is not known, before or any more."""
    if before is None:
        assert after is not None
        assert after.state is TransactionState.EMPTY
        return
    state = TransactionState.DEAD if after is None else after.state
    assert state in NEXT[before.state], f"{before.transactional_id}: {before.state.title} to {state.title}"
