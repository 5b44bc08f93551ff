"""Bytes in any form that can be sliced and read in place."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview
