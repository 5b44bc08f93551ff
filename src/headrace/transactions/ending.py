"""The end of a transaction: EndTxn, a timeout, or a new producer that takes the place of the old one.

An end has two steps. It is decided when PrepareCommit or PrepareAbort is stored, which names the partitions and
what their markers carry; nothing can change it from then on. It is complete when every partition has its marker.

With transactions version 2 every end bumps the epoch, and the markers carry the new one: a late Produce, or a late
EndTxn, of the transaction that ended is refused instead of joining the next (KIP-890). The epoch of the request is
then one less than the one held, which is how a repeated EndTxn is told from one for the next transaction. Version
1 leaves the epoch alone, so a repeated EndTxn looks like a new one.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.model.errors import ErrorCode
from headrace.transactions.decision import NEEDS_PRODUCER_ID, TransactionDecision, refuse
from headrace.transactions.states import ENDING, IDLE, TransactionState
from headrace.transactions.transaction import (
    BUMPS_EPOCH,
    CLASSIC,
    LAST_USABLE_EPOCH,
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NOBODY,
    NOT_PREPARED,
    ProducerIdentity,
    Transaction,
)

_S = TransactionState


class EndTransaction(NamedTuple):
    producer: ProducerIdentity
    commit: bool
    bumps_epoch: bool
    """EndTxn v5 on: the client speaks transactions version 2."""


def decide_end(
    current: Transaction | None, request: EndTransaction, new_id: int | None, now_ms: int
) -> TransactionDecision:
    """`new_id` is an unused producer id, for when the epochs of the current one are used up."""
    if current is None:
        return refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.bumps_epoch:
        return _decide_bumping(current, request, new_id, now_ms)
    return _decide_classic(current, request, now_ms)


def _decide_bumping(
    current: Transaction, request: EndTransaction, new_id: int | None, now_ms: int
) -> TransactionDecision:
    state, held, asked = current.state, current.identity, request.producer
    repeated = _is_repeated(current, asked)
    known = asked.producer_id == held.producer_id or (state in ENDING and asked.producer_id == current.producer_id)
    if not known and not repeated:
        return refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if repeated:
        return _answer_repeated(current, request)
    if not request.commit and _was_aborted_for(current, asked):
        return refuse(ErrorCode.CONCURRENT_TRANSACTIONS) if state in ENDING else TransactionDecision(producer=held)
    if asked != held:
        return refuse(ErrorCode.PRODUCER_FENCED)
    if state in ENDING:
        # The next transaction ends before the markers of the last one are written. Kafka fences its producer.
        return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if state is _S.ONGOING:
        return _prepare(current, request, new_id, now_ms)
    assert state in IDLE
    if request.commit:
        return refuse(ErrorCode.INVALID_TXN_STATE)
    # Nothing was added, or the client does not know whether anything was: the epoch is bumped all the same.
    return _prepare(current._replace(partitions=frozenset(), start_ms=now_ms), request, new_id, now_ms)


def _is_repeated(current: Transaction, asked: ProducerIdentity) -> bool:
    """Whether this is the request again by which the transaction came to its end, and which bumped the epoch."""
    if current.state in (_S.EMPTY, _S.ONGOING) or current.client_version != BUMPS_EPOCH:
        return False
    held = current.identity
    if held == (asked.producer_id, asked.epoch + 1) and held.epoch < MAX_EPOCH:
        return True  # the last epoch of all is reached by fencing only
    # The epochs were used up: the client was given another id.
    return asked == (current.previous_producer_id, LAST_USABLE_EPOCH) and held.epoch == 0


def _was_aborted_for(current: Transaction, asked: ProducerIdentity) -> bool:
    """Whether its time was up, or it asked for a new epoch: as long as nobody takes its place, it may go on."""
    held = current.identity
    aborted = current.state in (_S.PREPARE_ABORT, _S.COMPLETE_ABORT)
    by_owner = current.last_epoch != NO_EPOCH and asked == (held.producer_id, current.last_epoch)
    return aborted and by_owner and held.epoch < MAX_EPOCH


def _answer_repeated(current: Transaction, request: EndTransaction) -> TransactionDecision:
    if request.commit != (current.state in (_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT)):
        return refuse(ErrorCode.INVALID_TXN_STATE)
    if current.state in ENDING:
        return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    return TransactionDecision(producer=current.identity)


def _decide_classic(current: Transaction, request: EndTransaction, now_ms: int) -> TransactionDecision:
    state, held, asked = current.state, current.identity, request.producer
    if asked.producer_id != held.producer_id:
        return refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if asked.epoch != held.epoch:
        return refuse(ErrorCode.PRODUCER_FENCED)
    if state is _S.ONGOING:
        return _prepare(current, request, None, now_ms)
    if state is _S.EMPTY or request.commit != (state in (_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT)):
        return refuse(ErrorCode.INVALID_TXN_STATE)
    if state in ENDING:
        return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    return TransactionDecision(producer=held)


def _prepare(
    current: Transaction, request: EndTransaction, new_id: int | None, now_ms: int
) -> TransactionDecision:
    held = current.identity
    if not request.bumps_epoch:
        after = held
    elif not held.exhausted:
        after = ProducerIdentity(held.producer_id, held.epoch + 1)
    elif new_id is not None:
        after = ProducerIdentity(new_id, 0)
    else:
        return NEEDS_PRODUCER_ID
    of_records = held.epoch if held.producer_id == current.producer_id else current.producer_epoch
    markers = ProducerIdentity(current.producer_id, of_records + request.bumps_epoch)
    state = _S.PREPARE_COMMIT if request.commit else _S.PREPARE_ABORT
    client_version = BUMPS_EPOCH if request.bumps_epoch else CLASSIC
    last_epoch = held.epoch if request.bumps_epoch else current.last_epoch
    prepared = _ending(current, state, markers, after, client_version, last_epoch, now_ms)
    return TransactionDecision(changed=prepared, producer=after)


def _ending(
    current: Transaction,
    state: TransactionState,
    markers: ProducerIdentity,
    after: ProducerIdentity,
    client_version: int,
    last_epoch: int,
    now_ms: int,
) -> Transaction:
    later = NOBODY if after == markers else after
    held = current.identity
    return current._replace(
        state=state,
        producer_epoch=markers.epoch,
        next_producer_id=later.producer_id,
        next_producer_epoch=later.epoch,
        previous_producer_id=(
            held.producer_id if after.producer_id != held.producer_id else current.previous_producer_id
        ),
        client_version=client_version,
        last_epoch=last_epoch,
        updated_ms=now_ms,
    )


def fenced(current: Transaction, now_ms: int) -> Transaction:
    """Abort what is open, and refuse its producer from now on: another took its place.

    Two epochs further, if there are two: one more would look like the end that the producer itself asked for.
    """
    assert current.state is _S.ONGOING
    held = current.identity
    after = ProducerIdentity(held.producer_id, min(held.epoch + 2, MAX_EPOCH))
    same_id = held.producer_id == current.producer_id
    markers = after if same_id else ProducerIdentity(current.producer_id, current.producer_epoch + 1)
    return _ending(current, _S.PREPARE_ABORT, markers, after, BUMPS_EPOCH, NO_EPOCH, now_ms)


def timed_out(current: Transaction, now_ms: int) -> Transaction:
    """Abort what has been open for too long; its producer may abort it as well, and go on with the new epoch."""
    return fenced(current, now_ms)._replace(last_epoch=current.identity.epoch)


def completed(current: Transaction, now_ms: int) -> Transaction:
    """Every partition has its marker."""
    assert current.state in ENDING
    after = current.identity
    prepared = current.timeout_before_ms != NOT_PREPARED
    return current._replace(
        state=_S.COMPLETE_COMMIT if current.commits else _S.COMPLETE_ABORT,
        producer_id=after.producer_id,
        producer_epoch=after.epoch,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
        partitions=frozenset(),
        timeout_ms=current.timeout_before_ms if prepared else current.timeout_ms,
        timeout_before_ms=NOT_PREPARED,
        updated_ms=now_ms,
    )
