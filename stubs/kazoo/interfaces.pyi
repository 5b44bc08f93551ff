from collections.abc import Callable
from typing import Any

class IAsyncResult:
    value: Any
    exception: BaseException | None
    def rawlink(self, callback: Callable[[IAsyncResult], object]) -> None: ...
