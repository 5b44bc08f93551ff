"""What an error of PostgreSQL means for a capture."""

from __future__ import annotations

import pytest

from headrace.connect.api import ConnectorError, TryAgain
from headrace.connect.postgres.replication import problem_of


def test_a_slot_that_is_in_use_may_pass_and_says_by_whom_it_probably_is() -> None:
    problem = problem_of("55006", 'ERROR:  replication slot "s" is active for PID 7')
    assert isinstance(problem, TryAgain)
    assert str(problem) == (
        'PostgreSQL says: replication slot "s" is active for PID 7 '
        "(another run of this connector? It can only run once at a time)"
    )


@pytest.mark.parametrize(("state", "kind"), [("42710", TryAgain), ("57P03", TryAgain), ("42501", ConnectorError)])
def test_what_may_pass_is_tried_again(state: str, kind: type[Exception]) -> None:
    assert isinstance(problem_of(state, "no"), kind)
