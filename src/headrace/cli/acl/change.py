"""`headrace acl list|add|remove`: access rules, as in Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import click

from headrace.cli.common.failure import NOT_FOUND, CommandError
from headrace.cli.common.options import Target, cluster_options, confirm, format_option, yes_option
from headrace.cli.common.output import Column, Row, emit_rows, note, plural
from headrace.cli.common.session import conclude, run
from headrace.client.acls import AclBinding, AclQuery, create_acls, delete_acls, describe_acls
from headrace.client.cluster import Cluster
from headrace.security.acl import ANY_PRINCIPAL, CLUSTER_NAME, WILDCARD, Operation, Pattern, Permission, Resource

F = TypeVar("F", bound=Callable[..., Any])

OPERATIONS = {operation.name.lower().replace("_", "-"): operation for operation in Operation if operation > 1}
_OF_ALL = (Operation.ALL, Operation.DESCRIBE)
_OF_SETTINGS = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
_OF_NAMES = (*_OF_ALL, *_OF_SETTINGS, Operation.READ, Operation.DELETE)
MEANINGFUL: dict[Resource, tuple[Operation, ...]] = {
    Resource.TOPIC: (*_OF_NAMES, Operation.WRITE, Operation.CREATE, Operation.ALTER),
    Resource.GROUP: _OF_NAMES,
    Resource.TRANSACTIONAL_ID: (*_OF_ALL, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    Resource.CLUSTER: (
        *_OF_ALL,
        *_OF_SETTINGS,
        Operation.CREATE,
        Operation.ALTER,
        Operation.CLUSTER_ACTION,
        Operation.IDEMPOTENT_WRITE,
    ),
}
"""What can be done with each type of resource: a rule about anything else would be kept and never count."""
_KINDS = {
    Resource.TOPIC: "topics",
    Resource.GROUP: "groups",
    Resource.TRANSACTIONAL_ID: "transactional ids",
    Resource.CLUSTER: "the cluster",
}
COLUMNS = (
    Column("principal", "PRINCIPAL"),
    Column("permission", "PERMISSION"),
    Column("operation", "OPERATION"),
    Column("resource", "RESOURCE"),
    Column("name", "NAME"),
    Column("pattern", "PATTERN"),
    Column("host", "HOST"),
)


class Wanted(NamedTuple):
    """What the options say."""

    principals: tuple[str, ...]
    resources: tuple[tuple[Resource, str], ...]
    pattern: Pattern | None
    operations: tuple[Operation, ...]
    host: str | None
    permission: Permission | None


def rule_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which rules are meant, given to the command as a `Wanted`."""
    options = (
        click.option("-u", "--principal", "principals", multiple=True, metavar="USER", help="The user."),
        click.option(
            "-t", "--topic", "topics", multiple=True, metavar="NAME", help="A topic, or '*' for all topics."
        ),
        click.option("-g", "--group", "groups", multiple=True, metavar="NAME", help="A consumer group."),
        click.option("--transactional-id", "transactions", multiple=True, metavar="NAME"),
        click.option("--cluster", "on_cluster", is_flag=True, help="The cluster itself."),
        click.option("--prefix", is_flag=True, help="Treat names as prefixes."),
        click.option(
            "-o",
            "--operation",
            "operations",
            multiple=True,
            type=click.Choice(sorted(OPERATIONS)),
            metavar="WHAT",
            help="read, write, create, describe, ...: may be repeated.",
        ),
        click.option("--host", help="An address, or a range such as 10.0.0.0/8."),
        click.option("--deny", is_flag=True, help="Deny instead of allow."),
    )

    def command(
        target: Target,
        principals: tuple[str, ...],
        topics: tuple[str, ...],
        groups: tuple[str, ...],
        transactions: tuple[str, ...],
        on_cluster: bool,
        prefix: bool,
        operations: tuple[str, ...],
        host: str | None,
        deny: bool,
        **rest: Any,
    ) -> Any:
        kinds = ((Resource.TOPIC, topics), (Resource.GROUP, groups), (Resource.TRANSACTIONAL_ID, transactions))
        resources = [(kind, name) for kind, names in kinds for name in names]
        if on_cluster:
            resources.append((Resource.CLUSTER, CLUSTER_NAME))
        wanted = Wanted(
            tuple(name if ":" in name else f"User:{name}" for name in principals),
            tuple(resources),
            Pattern.PREFIXED if prefix else None,
            tuple(OPERATIONS[name] for name in operations),
            host,
            Permission.DENY if deny else None,
        )
        return function(target, wanted, **rest)

    command.__doc__ = function.__doc__
    command.__name__ = function.__name__
    decorated: Callable[..., Any] = command
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


@click.command("list")
@format_option
@cluster_options
@rule_options
def list_command(target: Target, wanted: Wanted, format: str) -> None:
    """List the access rules. For a topic: all rules that apply to it, including prefix and '*' rules."""

    async def work(cluster: Cluster) -> list[AclBinding]:
        found: dict[AclBinding, None] = {}
        for query in _queries(wanted, Pattern.MATCH):
            found.update(dict.fromkeys(await describe_acls(cluster, query)))
        return sorted(found)

    rows = [_row(acl) for acl in run(target, work)]
    emit_rows(rows, COLUMNS, format, empty="No access rules match.")


@click.command()
@cluster_options
@rule_options
def add(target: Target, wanted: Wanted) -> None:
    """Allow (or with --deny forbid) operations on resources.

    headrace acl add -u alice -t orders -o read -g billing
    """
    if not (wanted.resources and wanted.operations):
        raise click.UsageError(
            "Give --operation and a resource: --topic, --group, --transactional-id or --cluster."
        )
    if not wanted.principals:
        raise click.UsageError(f"Give --principal; everybody is --principal {ANY_PRINCIPAL!r}.")
    _check_meaning(wanted)
    acls = [
        AclBinding(
            kind,
            name,
            Pattern.LITERAL if kind == Resource.CLUSTER else wanted.pattern or Pattern.LITERAL,
            principal,
            wanted.host or WILDCARD,
            operation,
            wanted.permission or Permission.ALLOW,
        )
        for principal in wanted.principals
        for kind, name in wanted.resources
        for operation in wanted.operations
        if operation in MEANINGFUL[kind]
    ]
    outcomes = run(target, lambda cluster: create_acls(cluster, acls))
    conclude({_text(acl): error for acl, error in zip(acls, outcomes, strict=True)}, "rule")
    for acl in acls:
        note(f"{_text(acl)}.")


def _check_meaning(wanted: Wanted) -> None:
    """Each operation is one of some resource, each resource gets a rule, and no prefix is a star."""
    if wanted.pattern == Pattern.PREFIXED and any(name == WILDCARD for _, name in wanted.resources):
        raise click.UsageError("'*' with --prefix means names that begin with a star: leave out --prefix.")
    kinds = {kind for kind, _ in wanted.resources}
    for kind in kinds:
        if not set(wanted.operations) & set(MEANINGFUL[kind]):
            raise click.UsageError(_meaningless(wanted.operations[0], (kind,)))
    for operation in wanted.operations:
        if not any(operation in MEANINGFUL[kind] for kind in kinds):
            raise click.UsageError(_meaningless(operation, sorted(kinds)))


def _meaningless(operation: Operation, kinds: Iterable[Resource]) -> str:
    known = {one for kind in kinds for one in MEANINGFUL[kind]}
    named = " and ".join(_KINDS[kind] for kind in kinds)
    possible = ", ".join(name for name, one in sorted(OPERATIONS.items()) if one in known)
    return f"{_word(operation)} means nothing for {named}. Possible operations: {possible}."


@click.command()
@yes_option
@cluster_options
@rule_options
def remove(target: Target, wanted: Wanted, yes: bool) -> None:
    """Remove the access rules that match all given options."""
    if wanted == Wanted((), (), None, (), None, None):
        raise click.UsageError("Give at least --principal or a resource.")
    queries = list(_queries(wanted, Pattern.LITERAL))

    async def find(cluster: Cluster) -> list[AclBinding]:
        return [acl for query in queries for acl in await describe_acls(cluster, query)]

    async def work(cluster: Cluster) -> list[AclBinding]:
        return [acl for query in queries for acl in await delete_acls(cluster, query)]

    found = run(target, find)
    if not found:
        raise CommandError("No access rules match.", NOT_FOUND, "`headrace acl list` shows all rules.")
    confirm("\n".join(_text(acl) for acl in found) + f"\nRemove {plural(len(found), 'rule')}?", yes)
    for acl in run(target, work):
        note(f"Removed: {_text(acl)}.")


def _queries(wanted: Wanted, pattern: Pattern) -> Iterable[AclQuery]:
    """One for each combination; `pattern` is how a name is meant if nothing else is said."""
    permission = wanted.permission or Permission.ANY
    for principal in wanted.principals or (None,):
        for kind, name in wanted.resources or ((Resource.ANY, None),):
            for operation in wanted.operations or (Operation.ANY,):
                named = Pattern.ANY if name is None else wanted.pattern or pattern
                yield AclQuery(kind, name, named, principal, wanted.host, operation, permission)


def _row(acl: AclBinding) -> Row:
    return {
        "principal": acl.principal,
        "permission": Permission(acl.permission).name.lower(),
        "operation": _word(acl.operation),
        "resource": Resource(acl.resource_type).name.lower().replace("_", "-"),
        "name": acl.resource_name,
        "pattern": Pattern(acl.pattern_type).name.lower(),
        "host": acl.host,
    }


def _word(operation: int) -> str:
    return Operation(operation).name.lower().replace("_", "-")


def _text(acl: AclBinding) -> str:
    kind = Resource(acl.resource_type).name.lower().replace("_", " ")
    what = kind if acl.resource_type == Resource.CLUSTER else f"{kind} {acl.resource_name}"
    if acl.pattern_type == Pattern.PREFIXED:
        what = f"{kind}s that begin with {acl.resource_name}"
    may = "may" if acl.permission == Permission.ALLOW else "may not"
    where = "" if acl.host == WILDCARD else f" from {acl.host}"
    return f"{acl.principal} {may} {_word(acl.operation)} on {what}{where}"
