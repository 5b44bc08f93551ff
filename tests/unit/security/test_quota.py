"""Which quota counts, and how long somebody over it has to wait."""

from __future__ import annotations

import pytest

from headrace.model.errors import ErrorCode, KafkaError
from headrace.security.quota import (
    PRODUCER_BYTE_RATE,
    AddressQuotas,
    Allowance,
    ClientQuotas,
    QuotaEntity,
    QuotaFilter,
    check_value,
    entity_of,
    entity_of_text,
    entity_text,
    matching,
)

KAFKAS_ORDER: list[tuple[dict[str, str | None], tuple[str | None, str | None]]] = [
    ({"user": "alice", "client-id": "app"}, ("alice", "app")),
    ({"user": "alice", "client-id": None}, ("alice", "app")),
    ({"user": "alice"}, ("alice", None)),
    ({"user": None, "client-id": "app"}, ("alice", "app")),
    ({"user": None, "client-id": None}, ("alice", "app")),
    ({"user": None}, ("alice", None)),
    ({"client-id": "app"}, (None, "app")),
    ({"client-id": None}, (None, "app")),
]


def test_the_most_specific_quota_counts() -> None:
    """Each has the rate of its place in the order: taken away one by one, the next one holds."""
    table = {
        entity_of(entity.items()): {PRODUCER_BYTE_RATE: float(n)} for n, (entity, _) in enumerate(KAFKAS_ORDER)
    }
    assert len(table) == len(KAFKAS_ORDER)
    for place, (entity, shared_by) in enumerate(KAFKAS_ORDER):
        limit = ClientQuotas(table, PRODUCER_BYTE_RATE).limit_of("alice", "app")
        assert limit is not None
        assert limit == (place, shared_by)
        del table[entity_of(entity.items())]
    assert ClientQuotas(table, PRODUCER_BYTE_RATE).limit_of("alice", "app") is None


def test_a_default_is_for_each_by_itself_and_a_users_for_all_its_clients() -> None:
    table = {entity_of([("user", None)]): {PRODUCER_BYTE_RATE: 1.0}}
    quotas = ClientQuotas(table, PRODUCER_BYTE_RATE)
    shares = [quotas.limit_of(user, client) for user, client in (("a", "x"), ("a", "y"), ("b", "x"))]
    assert [limit and limit.shared_by for limit in shares] == [("a", None), ("a", None), ("b", None)]
    assert not ClientQuotas(table, "consumer_byte_rate")


def test_addresses() -> None:
    key = "connection_creation_rate"
    quotas = AddressQuotas({(("ip", "10.0.0.1"),): {key: 2.0}, (("ip", None),): {key: 5.0}})
    assert quotas.rate_of("10.0.0.1") == 2.0
    assert quotas.rate_of("10.0.0.2") == 5.0
    assert AddressQuotas({(("ip", "10.0.0.1"),): {key: 2.0}}).rate_of("10.0.0.2") is None


@pytest.mark.parametrize(
    ("written", "address"),
    [("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("2001:DB8:0::1", "2001:db8::1")],
)
def test_an_address_may_be_written_in_many_ways(written: str, address: str) -> None:
    """One of IPv4 that was written as IPv6 limited nobody."""
    key = "connection_creation_rate"
    entity = entity_of([("ip", written)])
    assert entity == (("ip", address),)
    assert AddressQuotas({entity: {key: 2.0}}).rate_of(address) == 2.0


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("nope", "x")],
        [("user", "x"), ("user", "y")],
        [("ip", "10.0.0.1"), ("user", "x")],
        [("ip", "not an address")],
        [("client-id", "x" * 256)],
    ],
)
def test_no_entity(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(KafkaError) as refused:
        entity_of(parts)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_values() -> None:
    user, address = entity_of([("user", "x")]), entity_of([("ip", None)])
    check_value(user, "request_percentage", 0.5)
    check_value(address, "connection_creation_rate", 3.0)
    for entity, key, value in (
        (user, "producer_byte_rate", 1.5),
        (user, "producer_byte_rate", 0.0),
        (user, "producer_byte_rate", float("inf")),
        (user, "producer_byte_rate", float("nan")),
        (user, "connection_creation_rate", 1.0),
        (address, "producer_byte_rate", 1.0),
    ):
        with pytest.raises(KafkaError):
            check_value(entity, key, value)


@pytest.mark.parametrize(
    "entity",
    [
        (("user", "alice"), ("client-id", None)),
        (("user", "a,b=c/d é%"), ("client-id", "")),
        (("client-id", None),),
        (("ip", "::1"),),
    ],
)
def test_an_entity_as_a_nodes_name(entity: QuotaEntity) -> None:
    text = entity_text(entity)
    assert "/" not in text
    assert entity_of_text(text) == entity


def test_both_orders_are_the_same_entity() -> None:
    assert entity_of([("client-id", "c"), ("user", "u")]) == entity_of([("user", "u"), ("client-id", "c")])


def test_a_search() -> None:
    entities: tuple[QuotaEntity, ...] = (
        (("user", "alice"),),
        (("user", "alice"), ("client-id", "c")),
        (("user", None),),
        (("client-id", "c"),),
    )
    alice, pair, default, client = entities
    table = {entity: {PRODUCER_BYTE_RATE: 1.0} for entity in entities}
    assert matching(table, [], False) == [alice, pair, default, client]
    assert matching(table, [QuotaFilter("user", True)], True) == [alice, default]
    assert matching(table, [QuotaFilter("user", True)], False) == [alice, pair, default]
    assert matching(table, [QuotaFilter("user", False, None)], False) == [default]
    assert matching(table, [QuotaFilter("user", False, "alice"), QuotaFilter("client-id", True)], True) == [pair]


def test_an_allowance() -> None:
    allowance = Allowance(rate=100.0, burst_seconds=1.0)
    assert allowance.use(100, 10.0) == 0.0
    assert allowance.use(50, 10.0) == pytest.approx(0.5)
    assert allowance.ahead(10.25) == pytest.approx(0.25)
    assert allowance.ahead(11.0) == 0.0
    assert not allowance.is_full(11.0)
    assert allowance.is_full(11.5)
    assert allowance.use(200, 1000.0) == pytest.approx(1.0), "no more is saved up than the burst"
