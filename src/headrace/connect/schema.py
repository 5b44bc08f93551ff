"""What the records of a topic look like, as a source reports it: columns with types, and the key among them.

The runtime stores it beside the positions when it changes. A sink that makes a table uses it.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Self

ColumnType = Literal[
    "boolean", "integer", "float", "decimal", "text", "bytes", "date", "time", "timestamp", "timestamptz", "json"
]
COLUMN_TYPES: tuple[ColumnType, ...] = (
    "boolean", "integer", "float", "decimal", "text", "bytes", "date", "time", "timestamp", "timestamptz", "json",
)  # fmt: skip


class ColumnSchema(NamedTuple):
    name: str
    type: ColumnType
    key: bool = False


class TopicSchema(NamedTuple):
    topic: str
    columns: tuple[ColumnSchema, ...]

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.key)

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "columns": [{"name": one.name, "type": one.type, "key": one.key} for one in self.columns],
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        columns = tuple(ColumnSchema(one["name"], one["type"], one["key"]) for one in stored["columns"])
        return cls(stored["topic"], columns)

    def changes_from(self, before: TopicSchema) -> list[str]:
        """In words, for a log: what was added, removed, and of another type."""
        old, new = ({one.name: one for one in schema.columns} for schema in (before, self))
        words = [f"{name} {new[name].type} was added" for name in new if name not in old]
        words += [f"{name} was removed" for name in old if name not in new]
        for name in new:
            if name in old and old[name].type != new[name].type:
                words.append(f"{name} is {new[name].type}, it was {old[name].type}")
        if self.key != before.key:
            words.append(f"the key is ({', '.join(self.key)}), it was ({', '.join(before.key)})")
        return words
