"""A real broker under fuzz."""

from __future__ import annotations

import pytest

from headrace.testing.fuzz_broker import fuzz_broker

BROKER_FRAMES = 1_500


@pytest.mark.headrace_only
def test_a_broker_under_fuzz_lives_and_a_good_client_sees_nothing() -> None:
    assert "answered" in fuzz_broker(seed=5, count=BROKER_FRAMES)
