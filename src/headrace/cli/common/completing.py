"""Shell completion besides topics and groups: settings with their values, and pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headrace.config.setting import Setting


def complete_topic_settings(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from headrace.config.topic_settings import TOPIC_SETTINGS

    return _settings(TOPIC_SETTINGS, param, incomplete)


def complete_broker_settings(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from headrace.config.broker_settings import BROKER_SETTINGS

    return _settings(BROKER_SETTINGS, param, incomplete)


def complete_pipelines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of the pipelines that have run on this machine."""
    from headrace.spark.pipelines.running.run_files import known_pipelines

    return [files.name for files in known_pipelines() if files.name.startswith(incomplete)]


def _settings(known: Mapping[str, Setting], param: click.Parameter, incomplete: str) -> list[str]:
    """`name=`, and after the sign the values it may have; only the name where none is given."""
    sign = "=" if "=" in (getattr(param, "metavar", None) or "") else ""
    name, given, value = incomplete.partition("=")
    if not given:
        return [f"{one}{sign}" for one in known if one.startswith(incomplete)]
    setting = known.get(name)
    if setting is None:
        return []
    values = setting.allowed or (("true", "false") if setting.type.name == "BOOLEAN" else ())
    return [f"{name}={one}" for one in values if one.startswith(value)]
