"""Finds connectors: ours by name, those of installed packages by entry point, any class by its path.

A package offers connectors under the entry points `headrace.connectors`; `module:Class` and `file.py:Class` name
one that is not installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

from headrace.connect.api import Connector, ConnectorError
from headrace.model.users_code import UsersCode

ENTRY_POINTS = "headrace.connectors"
BUILT_IN: Mapping[str, str] = {
    "files-source": "headrace.connect.files.source:FilesSource",
    "postgres-source": "headrace.connect.postgres.source:PostgresSource",
    "table-sink": "headrace.connect.tables.sink:TableSink",
    "table-source": "headrace.connect.tables.source:TableSource",
}


def known_connectors() -> dict[str, str]:
    """Name -> module:Class of everything that can be named without a path."""
    installed = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    return {**installed, **BUILT_IN}


def find_connector(name: str, beside: Path | None = None) -> type[Connector]:
    """The class for a name, `module:Class` or `file.py:Class`; files are looked for in the folder `beside`."""
    place = known_connectors().get(name, name)
    module_name, colon, class_name = place.partition(":")
    if not colon:
        known = ", ".join(sorted(known_connectors()))
        raise ConnectorError(f"there is no connector {name}; there are {known}, and module:Class or file.py:Class")
    module = _from_file(module_name, beside) if module_name.endswith(".py") else _from_module(module_name)
    found = getattr(module, class_name, None)
    if not inspect.isclass(found) or not issubclass(found, Connector):
        raise ConnectorError(f"{place} is not a connector: {module_name} has no class {class_name} of that kind")
    return found


def _from_module(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        package = missing.partition(".")[0]
        if (extra := _EXTRAS.get(package)) is not None:
            raise ConnectorError(f"needs {package}: pip install 'headrace[{extra}]'") from None
        raise ConnectorError(f"there is no module {missing}: is it installed where this command runs?") from None


def _from_file(name: str, beside: Path | None) -> object:
    path = (beside or Path()) / name
    if not path.is_file():
        raise ConnectorError(f"there is no file {path}")
    module_name = f"headrace_connector_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    with UsersCode(path, ConnectorError):
        spec.loader.exec_module(module)
    return module


_EXTRAS = {"psycopg": "postgres", "pyarrow": "spark"}
"""Module -> the extra of headrace that installs it."""
