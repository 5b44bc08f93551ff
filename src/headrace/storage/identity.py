"""Whose data a directory holds: `meta.properties`, and whether the cluster that it belongs to is still known."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from headrace.env import Disk
from headrace.storage.files import parent_of, read_file, write_atomically

FORMAT_LEVEL = 1
META_PROPERTIES = "meta.properties"
BROKER_PREFIX = "broker-"


class DirectoryRefused(Exception):
    """The directory cannot be used, and a person must decide what to do. The message says what and why."""


class Identity(NamedTuple):
    """An empty text is something that the file does not say."""

    cluster_id: str
    node_id: str
    directory_id: str
    format_level: str = str(FORMAT_LEVEL)


def read_identity(disk: Disk, directory: str) -> Identity | None:
    """None if the directory is new."""
    try:
        data = read_file(disk, f"{directory}/{META_PROPERTIES}")
    except FileNotFoundError:
        return None
    lines = (line.strip() for line in data.decode(errors="replace").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    properties = {name.strip(): value.strip() for name, _, value in pairs}
    return Identity(
        properties.get("cluster.id", ""),
        properties.get("node.id", ""),
        properties.get("directory.id", ""),
        properties.get("headrace.format", str(FORMAT_LEVEL)),
    )


def write_identity(disk: Disk, directory: str, identity: Identity) -> None:
    lines = [
        "#",
        "version=1",
        f"cluster.id={identity.cluster_id}",
        f"node.id={identity.node_id}",
        f"directory.id={identity.directory_id}",
        f"headrace.format={identity.format_level}",
        "",
    ]
    write_atomically(disk, f"{directory}/{META_PROPERTIES}", "\n".join(lines).encode())
    # The directory is new, and the one it lies in may be: what comes into it must not hang in the air.
    for place in (parent_of(directory), parent_of(parent_of(directory))):
        with suppress(PermissionError):
            disk.fsync_directory(place)


def check_identity(directory: str, identity: Identity, cluster_id: str, node_id: int) -> None:
    level = identity.format_level
    if not level.isdigit() or int(level) > FORMAT_LEVEL:
        raise DirectoryRefused(
            f"The data directory {directory} was written by a newer Headrace (format {level}); "
            f"this one reads formats up to {FORMAT_LEVEL}."
        )
    for name, found, expected in (
        ("cluster.id", identity.cluster_id, cluster_id),
        ("node.id", identity.node_id, str(node_id)),
    ):
        if found not in ("", expected):
            raise DirectoryRefused(f"The data directory {directory} belongs to {name}={found}, not {expected}.")


def check_store_is_there(disk: Disk, store: str, directories: Sequence[str]) -> None:
    """Refuse to create a new cluster beside the data of an old one: its topics would be orphaned."""
    if disk.exists(store) and disk.file_size(store):
        return
    for directory in directories:
        if not disk.exists(directory):
            continue
        for name in sorted(disk.list_directory(directory)):
            place = os.path.join(directory, name)
            if not name.startswith(BROKER_PREFIX) or not disk.exists(f"{place}/{META_PROPERTIES}"):
                continue
            identity = read_identity(disk, place)
            cluster_id = identity.cluster_id if identity is not None else ""
            raise DirectoryRefused(
                f"{store} is missing, but {place} holds data of cluster {cluster_id}: without that file "
                "its topics are unknown. Restore it, with the files beside it whose names start with its own. It "
                "belongs in the first directory of log.dirs: if that list was changed, put the old first one "
                f"first again. To start with an empty cluster instead, move {place} away."
            )
