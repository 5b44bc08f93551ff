"""`headrace connector init`: a template for your own connector, which can be run as it is."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import click

from headrace.cli.common.failure import FAILED, USAGE, CommandError
from headrace.cli.common.output import note
from headrace.connect.definition import NAME


@click.command()
@click.argument("name")
@click.option("--sink", "is_sink", is_flag=True, help="Write a sink, not a source.")
@click.option(
    "-d", "--directory", type=click.Path(file_okay=False, path_type=Path), default=Path(), help="Where to."
)
def init(name: str, is_sink: bool, directory: Path) -> None:
    """Write a template for a connector NAME: a Python file, a file that declares it, and a test that kills it."""
    if not NAME.fullmatch(name):
        raise CommandError(
            f"{name!r} is not a valid connector name.", USAGE, "Use lower case letters, digits, - and _."
        )
    kind = "sink" if is_sink else "source"
    module = re.sub(r"[^a-z0-9_]", "_", name)
    module = f"connector_{module}" if module[0].isdigit() else module
    written = {f"{module}.py": f"{kind}.py.txt", f"{name}.yaml": f"{kind}.yaml.txt"}
    if not is_sink:
        written[f"test_{module}.py"] = "test.py.txt"
    words = {"NAME": name, "MODULE": module, "CLASS": module.title().replace("_", "")}
    directory.mkdir(parents=True, exist_ok=True)
    for target in written:
        if (directory / target).exists():
            raise CommandError(f"{directory / target} already exists.", FAILED)
    for target, template in written.items():
        text = (files("headrace.connect.templates") / template).read_text(encoding="utf-8")
        text = re.sub(r"@([A-Z]+)@", lambda match: words[match[1]], text)
        (directory / target).write_text(text, encoding="utf-8")
        note(f"Wrote {directory / target}.")
    note(f"Run it with `headrace connector run {directory / name}.yaml`.")
