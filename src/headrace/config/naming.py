"""The operator's rules for new names of topics and groups (R-TOP-6): a pattern that the whole name must match.

Internal topics are not held to it, nor is anything that exists already: a rule that comes later breaks nobody. The
library is loaded with the first pattern, so a broker without rules starts without it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

MAX_PATTERN_LENGTH = 1024


def pattern_problem(pattern: str) -> str | None:
    """What is wrong with a pattern; the empty one, which allows all, is right."""
    import re2

    if len(pattern) > MAX_PATTERN_LENGTH:
        return f"it must not be longer than {MAX_PATTERN_LENGTH} characters"
    try:
        _compiled(pattern)
    except (re2.error, UnicodeEncodeError) as error:
        return f"it is not a regular expression: {error}"
    return None


def is_allowed(pattern: str, name: str) -> bool:
    return not pattern or _compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=16)
def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)
