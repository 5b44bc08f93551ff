"""The rules of the payments pipeline: a row in, any number of rows out."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

CURRENCIES = {"eur": "EUR", "€": "EUR", "usd": "USD", "$": "USD"}


def payments(row: dict[str, Any]) -> list[dict[str, Any]] | dict[str, Any] | None:
    """One payment for each line of a bill, or for the whole; none for a test. What it raises is a dead letter."""
    if row["provider"] == "test":
        return None
    made = {
        "provider": row["provider"],
        "at": row["at"],
        "currency": CURRENCIES[row["currency"].lower()],
    }
    if row["lines"]:
        return [made | {"cents": cents(text), "line": number} for number, text in enumerate(row["lines"], start=1)]
    return made | {"cents": cents(row["amount"])}


def cents(text: str) -> int:
    """Of "12.50" or "12,50"."""
    whole = Decimal(text.replace(",", ".")) * 100
    if whole != int(whole):
        raise ValueError(f"{text} is not a sum of whole cents")
    return int(whole)
