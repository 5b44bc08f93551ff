"""One file per API. Importing a handler's module registers it; `load_all` imports every one."""

from __future__ import annotations


def load_all() -> None:
    """Fill the registry. The folder listing is the list of APIs."""
    from importlib import import_module
    from pkgutil import iter_modules

    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
