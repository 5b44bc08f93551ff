"""The bytes of the embedded consumer protocol, and what is done with broken ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.embedded import (
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from headrace.model.errors import ProtocolError

GOLDEN = bytes.fromhex("000100000001000161ffffffff00000001000161000000020000000000000003")


def test_a_subscription_as_a_client_sends_it() -> None:
    subscription = read_subscription(GOLDEN)
    assert subscription == Subscription(1, ("a",), {"a": frozenset({0, 3})}, -1, None)
    assert write_subscription(subscription) == GOLDEN


def test_an_assignment_as_a_client_sends_it() -> None:
    golden = bytes.fromhex("0003000000010001610000000100000005ffffffff")
    assert read_assignment(golden) == {"a": frozenset({5})}
    assert write_assignment({"a": frozenset({5})}, 3) == golden
    assert read_assignment(b"") == {}


@pytest.mark.parametrize("version", range(4))
def test_every_version_of_a_subscription(version: int) -> None:
    owned = {"t": frozenset({1})} if version >= 1 else {}
    generation = 7 if version >= 2 else -1
    rack_id = "r" if version >= 3 else None
    subscription = Subscription(version, ("t", "u"), owned, generation, rack_id)
    assert read_subscription(write_subscription(subscription)) == subscription


def test_a_newer_version_is_read_as_far_as_we_know_it() -> None:
    data = b"\x00\x09" + write_subscription(Subscription(3, ("t",), {}, 1, None))[2:] + b"more"
    assert read_subscription(data).topics == ("t",)


@pytest.mark.parametrize("length", range(len(GOLDEN)))
def test_a_cut_subscription_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError):
        read_subscription(GOLDEN[:length])


@given(st.binary(max_size=60))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (read_subscription, read_assignment):
        try:
            read(data)
        except ProtocolError:
            pass
