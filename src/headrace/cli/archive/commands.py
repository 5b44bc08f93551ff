"""`headrace archive`: topics kept as Parquet files."""

from __future__ import annotations

from headrace.cli.common.lazy import group

archive = group(
    "archive",
    "Topics kept as Parquet files: make an archive, fill it, look at it, check it.",
    {
        "create": ("headrace.cli.archive.create:create", "Make an archive for topics."),
        "run": ("headrace.cli.archive.run:run_archive", "Archive what is new."),
        "status": ("headrace.cli.archive.status:status", "Show what is archived and what is not yet."),
        "verify": ("headrace.cli.archive.verify:verify", "Check an archive against its manifest and the log."),
    },
)
