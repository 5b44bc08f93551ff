"""Secrets are in files: everybody on a machine can read the command lines of its processes."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.config.setting import ConfigError


def refuse_in_flags(sources: Mapping[str, str], *endings: str) -> None:
    """Settings that end so hold secrets. `sources` says where each setting comes from."""
    for name, source in sources.items():
        if source == "flag" and name.endswith(endings):
            raise ConfigError(
                f"{name} is a secret, and everybody on this machine can read a command line: "
                "write it in the settings file"
            )
