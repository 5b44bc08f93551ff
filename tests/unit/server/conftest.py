"""Every test of the server's own code runs on both loops: the usual one and that of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from headrace.server.direct_loop import DirectLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"usual": asyncio.new_event_loop, "direct": DirectLoop}
