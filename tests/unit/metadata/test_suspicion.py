"""What a broker that may have lost records puts into the store, beside what it said before."""

from __future__ import annotations

import pytest

from headrace.coordination.contract import Create, Put, TreeNode
from headrace.metadata.image import BrokerImage
from headrace.metadata.layout import decode_broker, decode_partitions, encode_broker, encode_partitions
from headrace.metadata.registration import MAX_NAMED_PARTITIONS, _suspicion
from headrace.model.topics import TopicId

ONE, OTHER = (TopicId(b"1" * 16), 0), (TopicId(b"2" * 16), 3)


def test_the_first_time() -> None:
    assert _suspicion(7, None, []) == [Create("/brokers/suspects/7", b"")]
    assert _suspicion(7, None, [ONE]) == [Create("/brokers/suspects/7", encode_partitions([ONE]))]


def test_too_many_are_all() -> None:
    many = [(TopicId(bytes(16)), index) for index in range(MAX_NAMED_PARTITIONS + 1)]
    assert _suspicion(7, None, many) == [Create("/brokers/suspects/7", b"")]


def test_what_was_said_before_still_holds() -> None:
    assert _suspicion(7, TreeNode(b"", 2), [ONE]) == []
    (put,) = _suspicion(7, TreeNode(encode_partitions([ONE]), 2), [OTHER])
    assert isinstance(put, Put)
    assert decode_partitions(TreeNode(put.value, 3)) == {ONE, OTHER}
    assert _suspicion(7, TreeNode(encode_partitions([ONE]), 2), []) == [Put("/brokers/suspects/7", b"", 2)]


@pytest.mark.parametrize(
    ("node", "suspect", "lacking"),
    [
        (None, False, frozenset()),
        (TreeNode(b"", 0), True, frozenset()),
        (TreeNode(encode_partitions([ONE]), 0), True, frozenset({ONE})),
    ],
)
def test_it_is_read(node: TreeNode | None, suspect: bool, lacking: frozenset[tuple[TopicId, int]]) -> None:
    found = decode_broker(7, TreeNode(encode_broker(BrokerImage(7, 1, ()), "session"), 0), node)
    assert (found.suspect, found.lacking) == (suspect, lacking)
