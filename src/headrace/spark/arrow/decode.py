"""Record batches to Arrow, without a Python object per record.

    for rows in decode(read_chunks(...), ["key", "value"], partition, start, end): ...

Only the columns asked for are built. Left out are control batches, aborted transactions (where the chunks name
them) and offsets outside [start, end). Timestamps that do not fit into microseconds become the largest that does.
An invalid batch is a KafkaError, usually CORRUPT_MESSAGE, that names the partition and the offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from headrace.model.topics import TopicPartition
from headrace.records.compression import MAX_DECOMPRESSED_BYTES
from headrace.spark.arrow.assembly import Assembler, index_run, lines_for
from headrace.spark.arrow.batches import RecordsChunk, runs
from headrace.spark.arrow.engine import Engine, engine
from headrace.spark.arrow.headers import Wanted

ROWS_PER_BATCH = 50_000
"""Where Spark reads fastest; more only takes memory."""


def decode(
    chunks: Iterable[RecordsChunk],
    columns: Sequence[str],
    partition: TopicPartition,
    start: int,
    end: int,
    *,
    rows_per_batch: int = ROWS_PER_BATCH,
    max_decompressed: int = MAX_DECOMPRESSED_BYTES,
    loops: Engine | None = None,
) -> Iterator[pa.RecordBatch]:
    """`loops` are those of this process unless given."""
    loops = loops or engine()
    lines = lines_for(columns)
    assembler = Assembler(loops, columns, partition, rows_per_batch)
    for chunk in chunks:
        # Offsets of earlier chunks are not returned again, wherever the batches of this one begin.
        wanted = Wanted(partition, max(start, chunk.start), end, max_decompressed)
        for run in runs(chunk, wanted):
            yield from assembler.add(index_run(loops, run, lines, wanted))
    yield from assembler.rest()
