"""What Produce and Fetch are given behind the gate has all that they use of the whole."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import headrace
from headrace.server.authorization.hot import PermittedReplicas


def test_the_view_of_partitions_has_all_that_the_hot_handlers_use() -> None:
    """A follower's Fetch asked it for the limit on what is sent, and ended its connection: nothing was copied."""
    package = Path(headrace.__file__).parent
    sources = [
        *(package / "services" / "fetching").glob("*.py"),
        *(
            package / "handlers" / f"{name}.py"
            for name in ("fetch", "produce", "appending", "transactional_produce")
        ),
    ]
    used = set(re.findall(r"\b_?replicas\.(\w+)", "".join(source.read_text() for source in sources)))
    assert {"by_name", "why_not_leader", "sending_limit"} <= used
    view = PermittedReplicas(cast(Any, MagicMock()), MagicMock(), lambda name: True)
    assert not [name for name in used if not hasattr(view, name)]
