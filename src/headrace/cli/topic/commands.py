"""`headrace topic`: everything about topics and the records in them."""

from __future__ import annotations

from headrace.cli.common.lazy import group

_ADMIN = "headrace.cli.topic.admin"
_SHOW = "headrace.cli.topic.show"

topic = group(
    "topic",
    "Topics: create, describe, change, produce, consume.",
    {
        "list": (f"{_SHOW}:list_command", "List the topics."),
        "create": (f"{_ADMIN}:create", "Create topics."),
        "describe": (f"{_SHOW}:describe", "Show topics: partitions, replicas, offsets, settings."),
        "produce": ("headrace.cli.topic.produce:produce", "Write records from arguments or standard input."),
        "consume": ("headrace.cli.topic.consume:consume", "Read records, from any point, in any format."),
        "copy": ("headrace.cli.topic.copy:copy", "Copy records to another topic or cluster."),
        "offsets": (f"{_SHOW}:offsets", "Show first and end offsets, or the offset at a time."),
        "alter": (f"{_ADMIN}:alter", "Change the settings of a topic."),
        "add-partitions": (f"{_ADMIN}:add_partitions", "Add partitions to a topic."),
        "trim": (f"{_ADMIN}:trim", "Delete the records before an offset."),
        "delete": (f"{_ADMIN}:delete", "Delete topics and their records."),
    },
)
