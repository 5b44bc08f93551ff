"""`headrace completion`: what a shell needs to complete commands, options and topic names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_HEADRACE_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash   echo 'source <(headrace completion bash)' >> ~/.bashrc
    zsh    echo 'source <(headrace completion zsh)' >> ~/.zshrc
    fish   headrace completion fish > ~/.config/fish/completions/headrace.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, "headrace", VARIABLE).source().strip())
