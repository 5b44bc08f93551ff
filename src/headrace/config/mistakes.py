"""What is wrong with a broker's settings: all mistakes at once, each with its place, in the order of the file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping

from headrace.config.setting import ConfigError

_SETTING = re.compile(r"[a-z][\w.-]*")


class Mistakes:
    """`places` says where in the file each setting stands, in the order of the file."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places
        self._order = {name: number for number, name in enumerate(places)}
        self._found: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._found)

    @contextlib.contextmanager
    def taken(self, about: str | None = None) -> Iterator[None]:
        """A ConfigError in the block is kept; `about` is its setting, otherwise the message begins with it."""
        try:
            yield
        except ConfigError as error:
            text = str(error)
            name = about or _named(text)
            place = f"{self._places[name]}: " if name in self._places else ""
            self._found.append((self._order.get(name, len(self._order)), place + text))

    def refuse(self) -> None:
        """ConfigError with every mistake so far, each in a line."""
        if self._found:
            raise ConfigError("\n".join(text for _, text in sorted(self._found, key=lambda one: one[0])))


def _named(text: str) -> str:
    found = _SETTING.match(text)
    name = found[0].rstrip(".") if found else ""
    return "listeners" if name == "listener" else name
