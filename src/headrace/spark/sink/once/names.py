"""The names of a sink and its transactions.

    hr.sink.{sink}                          the driver: its epoch is the fence token
    hr.sink.{sink}.{partition}.{attempt}    a task; used again by the same task of the next batch

A sink's id is the option `sinkId`, or made of the checkpoint's location: the same for every run of a query. Spark
does not tell a task of the attempt of its stage; that is no harm, since no task ends what another has open.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable

PREFIX = "hr.sink."
LEGAL_SINK_ID = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)
_SPECIAL = re.compile(r"[^A-Za-z0-9_-]+")
_LOCAL = re.compile(r"file:/*(?=/)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_READABLE_CHARACTERS = 40
_HASH_CHARACTERS = 12


def driver_id(sink_id: str) -> str:
    return PREFIX + sink_id


def task_id(sink_id: str, partition: int, attempt: int) -> str:
    return f"{PREFIX}{sink_id}.{partition}.{attempt}"


def tasks_of(sink_id: str, transactional_ids: Iterable[str]) -> list[str]:
    """The ids of this sink's tasks, without those of a sink whose name begins with this one's."""
    shape = re.compile(re.escape(driver_id(sink_id)) + r"\.\d+\.\d+")
    return [one for one in transactional_ids if shape.fullmatch(one)]


def sink_of(transactional_id: str) -> str | None:
    """The sink of a task's transactional id; None if it is not one."""
    found = re.fullmatch(re.escape(PREFIX) + r"(?P<sink>.+)\.\d+\.\d+", transactional_id)
    return found["sink"] if found else None


def local_path(location: str) -> str | None:
    """The directory on this machine that a checkpoint's location means, or None if it is elsewhere."""
    if _LOCAL.match(location):
        return _LOCAL.sub("", location, count=1)
    return None if _SCHEME.match(location) else os.path.abspath(location)


def sink_id_of(location: str) -> str:
    """The id of a sink whose query has its checkpoint there."""
    whole = (local_path(location) or location).rstrip("/")
    readable = _SPECIAL.sub("-", whole.rpartition("/")[2]).strip("-")[:_READABLE_CHARACTERS]
    digest = hashlib.sha256(whole.encode()).hexdigest()[:_HASH_CHARACTERS]
    return f"{readable}-{digest}" if readable else digest
