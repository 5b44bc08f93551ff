"""Many partitions, few lines in the log."""

from __future__ import annotations

import logging

import pytest

from headrace.model.few_lines import SHOWN, TOPICS, FewLines
from headrace.model.topics import TopicPartition

logger = logging.getLogger("headrace.test")


def test_some_are_shown_and_the_others_counted(caplog: pytest.LogCaptureFixture) -> None:
    lines = FewLines(logger, logging.WARNING, "have no leader")
    with caplog.at_level(logging.DEBUG, "headrace.test"):
        for index in range(SHOWN + 40):
            lines.add(TopicPartition("t", index), "%s has no leader: %s", [1])
        lines.add(TopicPartition("u", 0), "%s has no leader: %s", [1])
        lines.end()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings[0] == "t-0 has no leader: [1]"
    assert len(warnings) == SHOWN + 1
    assert warnings[-1] == "41 more partitions have no leader: 40 of t, 1 of u"
    assert "u-0 has no leader: [1]" in [record.getMessage() for record in caplog.records]


def test_few_are_all_shown_and_many_topics_not_all_named(caplog: pytest.LogCaptureFixture) -> None:
    lines = FewLines(logger, logging.WARNING, "have no leader")
    for index in range(SHOWN):
        lines.add(TopicPartition("t", index), "%s has no leader")
    lines.end()
    assert len(caplog.records) == SHOWN
    for index in range(TOPICS + 2):
        lines.add(TopicPartition(f"topic-{index}", 0), "%s has no leader")
    lines.end()
    assert caplog.records[-1].getMessage().endswith(", 2 more topics")
