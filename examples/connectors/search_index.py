"""A sink that keeps a search index: which rows have which words. `python search_index.py tea` looks for one.

The index and the positions of the topic are one file, which is replaced as a whole: a record counts exactly once.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.connect import ConfigOption, Sink, SinkRecord, SinkTask, TopicSchema
from headrace.model.topics import TopicPartition

WORD = re.compile(r"\w+")


class SearchIndex(Sink):
    summary = "Keeps a search index of one column in a file."
    options = (
        ConfigOption("file", "text", "The file of the index.", required=True),
        ConfigOption("text", "text", "The column whose words are looked for.", required=True),
    )

    def open(
        self, task: str, partitions: Sequence[TopicPartition], schemas: Mapping[str, TopicSchema]
    ) -> SinkTask:
        return SearchIndexTask(Path(self.config.text("file")), self.config.text("text"))


class SearchIndexTask(SinkTask):
    def __init__(self, path: Path, column: str) -> None:
        self._path = path
        self._column = column
        self._index = read_index(path)

    def positions(self) -> Mapping[TopicPartition, int]:
        stored: dict[str, int] = self._index["positions"]
        places = {place.rpartition("-"): offset for place, offset in stored.items()}
        return {TopicPartition(topic, int(partition)): offset for (topic, _, partition), offset in places.items()}

    def write(self, records: Sequence[SinkRecord], positions: Mapping[TopicPartition, int]) -> None:
        rows: dict[str, Any] = self._index["rows"]
        for record in records:
            key = (record.key or b"").decode()
            rows.pop(key, None)
            if record.value is not None:
                rows[key] = json.loads(record.value)[self._column]
        self._index["positions"].update({str(place): offset for place, offset in positions.items()})
        beside = self._path.with_suffix(".new")
        with beside.open("w", encoding="utf-8") as file:
            json.dump(self._index, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)


def read_index(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"rows": {}, "positions": {}}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def search(path: Path, word: str) -> list[str]:
    """The texts that have the word."""
    rows = read_index(path)["rows"].values()
    return sorted(text for text in rows if word.lower() in WORD.findall((text or "").lower()))


if __name__ == "__main__":
    print("\n".join(search(Path(os.environ.get("SHOP_SEARCH", "search.json")), sys.argv[1])))
