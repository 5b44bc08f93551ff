"""Cron schedules: `minute hour day-of-month month day-of-week`, as in crontab(5), in the machine's local time.

Fields have `*`, numbers, names (jan, mon), ranges `1-5`, steps `*/15`, lists `1,15`. If both days are restricted,
either may match. `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` are known.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_WORDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
MOST_DAYS = 366 * 8
"""Two leap years can be that far apart: beyond it a date does not exist."""


class Cron(NamedTuple):
    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    either_day: bool

    def has_day(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either_day else of_month and of_week

    def after(self, time: datetime) -> datetime:
        """The first minute after `time` that matches."""
        minute = time.replace(second=0, microsecond=0) + timedelta(minutes=1)
        for _ in range(MOST_DAYS):
            if self.has_day(minute):
                for hour in sorted(one for one in self.hours if one >= minute.hour):
                    first = minute.minute if hour == minute.hour else 0
                    found = [one for one in self.minutes if one >= first]
                    if found:
                        return minute.replace(hour=hour, minute=min(found))
            minute = minute.replace(hour=0, minute=0) + timedelta(days=1)
        raise ValueError(f"{self.text!r} never happens")


def is_cron(text: str) -> bool:
    return text.startswith("@") or len(text.split()) == len(_FIELDS)


def parse_cron(text: str) -> Cron:
    """ValueError says which field is wrong."""
    fields = _WORDS.get(text.strip().lower(), text).split()
    if len(fields) != len(_FIELDS):
        raise ValueError(f"{text!r} is not a cron schedule")
    minutes, hours, days, months, weekdays = (
        _field(one, *known) for one, known in zip(fields, _FIELDS, strict=True)
    )
    weekdays = frozenset(day % 7 for day in weekdays)
    both = not fields[2].startswith("*") and not fields[4].startswith("*")
    cron = Cron(text, minutes, hours, days, months, weekdays, both)
    cron.after(datetime(2024, 1, 1))
    return cron


def _field(text: str, name: str, least: int, most: int, names: tuple[str, ...]) -> frozenset[int]:
    found: set[int] = set()
    for part in text.lower().split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        try:
            begin = least if span == "*" else _number(first, names, least)
            end = most if span == "*" or (step and not dash) else _number(last, names, least) if dash else begin
            by = int(step) if step else 1
        except ValueError:
            raise ValueError(f"{part!r} is not a valid {name}") from None
        if not least <= begin <= end <= most or by < 1:
            raise ValueError(f"{part!r} is not a valid {name}: it is {least} to {most}")
        found.update(range(begin, end + 1, by))
    return frozenset(found)


def _number(text: str, names: tuple[str, ...], least: int) -> int:
    """A name counts from the first number of its field."""
    return names.index(text) + least if text in names else int(text)
