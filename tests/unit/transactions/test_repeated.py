"""Requests whose answer was lost, repeated at the same coordinator or another: nobody is fenced for that."""

from __future__ import annotations

import pytest

from headrace.records.builder import build_batch
from headrace.services.transactions.encoding import encode_transaction
from headrace.services.transactions.records import decode_transactions
from headrace.transactions.adding import decide_add
from headrace.transactions.ending import EndTransaction, completed, decide_end, timed_out
from headrace.transactions.starting import decide_init
from headrace.transactions.transaction import (
    BUMPS_EPOCH,
    LAST_USABLE_EPOCH,
    MAX_EPOCH,
    ProducerIdentity,
    Transaction,
)
from tests.unit.transactions.test_decisions import (
    CONCURRENT,
    EMPTY,
    FENCED,
    HELD,
    MAPPING,
    NEW_ID,
    NONE,
    NOW,
    ONGOING,
    P0,
    STATE,
    TIMEOUT,
    end,
    init,
    txn,
)


def stored(transaction: Transaction | None) -> Transaction:
    """As another coordinator finds it after a failover."""
    assert transaction is not None
    batch = build_batch([encode_transaction(transaction)])
    ((_, found),) = decode_transactions(memoryview(batch))
    assert found == transaction
    return found


def test_init_repeated_at_another_coordinator_gives_the_same_epoch() -> None:
    """The coordinator died before it could answer. Kafka forgets the epoch before, and fences the producer."""
    first = decide_init(txn(EMPTY), init(HELD), TIMEOUT, None, NOW)
    again = decide_init(stored(first.changed), init(HELD), TIMEOUT, None, NOW)
    assert (again.error, again.producer) == (NONE, (7, 6))


@pytest.mark.parametrize("commit", [True, False])
def test_init_by_one_who_does_not_know_what_became_of_its_end(commit: bool) -> None:
    """EndTxn is stored, its answer is lost with the coordinator, and the client gives up on it: franz-go does."""
    ending = stored(decide_end(txn(ONGOING), end(HELD, commit), None, NOW).changed)
    assert decide_init(ending, init(HELD), TIMEOUT, None, NOW).error is CONCURRENT
    ended = stored(completed(ending, NOW))
    decision = decide_init(ended, init(HELD), TIMEOUT, None, NOW)
    assert (decision.error, decision.producer) == (NONE, (7, 6))
    begun = stored(decision.changed)
    assert decide_add(begun, HELD, frozenset({P0}), BUMPS_EPOCH, NOW).error is FENCED
    assert decide_add(begun, ProducerIdentity(7, 6), frozenset({P0}), BUMPS_EPOCH, NOW).error is NONE


def test_init_by_one_whose_end_never_arrived() -> None:
    """Its transaction is aborted, and it goes on; whoever takes its place meanwhile fences it."""
    decision = decide_init(txn(ONGOING), init(HELD), TIMEOUT, None, NOW)
    assert decision.error is CONCURRENT
    aborting = stored(decision.changed)
    assert aborting.producer_epoch == 7
    assert decide_init(aborting, init(HELD), TIMEOUT, None, NOW).error is CONCURRENT
    aborted = stored(completed(aborting, NOW))
    again = decide_init(aborted, init(HELD), TIMEOUT, None, NOW)
    assert (again.error, again.producer) == (NONE, (7, 7))
    assert decide_end(aborted, end(HELD), None, NOW).error is FENCED
    assert decide_end(aborted, end(HELD, commit=False), None, NOW).producer == (7, 7)
    for commit in (False, True):
        assert decide_end(stored(again.changed), end(HELD, commit), None, NOW).error is FENCED
    successor = decide_init(aborted, init(), TIMEOUT, None, NOW)
    assert successor.producer == (7, 8)
    assert decide_init(stored(successor.changed), init(HELD), TIMEOUT, None, NOW).error is FENCED


def test_one_whose_time_was_up_may_go_on() -> None:
    """With EndTxn, as clients of version 2, or with InitProducerId, as older ones; not with a commit."""
    aborting = stored(timed_out(txn(ONGOING, last_epoch=4), NOW))
    assert decide_end(aborting, end(HELD, commit=False), None, NOW).error is CONCURRENT
    assert decide_init(aborting, init(HELD), TIMEOUT, None, NOW).error is CONCURRENT
    aborted = stored(completed(aborting, NOW))
    assert decide_end(aborted, end(HELD), None, NOW).error is FENCED
    ended = decide_end(aborted, end(HELD, commit=False), None, NOW)
    assert (ended.error, ended.producer, ended.changed) == (NONE, (7, 7), None)
    begun = decide_init(aborted, init(HELD), TIMEOUT, None, NOW)
    assert (begun.error, begun.producer) == (NONE, (7, 7))
    assert decide_add(aborted, HELD, frozenset({P0}), BUMPS_EPOCH, NOW).error is FENCED
    assert decide_init(aborted, init(ProducerIdentity(7, 4)), TIMEOUT, None, NOW).error is FENCED
    assert decide_end(aborted, end(ProducerIdentity(7, -1), commit=False), None, NOW).error is FENCED


def test_one_whose_time_was_up_is_fenced_by_a_successor() -> None:
    aborted = stored(completed(timed_out(txn(ONGOING), NOW), NOW))
    successor = stored(decide_init(aborted, init(), TIMEOUT, None, NOW).changed)
    assert successor.producer_epoch == 8
    begun = decide_add(successor, successor.identity, frozenset({P0}), BUMPS_EPOCH, NOW).changed
    again = stored(completed(timed_out(stored(begun), NOW), NOW))
    for state in (successor, stored(begun), again):
        assert decide_init(state, init(HELD), TIMEOUT, None, NOW).error is FENCED
        assert decide_end(state, end(HELD, commit=False), None, NOW).error is FENCED


def test_one_whose_time_was_up_in_the_last_epoch_gets_another_producer_id() -> None:
    last = ProducerIdentity(7, LAST_USABLE_EPOCH)
    aborted = stored(completed(timed_out(txn(ONGOING, last), NOW), NOW))
    assert aborted.producer_epoch == MAX_EPOCH
    assert decide_end(aborted, end(last, commit=False), NEW_ID, NOW).error is FENCED
    assert decide_init(aborted, init(last), TIMEOUT, NEW_ID, NOW).producer == (NEW_ID, 0)


def test_init_by_one_whose_end_never_arrived_in_the_last_epoch() -> None:
    """No producer ever gets the highest epoch: nobody could fence it."""
    last = ProducerIdentity(7, LAST_USABLE_EPOCH)
    aborted = completed(stored(decide_init(txn(ONGOING, last), init(last), TIMEOUT, None, NOW).changed), NOW)
    assert aborted.producer_epoch == MAX_EPOCH
    assert decide_init(aborted, init(last), TIMEOUT, None, NOW).needs_producer_id
    decision = decide_init(aborted, init(last), TIMEOUT, NEW_ID, NOW)
    assert decision.producer == (NEW_ID, 0)
    assert decide_init(stored(decision.changed), init(last), TIMEOUT, 901, NOW).producer == (NEW_ID, 0)


def test_an_end_repeated_at_another_coordinator_is_answered_with_the_new_epoch() -> None:
    """Kafka's table: repeated, the new epoch or INVALID_TXN_STATE; for the next transaction, its end."""
    spent = ProducerIdentity(7, LAST_USABLE_EPOCH)
    for held, after in ((HELD, (7, 6)), (spent, (NEW_ID, 0))):
        for commit in (True, False):
            ending = stored(decide_end(txn(ONGOING, held), end(held, commit), NEW_ID, NOW).changed)
            assert decide_end(ending, end(held, commit), 901, NOW).error is CONCURRENT
            assert decide_end(ending, end(held, not commit), 901, NOW).error is STATE
            ended = stored(completed(ending, NOW))
            again = decide_end(ended, end(held, commit), 901, NOW)
            assert (again.error, again.producer, again.changed) == (NONE, after, None)
            assert decide_end(ended, end(held, not commit), 901, NOW).error is STATE
            begun = stored(decide_add(ended, ended.identity, frozenset({P0}), BUMPS_EPOCH, NOW).changed)
            late = decide_end(begun, end(held, commit), 901, NOW)
            assert late.error is (FENCED if held is HELD else MAPPING)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_after_that_of_an_operator_is_not_repeated(commit: bool) -> None:
    """`headrace txn` takes the transaction over, and ends it in that epoch, which is the next one of its owner."""
    taken = stored(decide_init(txn(ONGOING), init(keep_prepared=True), TIMEOUT, None, NOW).changed)
    ended = decide_end(taken, EndTransaction(taken.identity, True, bumps_epoch=False), None, NOW)
    assert ended.producer == (7, 6)
    for state in (stored(ended.changed), stored(completed(stored(ended.changed), NOW))):
        assert decide_end(state, end(HELD, commit), None, NOW).error is FENCED


def test_the_next_transaction_may_end_before_the_markers_of_the_last_are_written() -> None:
    """A leader died, so markers take long, and a producer gives up on its next transaction: it is no zombie."""
    ended = decide_end(txn(ONGOING), end(HELD), None, NOW)
    ending, after = stored(ended.changed), ended.producer
    assert decide_end(ending, end(after, commit=False), None, NOW).error is CONCURRENT
    aborted = decide_end(stored(completed(ending, NOW)), end(after, commit=False), None, NOW)
    assert (aborted.error, aborted.producer) == (NONE, (7, 7))
    assert decide_end(ending, end(ProducerIdentity(7, 8), commit=False), None, NOW).error is FENCED
