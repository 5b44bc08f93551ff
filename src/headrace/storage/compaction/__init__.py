"""Key compaction (R-LOG-5): of every key only the last record stays, under the offset it has always had.

    choice        which log is dirtiest, and from where to where it may be cleaned
    messages      what broker and worker tell each other, one JSON object a line
    worker        the work itself, in a process of its own: reads segments, writes `.cleaned` files
    offset_map    the last offset of each key, in bounded memory
    layout        where the records of a batch are
    batches       what becomes of one batch
    transactions  aborted data and the markers that end transactions
    output        a `.cleaned` segment being written
    swap          `.cleaned` to `.swap` to final: the broker's part, and what a start does with a crash's leftovers

A cleaning reads the dirty part of a log (everything after the last cleaning) into the offset map, then copies all
segments up to there without the records that the map has a later one for. The active segment is never touched.
"""
