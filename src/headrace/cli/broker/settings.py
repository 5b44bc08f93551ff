"""A broker's settings as the command line gives them: file, environment, flags."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import click

from headrace.cli.broker.config_file import ConfigFile, read_config_file
from headrace.cli.broker.logs import FORMAT_VARIABLE, LEVEL_VARIABLE
from headrace.cli.common.failure import NOT_FOUND
from headrace.cli.common.options import BOOTSTRAP_VARIABLE, CLIENT_CONFIG_VARIABLE
from headrace.config.broker_config import BrokerConfig
from headrace.config.setting import ConfigError

NOT_SETTINGS = frozenset(
    {
        BOOTSTRAP_VARIABLE,
        CLIENT_CONFIG_VARIABLE,
        FORMAT_VARIABLE,
        LEVEL_VARIABLE,
        "HEADRACE_STATE_DIR",
        "HEADRACE_CACHE_DIR",
        "HEADRACE_NUMBA",
    }
)
"""Headrace's variables for clients, for pipelines, or for the command itself."""


class SettingsError(click.ClickException):
    """A setting that cannot be accepted: a usage error, but one that the command's synopsis does not explain."""

    exit_code = 2


class MissingFile(click.ClickException):
    """The file does not exist; reported as by every command."""

    exit_code = NOT_FOUND


def load_config(file: Path | None, flags: Mapping[str, str]) -> BrokerConfig:
    environment = {name: value for name, value in os.environ.items() if name not in NOT_SETTINGS}
    if file is not None and not file.exists():
        raise MissingFile(f"Cannot read {file}: {os.strerror(errno.ENOENT)}.")
    try:
        pairs, places = read_config_file(file) if file else ConfigFile({}, {})
        return BrokerConfig.build(pairs, environment, flags, socket.getfqdn, places)
    except ConfigError as error:
        raise SettingsError(str(error)) from None
