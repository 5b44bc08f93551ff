"""The name that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    by_lower = {one.lower(): one for one in known}
    if swapped := [one for one in by_lower if sorted(one) == sorted(name.lower())]:
        return by_lower[swapped[0]]  # the commonest typo, which the ratio below does not favour: form is from
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[near[0]] if near else None


def suggestion(name: str, known: Iterable[str], otherwise: str) -> str:
    """Advice: the nearest name, or the given text without one."""
    near = nearest(name, known)
    return otherwise if near is None else f"Did you mean {near}?"
