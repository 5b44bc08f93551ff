"""What the kernels read and write: plain arrays of numbers, so that compiled and pure code can share them.

Bytes never move while records are looked at. A *field* (a key, a value) is a position in a buffer and a length, -1
for null. A *table* is an int64 array with one line per number, `table[line, row]`; a line that was not requested
is missing, and `lines` says where each number is, NOT_ASKED if nowhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
OffsetArray = NDArray[np.int32]

NULL_LENGTH = -1
NOT_ASKED = -1

SECTION_START = 0
SECTION_END = 1
SECTION_RECORDS = 2
SECTION_BASE_OFFSET = 3
SECTION_BASE_TIMESTAMP = 4
SECTION_APPEND_TIME = 5
SECTION_APPEND_TIMESTAMP = 6
SECTION_NUMBERS = 7
"""One line per record batch: where its records are in the buffer, how many, and what their deltas add to.
APPEND_TIME is 1 if all of its records have the one timestamp APPEND_TIMESTAMP (LogAppendTime)."""

ROW_OFFSET = 0
ROW_TIMESTAMP = 1
ROW_APPEND_TIME = 2
ROW_KEY_AT = 3
ROW_KEY_LENGTH = 4
ROW_VALUE_AT = 5
ROW_VALUE_LENGTH = 6
ROW_HEADERS_AT = 7
ROW_HEADER_COUNT = 8
ROW_NUMBERS = 9
"""What is found about a record. Timestamps are in microseconds here, as Arrow has them."""

HEADER_NAME_AT = 0
HEADER_NAME_LENGTH = 1
HEADER_VALUE_AT = 2
HEADER_VALUE_LENGTH = 3
HEADER_NUMBERS = 4

NEW_KEY_AT = 0
NEW_KEY_LENGTH = 1
NEW_VALUE_AT = 2
NEW_VALUE_LENGTH = 3
NEW_HEADERS_FIRST = 4
NEW_HEADER_COUNT = 5
NEW_NUMBERS = 6
"""A row that becomes a record. Its headers are columns of a table of their own; timestamps come beside it."""

MAX_MILLISECONDS = (2**63 - 1) // 1000
"""Timestamps beyond it do not fit into Arrow's microseconds and stop there."""
