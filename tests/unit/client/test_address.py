"""Addresses as people write them."""

from __future__ import annotations

import pytest

from headrace.client.address import Address, parse_address, parse_bootstrap


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:9093", "localhost", 9093),
        ("broker.example.org", "broker.example.org", 9092),
        (" 10.0.0.1:1 ", "10.0.0.1", 1),
        ("[::1]:9093", "::1", 9093),
        ("[fe80::1%eth0]", "fe80::1%eth0", 9092),
        ("PLAINTEXT://host:9094", "host", 9094),
        ("kafka://host/", "host", 9092),
    ],
)
def test_one_address(text: str, host: str, port: int) -> None:
    assert parse_address(text) == Address(host, port)


@pytest.mark.parametrize("text", ["", ":9092", "host:port", "a b:1", "::1:9092", "host:1:2", "user@host:1"])
def test_nonsense_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="not of the form host:port"):
        parse_address(text)


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_ports_have_limits(port: str) -> None:
    with pytest.raises(ValueError, match=f"has the port {port}"):
        parse_address(f"host:{port}")


def test_a_list_keeps_its_order_and_drops_doubles() -> None:
    assert [str(one) for one in parse_bootstrap("b:1, a ,b:1,,[::1]:2")] == ["b:1", "a:9092", "[::1]:2"]
    with pytest.raises(ValueError, match="empty"):
        parse_bootstrap(" , ")
