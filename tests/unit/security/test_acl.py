"""Rules as values: what may be kept, which rules a filter means, what a principal may."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.model.errors import ErrorCode, KafkaError
from headrace.security.acl import (
    Acl,
    AclFilter,
    Operation,
    Pattern,
    Permission,
    Resource,
    acl_of,
    filter_of,
)
from headrace.security.authorizer import MAX_REMEMBERED, Authorizer, Rights

TOPIC, GROUP, CLUSTER = Resource.TOPIC, Resource.GROUP, Resource.CLUSTER
LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def rule(
    name: str,
    operation: Operation,
    permission: Permission = ALLOW,
    pattern: Pattern = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    resource: Resource = TOPIC,
) -> Acl:
    return Acl(resource, name, pattern, principal, host, operation, permission)


def rights(*acls: Acl, principal: str = "User:alice", host: str = "10.1.2.3", **settings: Any) -> Rights:
    authorizer = Authorizer(acls, settings.get("super_users", frozenset()), settings.get("open", False))
    return authorizer.rights(principal, host)


class TestDecisions:
    def test_without_rules_nothing_is_allowed(self) -> None:
        assert not rights().may(READ, TOPIC, "t")

    def test_without_rules_everything_may_be_allowed(self) -> None:
        mine = rights(rule("other", READ), open=True)
        assert mine.may(WRITE, TOPIC, "t")
        assert not mine.may(WRITE, TOPIC, "other"), "a rule about the resource is enough"

    def test_super_users_may_everything(self) -> None:
        mine = rights(rule("*", ALL, DENY), super_users=frozenset({"User:alice"}))
        assert mine.may(WRITE, TOPIC, "t")
        assert mine.may_somewhere(WRITE, TOPIC)
        assert mine.on_cluster(Operation.ALTER)

    @pytest.mark.parametrize(
        ("name", "pattern", "asked", "expected"),
        [
            ("orders", LITERAL, "orders", True),
            ("orders", LITERAL, "orders-2", False),
            ("orders", PREFIXED, "orders-2", True),
            ("orders", PREFIXED, "order", False),
            ("*", LITERAL, "anything", True),
            ("*", PREFIXED, "anything", False),
        ],
    )
    def test_patterns(self, name: str, pattern: Pattern, asked: str, expected: bool) -> None:
        assert rights(rule(name, READ, pattern=pattern)).may(READ, TOPIC, asked) is expected

    def test_a_denial_wins_over_every_permission(self) -> None:
        mine = rights(rule("*", READ), rule("secret", READ, DENY, PREFIXED))
        assert mine.may(READ, TOPIC, "open")
        assert not mine.may(READ, TOPIC, "secret-1")

    @pytest.mark.parametrize("granted", [READ, WRITE, Operation.DELETE, Operation.ALTER, ALL])
    def test_what_includes_describing(self, granted: Operation) -> None:
        assert rights(rule("t", granted)).may(DESCRIBE, TOPIC, "t")

    def test_denying_includes_nothing_else(self) -> None:
        mine = rights(rule("t", DESCRIBE), rule("t", READ, DENY))
        assert mine.may(DESCRIBE, TOPIC, "t")

    def test_altering_settings_includes_describing_them(self) -> None:
        mine = rights(rule("t", Operation.ALTER_CONFIGS))
        assert mine.may(Operation.DESCRIBE_CONFIGS, TOPIC, "t")
        assert not mine.may(DESCRIBE, TOPIC, "t")

    @pytest.mark.parametrize(
        ("pattern", "host", "expected"),
        [
            ("*", "10.1.2.3", True),
            ("10.1.2.3", "10.1.2.3", True),
            ("10.1.2.4", "10.1.2.3", False),
            ("10.0.0.0/8", "10.1.2.3", True),
            ("11.0.0.0/8", "10.1.2.3", False),
            ("fd00::/8", "fd12::1", True),
            ("::1", "0:0:0:0:0:0:0:1", True),
            ("10.0.0.0/8", "not an address", False),
            ("::ffff:10.1.2.3", "10.1.2.3", True),
            ("::ffff:10.0.0.0/104", "10.1.2.3", True),
            ("::ffff:11.0.0.0/104", "10.1.2.3", False),
            ("::/0", "10.1.2.3", False),
        ],
    )
    def test_hosts(self, pattern: str, host: str, expected: bool) -> None:
        assert rights(rule("t", READ, host=pattern), host=host).may(READ, TOPIC, "t") is expected

    def test_another_principal(self) -> None:
        assert not rights(rule("t", READ), principal="User:bob").may(READ, TOPIC, "t")
        assert rights(rule("t", READ, principal="User:*"), principal="User:bob").may(READ, TOPIC, "t")

    def test_another_type_of_resource(self) -> None:
        assert not rights(rule("t", READ)).may(READ, GROUP, "t")

    def test_decisions_are_remembered_within_a_limit(self) -> None:
        mine = rights(rule("t", READ, pattern=PREFIXED))
        for number in range(MAX_REMEMBERED + 10):
            assert mine.may(READ, TOPIC, f"t{number}")
        assert len(mine._decided) <= MAX_REMEMBERED

    def test_long_names_take_no_memory(self) -> None:
        """Ten thousand names of 30 KB, which a request may have, were 290 MB."""
        mine = rights(rule("x", READ, pattern=PREFIXED))
        for number in range(20):
            assert mine.may(READ, TOPIC, f"x{number}" * 10_000)
            assert not mine.may(READ, GROUP, f"x{number}" * 10_000)
        assert not mine._decided

    @pytest.mark.parametrize(
        ("acls", "expected"),
        [
            ([], False),
            ([rule("t", WRITE)], True),
            ([rule("t", WRITE), rule("t", WRITE, DENY)], False),
            ([rule("t", WRITE), rule("u", WRITE, DENY)], True),
            ([rule("t", WRITE), rule("*", ALL, DENY)], False),
            ([rule("ab", WRITE, pattern=PREFIXED), rule("a", WRITE, DENY, PREFIXED)], False),
            ([rule("a", WRITE, pattern=PREFIXED), rule("ab", WRITE, DENY, PREFIXED)], True),
            ([rule("*", WRITE), rule("a", WRITE, DENY, PREFIXED)], True),
            ([rule("t", READ)], False),
        ],
    )
    def test_somewhere(self, acls: list[Acl], expected: bool) -> None:
        assert rights(*acls).may_somewhere(WRITE, TOPIC) is expected

    def test_somewhere_without_rules(self) -> None:
        assert rights(open=True).may_somewhere(WRITE, TOPIC)
        assert not rights(rule("*", WRITE, DENY), open=True).may_somewhere(WRITE, TOPIC)


class TestFilters:
    RULES = (
        rule("orders", READ),
        rule("ord", READ, pattern=PREFIXED),
        rule("*", WRITE, DENY),
        rule("g", READ, resource=GROUP, principal="User:bob", host="10.0.0.1"),
    )

    def found(self, **wanted: Any) -> list[int]:
        values: dict[str, Any] = {
            "resource": Resource.ANY,
            "name": None,
            "pattern": Pattern.ANY,
            "principal": None,
            "host": None,
            "operation": Operation.ANY,
            "permission": Permission.ANY,
        }
        chosen = AclFilter(**(values | wanted))
        return [index for index, acl in enumerate(self.RULES) if chosen.matches(acl)]

    def test_everything(self) -> None:
        assert self.found() == [0, 1, 2, 3]

    def test_by_each_part(self) -> None:
        assert self.found(resource=GROUP) == [3]
        assert self.found(principal="User:bob") == [3]
        assert self.found(host="10.0.0.1") == [3]
        assert self.found(operation=WRITE) == [2]
        assert self.found(permission=DENY) == [2]
        assert self.found(pattern=PREFIXED) == [1]
        assert self.found(pattern=LITERAL) == [0, 2, 3]

    def test_by_name(self) -> None:
        assert self.found(name="orders") == [0]
        assert self.found(name="orders", pattern=Pattern.MATCH) == [0, 1, 2]
        assert self.found(name="order", pattern=Pattern.MATCH) == [1, 2]
        assert self.found(name="ord", pattern=PREFIXED) == [1]


class TestValues:
    def make(self, **changed: Any) -> Acl:
        values: dict[str, Any] = {
            "resource": 2,
            "name": "t",
            "pattern": 3,
            "principal": "User:alice",
            "host": "*",
            "operation": 3,
            "permission": 3,
        }
        return acl_of(**(values | changed))

    def test_a_rule_that_can_be_kept(self) -> None:
        assert self.make() == rule("t", READ)
        assert self.make().id == self.make().id != self.make(name="u").id

    @pytest.mark.parametrize(
        "changed",
        [
            {"resource": 0},
            {"resource": 1},
            {"resource": 99},
            {"name": ""},
            {"name": "x" * 2000},
            {"pattern": 1},
            {"pattern": 2},
            {"operation": 0},
            {"operation": 1},
            {"operation": 77},
            {"permission": 1},
            {"principal": "alice"},
            {"principal": ""},
            {"principal": "User:"},
            {"host": "example.com"},
            {"host": "10.0.0.1/8"},
            {"host": ""},
            {"resource": 4, "name": "t"},
            {"resource": 4, "name": "kafka-cluster", "pattern": 4},
        ],
    )
    def test_rules_that_cannot(self, changed: dict[str, Any]) -> None:
        with pytest.raises(KafkaError) as raised:
            self.make(**changed)
        assert raised.value.code == ErrorCode.INVALID_REQUEST

    def test_filters_of_the_unknown(self) -> None:
        assert filter_of(1, None, 1, None, None, 1, 1).matches(rule("t", READ))
        for broken in (
            (0, None, 1, None, None, 1, 1),
            (1, None, 9, None, None, 1, 1),
            (1, None, 1, None, None, 1, 0),
        ):
            with pytest.raises(KafkaError):
                filter_of(*broken)
