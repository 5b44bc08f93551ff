"""Lines of the audit trail: `audit event=...` and pairs that programs and people can read."""

from __future__ import annotations

import json
import logging
import re

audit = logging.getLogger("headrace.audit")
MAX_VALUE = 500
"""Characters of one value."""
_WORD = re.compile(r"[\w.:/*@+,=\-]+")


def pairs(event: str, **fields: object) -> str:
    """A line, without what is None."""
    shown = (f"{name}={_value(value)}" for name, value in fields.items() if value is not None)
    return f"audit event={event} {' '.join(shown)}"


def _value(value: object) -> str:
    text = str(value)
    if len(text) > MAX_VALUE:
        text = text[:MAX_VALUE] + "..."
    return text if _WORD.fullmatch(text) else json.dumps(text)
