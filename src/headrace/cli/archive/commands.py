"""`headrace archive`: topics kept as Parquet files."""

from __future__ import annotations

from headrace.cli.common.lazy import group

archive = group(
    "archive",
    "Archive topics as Parquet files: create, fill, inspect and verify archives.",
    {
        "create": ("headrace.cli.archive.create:create", "Create an archive of topics."),
        "run": ("headrace.cli.archive.run:run_archive", "Archive new records."),
        "status": ("headrace.cli.archive.status:status", "Show what has been archived and what has not."),
        "verify": ("headrace.cli.archive.verify:verify", "Verify an archive against its manifest and the log."),
    },
)
