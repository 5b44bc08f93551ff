"""InitProducerId for a transactional id: a new epoch for the caller, which fences the previous producer.

An open transaction of the one before is aborted first: the client is told CONCURRENT_TRANSACTIONS and asks again.
Where the client itself has it open, since it does not know what became of its EndTxn, it is remembered as the one
who asked; Kafka fences it when it asks again.
With `keep_prepared` it is left open instead, and the client becomes the one who may end it (KIP-939).
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.errors import ErrorCode
from headrace.transactions.decision import NEEDS_PRODUCER_ID, TransactionDecision, refuse
from headrace.transactions.ending import fenced
from headrace.transactions.states import ENDING, TransactionState
from headrace.transactions.transaction import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT,
    NOBODY,
    NOT_PREPARED,
    ProducerIdentity,
    Transaction,
)


@dataclass(frozen=True, slots=True)
class InitProducer:
    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity = NOBODY
    """The identity that the client believes to have (KIP-360); none if it has just started."""
    two_phase: bool = False
    keep_prepared: bool = False


@dataclass(frozen=True, slots=True)
class StartRules:
    max_timeout_ms: int
    two_phase_enabled: bool


def check_init(request: InitProducer, rules: StartRules) -> ErrorCode:
    """What can be refused without knowing the id."""
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if (request.expected.producer_id == NO_PRODUCER_ID) != (request.expected.epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if request.two_phase and not rules.two_phase_enabled:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.keep_prepared and not rules.two_phase_enabled:
        return ErrorCode.UNSUPPORTED_VERSION
    if not request.two_phase and not 0 < request.timeout_ms <= rules.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def timeout_of(request: InitProducer, rules: StartRules) -> int:
    """Until it is prepared a transaction has an ordinary timeout, unless its client asks for one beyond any."""
    if request.two_phase and not 0 < request.timeout_ms <= rules.max_timeout_ms:
        return NO_TIMEOUT
    return request.timeout_ms


def decide_init(
    current: Transaction | None, request: InitProducer, timeout_ms: int, new_id: int | None, now_ms: int
) -> TransactionDecision:
    """`new_id` is an unused producer id, for when one is needed."""
    if current is None:
        if new_id is None:
            return NEEDS_PRODUCER_ID
        created = Transaction(
            request.transactional_id, new_id, 0, TransactionState.EMPTY, timeout_ms, updated_ms=now_ms
        )
        return TransactionDecision(changed=created, producer=created.identity)
    if not _is_known(current, request.expected):
        return refuse(ErrorCode.PRODUCER_FENCED)
    if current.state in ENDING:
        return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is TransactionState.ONGOING:
        if request.expected not in (NOBODY, current.identity):
            return refuse(ErrorCode.PRODUCER_FENCED)  # a zombie must not abort what its successor has open
        if request.keep_prepared:
            return _take_over(current, request, new_id, now_ms)
        aborted = fenced(current, now_ms)._replace(last_epoch=request.expected.epoch)
        return TransactionDecision(ErrorCode.CONCURRENT_TRANSACTIONS, aborted)
    return _begin_anew(current, request, timeout_ms, new_id, now_ms)


def _is_known(current: Transaction, expected: ProducerIdentity) -> bool:
    """Whether the producer id is the present one, or the one before of a producer that was given another."""
    if expected == NOBODY or expected.producer_id == current.identity.producer_id:
        return True
    return expected.producer_id == current.previous_producer_id and expected.exhausted


def _begin_anew(
    current: Transaction, request: InitProducer, timeout_ms: int, new_id: int | None, now_ms: int
) -> TransactionDecision:
    held, expected = current.identity, request.expected
    asked_by_owner = expected != NOBODY
    repeated = asked_by_owner and expected.epoch == current.last_epoch
    spent = held.exhausted and (not asked_by_owner or expected.epoch == held.epoch)
    if spent or (repeated and held.epoch == MAX_EPOCH):
        if new_id is None:
            return NEEDS_PRODUCER_ID
        given, last_epoch = ProducerIdentity(new_id, 0), expected.epoch
    elif not asked_by_owner:
        given, last_epoch = ProducerIdentity(held.producer_id, held.epoch + 1), NO_EPOCH
    elif expected.epoch == held.epoch:
        given, last_epoch = ProducerIdentity(held.producer_id, held.epoch + 1), held.epoch
    elif repeated:
        given, last_epoch = held, current.last_epoch  # the same request once more
    else:
        return refuse(ErrorCode.PRODUCER_FENCED)
    changed_id = given.producer_id != held.producer_id
    begun = current._replace(
        producer_id=given.producer_id,
        producer_epoch=given.epoch,
        previous_producer_id=held.producer_id if changed_id else current.previous_producer_id,
        state=TransactionState.EMPTY,
        timeout_ms=timeout_ms,
        timeout_before_ms=NOT_PREPARED,
        partitions=frozenset(),
        start_ms=-1,
        updated_ms=now_ms,
        last_epoch=last_epoch,
    )
    return TransactionDecision(changed=begun, producer=given)


def _take_over(
    current: Transaction, request: InitProducer, new_id: int | None, now_ms: int
) -> TransactionDecision:
    held = current.identity
    if held.exhausted:
        if new_id is None:
            return NEEDS_PRODUCER_ID
        given = ProducerIdentity(new_id, 0)
    else:
        given = ProducerIdentity(held.producer_id, held.epoch + 1)
    lifted = request.two_phase and current.timeout_ms != NO_TIMEOUT
    taken = current._replace(
        next_producer_id=given.producer_id,
        next_producer_epoch=given.epoch,
        previous_producer_id=(
            held.producer_id if given.producer_id != held.producer_id else current.previous_producer_id
        ),
        timeout_ms=NO_TIMEOUT if lifted else current.timeout_ms,
        timeout_before_ms=current.timeout_ms if lifted else current.timeout_before_ms,
        updated_ms=now_ms,
        last_epoch=NO_EPOCH,
    )
    ongoing = ProducerIdentity(current.producer_id, current.producer_epoch)
    return TransactionDecision(changed=taken, producer=given, ongoing=ongoing)
