"""Every request in every state of a transactional id: what Kafka answers, and what is stored."""

from __future__ import annotations

import pytest

from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.transactions.adding import decide_add, verify
from headrace.transactions.decision import TransactionDecision
from headrace.transactions.ending import EndTransaction, completed, decide_end, fenced
from headrace.transactions.starting import InitProducer, StartRules, check_init, decide_init, timeout_of
from headrace.transactions.states import BY_TITLE, ENDED, ENDING, IDLE, NEXT, TransactionState
from headrace.transactions.transaction import (
    BUMPS_EPOCH,
    CLASSIC,
    LAST_USABLE_EPOCH,
    MAX_EPOCH,
    NO_TIMEOUT,
    NOBODY,
    ProducerIdentity,
    Transaction,
    check_transition,
)

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, FENCE = TransactionState
STORED = [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT]
"""The states that a record can have."""

P0, P1 = TopicPartition("a", 0), TopicPartition("b", 1)
HELD = ProducerIdentity(7, 5)
NOW, START, TIMEOUT = 10_000, 9_000, 60_000
NEW_ID = 900

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
STATE = ErrorCode.INVALID_TXN_STATE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


def txn(state: TransactionState, identity: ProducerIdentity = HELD, **more: object) -> Transaction:
    open_ = state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
    made = Transaction(
        "id",
        identity.producer_id,
        identity.epoch,
        state,
        TIMEOUT,
        updated_ms=START,
        start_ms=-1 if state is EMPTY else START,
        partitions=frozenset({P0}) if open_ else frozenset(),
    )
    return made._replace(**more)  # type: ignore[arg-type]


def init(expected: ProducerIdentity = NOBODY, **more: bool) -> InitProducer:
    return InitProducer("id", TIMEOUT, expected, **more)


def end(producer: ProducerIdentity = HELD, commit: bool = True, bumps_epoch: bool = True) -> EndTransaction:
    return EndTransaction(producer, commit, bumps_epoch)


# --- the table of states


def test_the_table_is_complete() -> None:
    assert NEXT.keys() == set(TransactionState)
    assert set().union(*NEXT.values()) == set(TransactionState), "every state can be reached"
    assert [int(state) for state in TransactionState] == list(range(8)), "the stored numbers"
    assert sorted(BY_TITLE) == [
        *("CompleteAbort", "CompleteCommit", "Dead", "Empty", "Ongoing"),
        *("PrepareAbort", "PrepareCommit", "PrepareEpochFence"),
    ]
    assert set(STORED) == ENDING | IDLE | {ONGOING}
    assert ENDED < IDLE


@pytest.mark.parametrize("before", STORED)
def test_a_forbidden_step_is_our_bug(before: TransactionState) -> None:
    for after in STORED:
        if after in NEXT[before]:
            check_transition(txn(before), txn(after))
        else:
            with pytest.raises(AssertionError):
                check_transition(txn(before), txn(after))
    if DEAD in NEXT[before]:
        check_transition(txn(before), None)
    else:
        with pytest.raises(AssertionError):
            check_transition(txn(before), None)


def test_an_id_begins_empty() -> None:
    check_transition(None, txn(EMPTY))
    with pytest.raises(AssertionError):
        check_transition(None, txn(ONGOING))
    with pytest.raises(AssertionError):
        check_transition(None, None)


# --- every decision keeps to the table

ASKERS = [HELD, ProducerIdentity(7, 4), ProducerIdentity(7, 6), ProducerIdentity(8, 5), NOBODY]
PAST = [HELD, ProducerIdentity(7, LAST_USABLE_EPOCH), ProducerIdentity(7, 0)]


@pytest.mark.parametrize("state", STORED)
@pytest.mark.parametrize("held", PAST)
@pytest.mark.parametrize("taken_over", [False, True])
def test_whatever_is_asked_the_step_is_in_the_table(
    state: TransactionState, held: ProducerIdentity, taken_over: bool
) -> None:
    current = txn(state, held)
    if taken_over and state is ONGOING:
        current = current._replace(next_producer_id=NEW_ID, next_producer_epoch=LAST_USABLE_EPOCH)
    for asker in [*ASKERS, held, ProducerIdentity(NEW_ID, LAST_USABLE_EPOCH)]:
        decisions: list[TransactionDecision] = []
        for keep in (False, True):
            decisions += [decide_init(current, init(asker, keep_prepared=keep), TIMEOUT, 950, NOW)]
        decisions += [
            decide_add(current, asker, frozenset({P1}), version, NOW) for version in (CLASSIC, BUMPS_EPOCH)
        ]
        for commit in (False, True):
            for bumps in (False, True):
                decisions.append(decide_end(current, end(asker, commit, bumps), 950, NOW))
        for decision in decisions:
            assert not decision.needs_producer_id
            if decision.changed is not None:
                check_transition(current, decision.changed)
                assert decision.changed.updated_ms == NOW
                assert decision.changed.producer_epoch <= MAX_EPOCH
                assert decision.error in (NONE, CONCURRENT)
                if decision.changed.state in ENDING:
                    check_transition(decision.changed, completed(decision.changed, NOW + 1))


# --- InitProducerId


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (InitProducer("", TIMEOUT), ErrorCode.INVALID_REQUEST),
        (InitProducer("id", TIMEOUT, ProducerIdentity(7, -1)), ErrorCode.INVALID_REQUEST),
        (InitProducer("id", TIMEOUT, ProducerIdentity(-1, 0)), ErrorCode.INVALID_REQUEST),
        (InitProducer("id", 0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducer("id", -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducer("id", 900_001), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducer("id", 900_000), NONE),
        (InitProducer("id", 1), NONE),
        (InitProducer("id", 900_001, two_phase=True), NONE),
    ],
)
def test_init_checks(request_: InitProducer, error: ErrorCode) -> None:
    assert check_init(request_, StartRules(900_000, True)) is error


def test_init_two_phase_must_be_enabled() -> None:
    rules = StartRules(900_000, False)
    assert check_init(init(two_phase=True), rules) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert check_init(init(keep_prepared=True), rules) is ErrorCode.UNSUPPORTED_VERSION
    assert check_init(init(), rules) is NONE


def test_a_two_phase_client_has_an_ordinary_timeout_until_it_prepares_unless_it_asks_for_none() -> None:
    rules = StartRules(900_000, True)
    assert timeout_of(init(two_phase=True), rules) == TIMEOUT
    assert timeout_of(InitProducer("id", NO_TIMEOUT, two_phase=True), rules) == NO_TIMEOUT
    assert timeout_of(InitProducer("id", 0, two_phase=True), rules) == NO_TIMEOUT


def test_init_of_an_unknown_id_needs_a_producer_id_and_begins_at_epoch_0() -> None:
    assert decide_init(None, init(), TIMEOUT, None, NOW).needs_producer_id
    decision = decide_init(None, init(ProducerIdentity(3, 9)), TIMEOUT, NEW_ID, NOW)
    assert decision.producer == (NEW_ID, 0)
    assert decision.changed == Transaction("id", NEW_ID, 0, EMPTY, TIMEOUT, updated_ms=NOW)


INIT = {
    EMPTY: (NONE, EMPTY, ProducerIdentity(7, 6)),
    ONGOING: (CONCURRENT, PREPARE_ABORT, NOBODY),
    PREPARE_COMMIT: (CONCURRENT, None, NOBODY),
    PREPARE_ABORT: (CONCURRENT, None, NOBODY),
    COMPLETE_COMMIT: (NONE, EMPTY, ProducerIdentity(7, 6)),
    COMPLETE_ABORT: (NONE, EMPTY, ProducerIdentity(7, 6)),
}
assert INIT.keys() == set(STORED)


@pytest.mark.parametrize("state", STORED)
@pytest.mark.parametrize("expected", [NOBODY, HELD])
def test_init(state: TransactionState, expected: ProducerIdentity) -> None:
    error, following, producer = INIT[state]
    decision = decide_init(txn(state), init(expected), 5_000, None, NOW)
    assert decision.error is error
    assert decision.producer == producer
    assert (None if decision.changed is None else decision.changed.state) is following
    if following is EMPTY:
        assert decision.changed is not None
        assert decision.changed.timeout_ms == 5_000
        assert decision.changed.start_ms == -1


def test_init_fences_the_owner_of_an_open_transaction() -> None:
    decision = decide_init(txn(ONGOING), init(), TIMEOUT, None, NOW)
    assert decision.changed is not None
    aborted = completed(decision.changed, NOW)
    assert aborted.state is COMPLETE_ABORT
    for commit in (False, True):
        for bumps in (False, True):
            assert decide_end(aborted, end(HELD, commit, bumps), NEW_ID, NOW).error is FENCED
    assert decide_add(aborted, HELD, frozenset({P0}), CLASSIC, NOW).error is FENCED
    assert decide_init(aborted, init(HELD), TIMEOUT, None, NOW).error is FENCED
    assert decide_init(aborted, init(), TIMEOUT, None, NOW).producer == (7, 8)


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_init_of_a_stranger_or_of_one_who_is_late_is_fenced(state: TransactionState) -> None:
    for expected in (ProducerIdentity(8, 5), ProducerIdentity(7, 4), ProducerIdentity(7, 6)):
        assert decide_init(txn(state), init(expected), TIMEOUT, None, NOW).error is FENCED


@pytest.mark.parametrize("keep", [False, True])
def test_a_zombie_does_not_end_what_its_successor_has_open(keep: bool) -> None:
    for zombie in (ProducerIdentity(7, 4), ProducerIdentity(7, 6), ProducerIdentity(8, 5)):
        decision = decide_init(txn(ONGOING), init(zombie, keep_prepared=keep), TIMEOUT, None, NOW)
        assert (decision.error, decision.changed) == (FENCED, None)


def test_init_repeated_by_its_owner_gives_the_same_epoch() -> None:
    first = decide_init(txn(EMPTY), init(HELD), TIMEOUT, None, NOW)
    assert first.changed is not None
    assert first.producer == (7, 6)
    assert decide_init(first.changed, init(HELD), TIMEOUT, None, NOW).producer == (7, 6)


def test_init_of_another_forgets_who_asked_before() -> None:
    first = decide_init(txn(EMPTY), init(HELD), TIMEOUT, None, NOW)
    assert first.changed is not None
    second = decide_init(first.changed, init(), TIMEOUT, None, NOW)
    assert second.changed is not None
    assert second.producer == (7, 7)
    assert decide_init(second.changed, init(ProducerIdentity(7, 6)), TIMEOUT, None, NOW).error is FENCED


def test_init_with_the_epochs_used_up_gives_another_producer_id() -> None:
    spent = ProducerIdentity(7, LAST_USABLE_EPOCH)
    assert decide_init(txn(COMPLETE_COMMIT, spent), init(), TIMEOUT, None, NOW).needs_producer_id
    decision = decide_init(txn(COMPLETE_COMMIT, spent), init(spent), TIMEOUT, NEW_ID, NOW)
    assert decision.producer == (NEW_ID, 0)
    assert decision.changed is not None
    assert decision.changed.previous_producer_id == 7
    again = decide_init(decision.changed, init(spent), TIMEOUT, 901, NOW)
    assert again.producer == (NEW_ID, 0), "repeated by its owner, who has not heard of it"
    assert decide_init(decision.changed, init(ProducerIdentity(7, 3)), TIMEOUT, 901, NOW).error is FENCED


def test_init_after_fencing_in_the_last_epoch() -> None:
    aborting = fenced(txn(ONGOING, ProducerIdentity(7, LAST_USABLE_EPOCH)), NOW)
    assert aborting.producer_epoch == MAX_EPOCH
    aborted = completed(aborting, NOW)
    late = ProducerIdentity(7, LAST_USABLE_EPOCH)
    assert decide_end(aborted, end(late, commit=False), 901, NOW).error is FENCED
    assert decide_init(aborted, init(), TIMEOUT, NEW_ID, NOW).producer == (NEW_ID, 0)


# --- AddPartitionsToTxn and AddOffsetsToTxn

ADD = {
    EMPTY: (NONE, ONGOING),
    ONGOING: (NONE, ONGOING),
    PREPARE_COMMIT: (CONCURRENT, None),
    PREPARE_ABORT: (CONCURRENT, None),
    COMPLETE_COMMIT: (NONE, ONGOING),
    COMPLETE_ABORT: (NONE, ONGOING),
}
assert ADD.keys() == set(STORED)


@pytest.mark.parametrize("state", STORED)
def test_add(state: TransactionState) -> None:
    error, following = ADD[state]
    decision = decide_add(txn(state), HELD, frozenset({P1}), BUMPS_EPOCH, NOW)
    assert decision.error is error
    assert (None if decision.changed is None else decision.changed.state) is following
    if decision.changed is not None:
        assert decision.changed.partitions == ({P0, P1} if state is ONGOING else {P1})
        assert decision.changed.start_ms == (START if state is ONGOING else NOW)
        assert decision.changed.client_version == BUMPS_EPOCH


@pytest.mark.parametrize("state", STORED)
def test_add_by_another(state: TransactionState) -> None:
    for epoch in (HELD.epoch - 1, HELD.epoch + 1):
        assert decide_add(txn(state), ProducerIdentity(7, epoch), frozenset({P1}), CLASSIC, NOW).error is FENCED
    assert decide_add(txn(state), ProducerIdentity(8, 5), frozenset({P1}), CLASSIC, NOW).error in (MAPPING, FENCED)
    assert decide_add(None, HELD, frozenset({P1}), CLASSIC, NOW).error is MAPPING


def test_what_is_there_is_not_added_again() -> None:
    decision = decide_add(txn(ONGOING), HELD, frozenset({P0}), CLASSIC, NOW)
    assert decision.error is NONE
    assert decision.changed is None


VERIFY = {
    EMPTY: ABORTABLE,
    ONGOING: NONE,
    PREPARE_COMMIT: CONCURRENT,
    PREPARE_ABORT: CONCURRENT,
    COMPLETE_COMMIT: ABORTABLE,
    COMPLETE_ABORT: ABORTABLE,
}
assert VERIFY.keys() == set(STORED)


@pytest.mark.parametrize("state", STORED)
def test_verify(state: TransactionState) -> None:
    assert verify(txn(state), HELD, [P0]) == {P0: VERIFY[state]}
    assert verify(txn(state), ProducerIdentity(7, 4), [P0]) == {P0: FENCED}
    assert verify(txn(state), ProducerIdentity(7, 6), [P0]) == {P0: FENCED}
    assert verify(None, HELD, [P0]) == {P0: MAPPING}


def test_verify_answers_for_each_partition() -> None:
    assert verify(txn(ONGOING), HELD, [P0, P1]) == {P0: NONE, P1: ABORTABLE}


# --- EndTxn of transactions version 1

CLASSIC_END = {
    EMPTY: (STATE, STATE),
    ONGOING: (PREPARE_COMMIT, PREPARE_ABORT),
    PREPARE_COMMIT: (CONCURRENT, STATE),
    PREPARE_ABORT: (STATE, CONCURRENT),
    COMPLETE_COMMIT: (NONE, STATE),
    COMPLETE_ABORT: (STATE, NONE),
}
assert CLASSIC_END.keys() == set(STORED)


@pytest.mark.parametrize("state", STORED)
@pytest.mark.parametrize("commit", [True, False])
def test_end_of_version_1(state: TransactionState, commit: bool) -> None:
    expected = CLASSIC_END[state][0 if commit else 1]
    decision = decide_end(txn(state), end(HELD, commit, bumps_epoch=False), None, NOW)
    if isinstance(expected, TransactionState):
        assert decision.error is NONE
        assert decision.changed is not None
        assert decision.changed.state is expected
        assert decision.changed.producer_epoch == HELD.epoch, "the epoch stays"
        assert completed(decision.changed, NOW).identity == HELD
    else:
        assert decision.error is expected
        assert decision.changed is None
    for stranger, error in (
        (ProducerIdentity(7, 4), FENCED),
        (ProducerIdentity(7, 6), FENCED),
        (ProducerIdentity(8, 5), MAPPING),
    ):
        assert decide_end(txn(state), end(stranger, commit, bumps_epoch=False), None, NOW).error is error


# --- EndTxn of transactions version 2

BUMPING_END = {
    EMPTY: (STATE, PREPARE_ABORT),
    ONGOING: (PREPARE_COMMIT, PREPARE_ABORT),
    PREPARE_COMMIT: (CONCURRENT, CONCURRENT),
    PREPARE_ABORT: (CONCURRENT, CONCURRENT),
    COMPLETE_COMMIT: (STATE, PREPARE_ABORT),
    COMPLETE_ABORT: (STATE, PREPARE_ABORT),
}
"""By the epoch that is held: an end of the next transaction."""
REPEATED_END = {
    EMPTY: (FENCED, FENCED),
    ONGOING: (FENCED, FENCED),
    PREPARE_COMMIT: (CONCURRENT, STATE),
    PREPARE_ABORT: (STATE, CONCURRENT),
    COMPLETE_COMMIT: (NONE, STATE),
    COMPLETE_ABORT: (STATE, NONE),
}
"""By the epoch before: the same end once more."""
assert BUMPING_END.keys() == REPEATED_END.keys() == set(STORED)


@pytest.mark.parametrize("state", STORED)
@pytest.mark.parametrize("commit", [True, False])
def test_end_of_version_2(state: TransactionState, commit: bool) -> None:
    expected = BUMPING_END[state][0 if commit else 1]
    decision = decide_end(txn(state), end(HELD, commit), None, NOW)
    if isinstance(expected, TransactionState):
        assert decision.error is NONE
        assert decision.changed is not None
        assert decision.changed.state is expected
        assert decision.producer == (7, 6)
        assert decision.changed.producer_epoch == 6, "the markers fence what comes late"
        assert decision.changed.partitions == ({P0} if state is ONGOING else frozenset())
        assert completed(decision.changed, NOW).identity == (7, 6)
    else:
        assert decision.error is expected
    assert decide_end(txn(state), end(ProducerIdentity(8, 5), commit), None, NOW).error is MAPPING
    for epoch in (HELD.epoch + 1, HELD.epoch - 2):
        assert decide_end(txn(state), end(ProducerIdentity(7, epoch), commit), None, NOW).error is FENCED


@pytest.mark.parametrize("state", STORED)
@pytest.mark.parametrize("commit", [True, False])
def test_repeated_end_of_version_2(state: TransactionState, commit: bool) -> None:
    ended = txn(state, client_version=BUMPS_EPOCH)
    decision = decide_end(ended, end(ProducerIdentity(7, 4), commit), None, NOW)
    assert decision.error is REPEATED_END[state][0 if commit else 1]
    assert decision.changed is None
    if decision.error is NONE:
        assert decision.producer == HELD


def test_end_of_an_unknown_id() -> None:
    assert decide_end(None, end(), None, NOW).error is MAPPING
    assert decide_end(None, end(bumps_epoch=False), None, NOW).error is MAPPING


def test_end_with_the_epochs_used_up_gives_another_producer_id() -> None:
    spent = ProducerIdentity(7, LAST_USABLE_EPOCH)
    assert decide_end(txn(ONGOING, spent), end(spent), None, NOW).needs_producer_id
    decision = decide_end(txn(ONGOING, spent), end(spent), NEW_ID, NOW)
    assert decision.producer == (NEW_ID, 0)
    ending = decision.changed
    assert ending is not None
    assert (ending.producer_id, ending.producer_epoch) == (7, MAX_EPOCH), "what the markers carry"
    assert decide_end(ending, end(spent), 901, NOW).error is CONCURRENT
    assert decide_add(ending, ProducerIdentity(NEW_ID, 0), frozenset({P0}), BUMPS_EPOCH, NOW).error is CONCURRENT
    assert decide_add(ending, spent, frozenset({P0}), BUMPS_EPOCH, NOW).error is FENCED
    ended = completed(ending, NOW)
    assert ended.identity == (NEW_ID, 0)
    repeated = decide_end(ended, end(spent), 901, NOW)
    assert (repeated.error, repeated.producer) == (NONE, (NEW_ID, 0))
    assert decide_add(ended, ProducerIdentity(NEW_ID, 0), frozenset({P0}), BUMPS_EPOCH, NOW).error is NONE


def test_a_late_end_never_ends_the_next_transaction() -> None:
    first = decide_end(txn(ONGOING), end(), None, NOW)
    assert first.changed is not None
    ended = completed(first.changed, NOW)
    following = decide_add(ended, first.producer, frozenset({P1}), BUMPS_EPOCH, NOW)
    assert following.changed is not None
    assert decide_end(following.changed, end(), None, NOW).error is FENCED


# --- timeouts


def test_the_time_that_is_left() -> None:
    assert txn(ONGOING).time_left_ms(START) == TIMEOUT
    assert txn(ONGOING).time_left_ms(START + 1_000) == TIMEOUT - 1_000
    assert txn(ONGOING).time_left_ms(START + TIMEOUT + 5) == 0
    assert txn(ONGOING).time_left_ms(0) == TIMEOUT, "the clock of the coordinator before ran ahead"
    assert txn(ONGOING, timeout_ms=NO_TIMEOUT).time_left_ms(START) is None
    for state in STORED:
        if state is not ONGOING:
            assert txn(state).time_left_ms(START) is None


# --- prepared transactions (KIP-939)


def test_preparing_lifts_the_timeout_and_closes_the_transaction() -> None:
    decision = decide_init(txn(ONGOING), init(two_phase=True, keep_prepared=True), TIMEOUT, None, NOW)
    prepared = decision.changed
    assert prepared is not None
    assert decision.error is NONE
    assert decision.producer == (7, 6)
    assert decision.ongoing == HELD
    assert prepared.prepared
    assert prepared.time_left_ms(NOW) is None
    assert decide_add(prepared, ProducerIdentity(7, 6), frozenset({P1}), BUMPS_EPOCH, NOW).error is STATE
    assert decide_add(prepared, HELD, frozenset({P1}), BUMPS_EPOCH, NOW).error is FENCED
    assert decide_end(prepared, end(HELD), None, NOW).error is FENCED


def test_taken_over_without_two_phase_keeps_its_timeout() -> None:
    decision = decide_init(txn(ONGOING), init(keep_prepared=True), TIMEOUT, None, NOW)
    assert decision.changed is not None
    assert decision.changed.taken_over
    assert not decision.changed.prepared
    assert decision.changed.time_left_ms(START) == TIMEOUT


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("bumps", [True, False])
def test_a_prepared_transaction_is_ended_by_who_took_it_over(commit: bool, bumps: bool) -> None:
    current = txn(ONGOING)
    for epoch in (6, 7):  # taken over twice
        decision = decide_init(current, init(two_phase=True, keep_prepared=True), TIMEOUT, None, NOW)
        assert decision.producer == (7, epoch)
        assert decision.ongoing == HELD
        assert decision.changed is not None
        current = decision.changed
    owner = ProducerIdentity(7, 7)
    ended = decide_end(current, end(owner, commit, bumps), None, NOW).changed
    assert ended is not None
    assert ended.producer_epoch == (8 if bumps else 7)
    complete = completed(ended, NOW)
    assert complete.identity == (7, 8 if bumps else 7)
    assert complete.timeout_ms == TIMEOUT, "an ordinary transaction comes next"
    assert complete.partitions == frozenset()
    again = decide_end(complete, end(owner, commit, bumps), None, NOW)
    assert again.error is NONE, "the recorded epoch ends it any number of times"
    assert again.changed is None


def test_a_prepared_transaction_is_aborted_by_init_without_keep() -> None:
    prepared = decide_init(txn(ONGOING), init(two_phase=True, keep_prepared=True), TIMEOUT, None, NOW).changed
    assert prepared is not None
    decision = decide_init(prepared, init(), TIMEOUT, None, NOW)
    assert decision.error is CONCURRENT
    assert decision.changed is not None
    assert decision.changed.state is PREPARE_ABORT
    assert completed(decision.changed, NOW).timeout_ms == TIMEOUT
    assert decide_end(completed(decision.changed, NOW), end(ProducerIdentity(7, 6)), None, NOW).error is FENCED


def test_taking_over_with_the_epochs_used_up() -> None:
    spent = ProducerIdentity(7, LAST_USABLE_EPOCH)
    request = init(two_phase=True, keep_prepared=True)
    assert decide_init(txn(ONGOING, spent), request, TIMEOUT, None, NOW).needs_producer_id
    decision = decide_init(txn(ONGOING, spent), request, TIMEOUT, NEW_ID, NOW)
    assert decision.producer == (NEW_ID, 0)
    assert decision.ongoing == spent
    assert decision.changed is not None
    ending = decide_end(decision.changed, end(ProducerIdentity(NEW_ID, 0)), None, NOW).changed
    assert ending is not None
    assert (ending.producer_id, ending.producer_epoch) == (7, MAX_EPOCH), "the records are the former id's"
    assert completed(ending, NOW).identity == (NEW_ID, 1)
    aborting = decide_init(decision.changed, init(), TIMEOUT, None, NOW).changed
    assert aborting is not None
    assert (aborting.producer_id, aborting.producer_epoch) == (7, MAX_EPOCH)
    assert completed(aborting, NOW).identity == (NEW_ID, 2)


def test_keep_with_nothing_open_is_an_ordinary_init() -> None:
    for state in IDLE:
        decision = decide_init(txn(state), init(two_phase=True, keep_prepared=True), TIMEOUT, None, NOW)
        assert decision.producer == (7, 6)
        assert decision.ongoing == NOBODY
