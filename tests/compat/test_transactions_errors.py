"""R-PRO-4: every mistake about transactions gets the code of Apache Kafka, in the words of its version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.model.errors import ErrorCode
from tests.compat.conftest import MakeTopic, unique_name
from tests.compat.transaction_client import TransactionClient

E = ErrorCode
NONE = E.NONE
FENCED, OLD_EPOCH, MAPPING = E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_ID_MAPPING
STATE, REQUEST, TIMEOUT = E.INVALID_TXN_STATE, E.INVALID_REQUEST, E.INVALID_TRANSACTION_TIMEOUT


@pytest.fixture
def client(group_bootstrap: str) -> Iterator[TransactionClient]:
    """With an id that has its first epoch."""
    with TransactionClient(group_bootstrap, unique_name("x")) as made:
        made.find()
        assert made.init_until_ready() is NONE
        yield made


@pytest.fixture
def topic(group_topic: MakeTopic) -> str:
    return group_topic(2)


# --- InitProducerId


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transaction_timeout_ms": 0}, TIMEOUT),
        ({"transaction_timeout_ms": -1}, TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, TIMEOUT),
        ({"transaction_timeout_ms": 900_000}, NONE),
        ({"transaction_timeout_ms": 1}, NONE),
        ({"transactional_id": ""}, REQUEST),
        ({"producer_id": 5}, REQUEST),
        ({"producer_epoch": 5}, REQUEST),
        ({"producer_id": 1 << 40, "producer_epoch": 0}, FENCED),
    ],
    ids=str,
)
def test_init(client: TransactionClient, fields: Any, code: ErrorCode) -> None:
    assert client.init(5, **fields) is code


@pytest.mark.parametrize(("version", "code"), [(3, OLD_EPOCH), (4, FENCED), (5, FENCED)])
def test_init_by_one_who_was_replaced(client: TransactionClient, version: int, code: ErrorCode) -> None:
    before = {"producer_id": client.producer_id, "producer_epoch": client.epoch}
    assert client.init_until_ready() is NONE
    assert client.init(version, **before) is code


def test_init_repeated_by_its_owner(client: TransactionClient) -> None:
    before = {"producer_id": client.producer_id, "producer_epoch": client.epoch}
    epochs = []
    for _ in range(2):
        assert client.init(5, **before) is NONE
        epochs.append(client.epoch)
    assert epochs == [1, 1]


def test_init_while_a_transaction_is_open(client: TransactionClient, topic: str) -> None:
    assert client.add(topic, 0) == [NONE]
    assert client.init() is E.CONCURRENT_TRANSACTIONS
    before = client.epoch
    assert client.init_until_ready() is NONE
    assert client.epoch > before
    assert client.describe().transaction_state == "Empty"


# --- AddPartitionsToTxn, AddOffsetsToTxn


def test_add(client: TransactionClient, topic: str) -> None:
    unknown, skipped = E.UNKNOWN_TOPIC_OR_PARTITION, E.OPERATION_NOT_ATTEMPTED
    assert client.add(topic, 0, 9) == [skipped, unknown]
    assert client.add(unique_name("gone"), 0) == [unknown]
    assert client.add("__transaction_state", 0) == [E.TOPIC_AUTHORIZATION_FAILED]
    assert client.add(topic, 0, producer_id=1 << 40) == [MAPPING]
    assert client.describe().transaction_state == "Empty"
    assert client.add(topic, 0, 1) == [NONE, NONE]
    assert client.add(topic, 0, 1) == [NONE, NONE]
    client.id = ""
    assert client.add(topic, 0) == [REQUEST]
    client.id = unique_name("nobody")
    assert client.add(topic, 0) == [MAPPING]


@pytest.mark.parametrize(("version", "code"), [(0, OLD_EPOCH), (1, OLD_EPOCH), (2, FENCED), (3, FENCED)])
@pytest.mark.parametrize("distance", [-1, 1])
def test_add_in_another_epoch(
    client: TransactionClient, topic: str, version: int, code: ErrorCode, distance: int
) -> None:
    assert client.init_until_ready() is NONE
    assert client.add(topic, 0, version=version, producer_epoch=client.epoch + distance) == [code]


@pytest.mark.parametrize(("version", "code"), [(1, OLD_EPOCH), (2, FENCED), (4, FENCED)])
def test_add_offsets(client: TransactionClient, version: int, code: ErrorCode) -> None:
    group = unique_name("g")
    assert client.add_offsets(group, version, producer_epoch=client.epoch + 1) is code
    assert client.add_offsets(group, version, producer_id=1 << 40) is MAPPING
    assert client.add_offsets(group, version) is NONE
    client.id = ""
    assert client.add_offsets(group, version) is REQUEST


@pytest.mark.parametrize("version", [4, 5])
def test_verify(client: TransactionClient, topic: str, version: int) -> None:
    assert client.add(topic, 0) == [NONE]
    verified = client.add(topic, 0, 1, version=version, verify_only=True)
    assert verified == [NONE, E.TRANSACTION_ABORTABLE]
    assert client.add(topic, 0, version=version, verify_only=True, producer_epoch=9) == [FENCED]
    assert client.add(topic, 0, version=version, verify_only=True, producer_id=1 << 40) == [MAPPING]


# --- EndTxn


@pytest.mark.parametrize("version", range(6))
def test_end_of_nothing(client: TransactionClient, version: int) -> None:
    assert client.end(True, version) is STATE
    assert client.end(True, version, producer_id=1 << 40) is MAPPING
    assert client.end(True, version, producer_id=-1, producer_epoch=-1) is MAPPING
    name, client.id = client.id, ""
    assert client.end(True, version) is REQUEST
    client.id = unique_name("nobody")
    assert client.end(True, version) is MAPPING
    client.id = name
    before = client.epoch
    assert client.end(False, version) is (NONE if version >= 5 else STATE)
    assert client.epoch == before + (1 if version >= 5 else 0)


@pytest.mark.parametrize(
    ("version", "code"), [(0, OLD_EPOCH), (1, OLD_EPOCH), (2, FENCED), (4, FENCED), (5, FENCED)]
)
def test_end_in_another_epoch(client: TransactionClient, topic: str, version: int, code: ErrorCode) -> None:
    assert client.init_until_ready() is NONE
    assert client.add(topic, 0) == [NONE]
    assert client.end(True, version, producer_epoch=client.epoch - 1) is code
    assert client.end(True, version, producer_epoch=client.epoch + 1) is code


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [4, 5])
def test_end_twice_and_the_wrong_end(client: TransactionClient, topic: str, commit: bool, version: int) -> None:
    assert client.add(topic, 0) == [NONE]
    before = {"producer_id": client.producer_id, "producer_epoch": client.epoch}
    assert client.end(commit, version) is NONE
    client.until_state("CompleteCommit" if commit else "CompleteAbort")
    assert client.end(commit, version, **before) is NONE
    assert client.end(not commit, version, **before) is STATE


def test_an_end_of_version_2_bumps_the_epoch(client: TransactionClient, topic: str) -> None:
    for number in range(1, 4):
        assert client.produce(topic, 0, version=12) is NONE
        assert client.end(number % 2 == 1, 5) is NONE
        assert client.epoch == number
        client.until_state("CompleteCommit" if number % 2 else "CompleteAbort")
        late = {"producer_epoch": client.epoch - 1}
        assert client.end(number % 2 == 1, 5, **late) is NONE, "the same end once more"


# --- Produce


@pytest.mark.parametrize(
    ("stamp", "code"),
    [
        ({"producer_id": 1 << 40}, MAPPING),
        ({"transactional_id": None}, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"epoch": 9}, OLD_EPOCH),
    ],
    ids=str,
)
@pytest.mark.parametrize("version", [8, 11, 12])
def test_produce_by_a_stranger(
    client: TransactionClient, topic: str, stamp: Any, code: ErrorCode, version: int
) -> None:
    assert client.add(topic, 0) == [NONE]
    assert client.produce(topic, 0, version, **stamp) is code


@pytest.mark.parametrize("version", [8, 11, 12])
def test_a_wrong_epoch_does_not_keep_the_right_one_out(
    client: TransactionClient, topic: str, version: int
) -> None:
    assert client.add(topic, 0) == [NONE]
    assert client.produce(topic, 0, version, epoch=9) is OLD_EPOCH
    assert client.produce(topic, 0, version) is NONE
    assert client.end(True, 5 if version >= 12 else 4) is NONE


@pytest.mark.parametrize("version", [8, 11, 12])
def test_nobody_joins_an_open_transaction_without_its_id(
    client: TransactionClient, topic: str, version: int
) -> None:
    assert client.add(topic, 0) == [NONE]
    assert client.produce(topic, 0, version) is NONE
    assert client.produce(topic, 0, version, transactional_id=None) is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("version", "code"), [(10, STATE), (11, E.TRANSACTION_ABORTABLE), (12, NONE)])
def test_produce_to_a_partition_that_was_not_added(
    client: TransactionClient, topic: str, version: int, code: ErrorCode
) -> None:
    assert client.produce(topic, 0, version) is code


@pytest.mark.parametrize(("version", "code"), [(10, STATE), (11, E.TRANSACTION_ABORTABLE)])
def test_a_late_produce_of_an_older_client(
    client: TransactionClient, topic: str, version: int, code: ErrorCode
) -> None:
    assert client.add(topic, 0) == [NONE]
    assert client.produce(topic, 0, version) is NONE
    assert client.end() is NONE
    client.until_state("CompleteCommit")
    assert client.produce(topic, 0, version) is code


def test_a_late_produce_of_version_2(client: TransactionClient, topic: str) -> None:
    assert client.produce(topic, 0, 12) is NONE
    before = client.epoch
    assert client.end(True, 5) is NONE
    client.until_state("CompleteCommit")
    assert client.produce(topic, 0, 12, epoch=before, sequence=1) is OLD_EPOCH
    assert client.produce(topic, 1, 12, epoch=before, sequence=0) is OLD_EPOCH


# --- looking


def test_describe(client: TransactionClient, topic: str) -> None:
    state = client.describe()
    assert (state.transaction_state, state.transaction_timeout_ms, state.topics) == ("Empty", 60_000, [])
    assert state.transaction_start_time_ms == -1
    assert client.add(topic, 0, 1) == [NONE, NONE]
    state = client.describe()
    assert (state.transaction_state, state.producer_id, state.producer_epoch) == ("Ongoing", client.producer_id, 0)
    assert [(one.topic, sorted(one.partitions)) for one in state.topics] == [(topic, [0, 1])]
    client.id = unique_name("nobody")
    assert client.describe().error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    client.id = ""
    assert client.describe().error_code == REQUEST
