"""`dynamic-mcp cluster`: the replicas of a service, and what they share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options, with_config_argument
from dynamic_mcp.errors import DynamicMcpError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from dynamic_mcp.cli.invocation import Invocation


def _complete_value(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the path of a value of the chart."""
    from dynamic_mcp.cli.suggestions import completion_items
    from dynamic_mcp.features.cluster.chart import list_values

    values = ((f"{each.path}=", each.description) for each in list_values() if not each.is_group)
    return completion_items(values, incomplete)


@click.group(short_help="Check the other replicas, and the store that they share.", subcommand_metavar="COMMAND")
def command() -> None:
    """Check the replicas of `settings.cluster`, and the store that they share."""


@command.command("check", short_help="Try what replicas need of each other and of their store.")
@click.argument("config", required=False, type=click.Path())
@common_options
def check(context: Invocation, config: str | None) -> int:
    """Ask all replicas for their names, and try all that they need of `settings.cluster.store`.

    That is each command with the user that the config names, messages, the round trip, TLS, clocks, persistence and
    eviction. It writes a few entries that expire. Exits with 2 on errors, and with 0 if there are only warnings.
    """
    from dynamic_mcp.cli.runner import run
    from dynamic_mcp.doctor.findings import exit_code
    from dynamic_mcp.features.cluster.probe import probe

    read = with_config_argument(context, config).read_config()
    if read.cluster is None:
        raise DynamicMcpError(
            f"`{read.file}` has no `settings.cluster`", hint="docs/scaling.md shows what replicas need"
        )
    findings = run(probe(read))
    if context.out.is_json:
        context.out.print_json(findings)
    else:
        from dynamic_mcp.cli.diagnosis import show_findings

        show_findings(context.out, findings)
    return exit_code(findings)


@command.command("render", short_help="Print the service as manifests for Kubernetes.")
@click.argument("config", required=False, type=click.Path())
@click.option("--name", default="dynamic-mcp", show_default=True, help="The name of the service and its objects.")
@click.option(
    "--values",
    "values_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Values of the Helm chart, as YAML.",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=_complete_value,
    help="Change one value: `gateway.replicas=3`.",
)
@click.option(
    "--secrets",
    "secrets_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A file with `NAME=value` lines, for the variables in the config.",
)
@click.option("--as-values", is_flag=True, help="Print the config and the values for the Helm chart instead.")
@common_options
def render(
    context: Invocation,
    config: str | None,
    *,
    name: str,
    values_file: Path | None,
    changes: tuple[str, ...],
    secrets_file: Path | None,
    as_values: bool,
) -> int:
    """Print manifests for Kubernetes: replicas of a gateway, and each server that is a program in a pod of its own.

    `kubectl apply -f -` takes them. They are those of the Helm chart. The Secrets among them have the values of
    variables in plain text.
    """
    from dynamic_mcp.features.cluster.chart import parse_documents, to_json
    from dynamic_mcp.features.cluster.render import render as render_config

    file = with_config_argument(context, config).config_path()
    rendering = render_config(file, name, values_file=values_file, changes=changes, secrets_file=secrets_file)
    for warning in rendering.warnings:
        context.out.say(f"warning: {warning}")
    if as_values:
        context.out.print_text(to_json(rendering.values, indent=2))
    elif context.out.is_json_requested:
        items = parse_documents(rendering.manifests)
        context.out.print_json({"apiVersion": "v1", "kind": "List", "items": items})
    else:
        context.out.print_text(rendering.manifests.rstrip("\n"))
    return 0


@command.command("reseal", short_help="Seal all that replicas share with the first of their keys.")
@click.argument("config", required=False, type=click.Path())
@common_options
def reseal(context: Invocation, config: str | None) -> int:
    """Seal with the first of `settings.cluster.keys` what other keys have sealed in the shared store.

    After it, the others can be removed from the config of all replicas. The replicas serve meanwhile. Exits with 1 if
    an entry cannot be opened with any of the keys.
    """
    from dynamic_mcp.cli.runner import run
    from dynamic_mcp.features.cluster.config import Cluster
    from dynamic_mcp.features.cluster.store import reseal

    read = with_config_argument(context, config).read_config()
    settings = read.cluster
    if not isinstance(settings, Cluster) or settings.store is None:
        raise DynamicMcpError(f"`{read.file}` has no `settings.cluster.store`", hint="docs/scaling.md shows one")
    done = run(reseal(settings, read.file.parent))
    if context.out.is_json:
        context.out.print_json(done)
    else:
        context.out.say(f"{done.resealed} of {done.found} entries were sealed with the first key")
        if done.unreadable:
            context.out.say(f"{done.unreadable} can be opened with none of `keys`, and are left alone")
    return 1 if done.unreadable else 0


@command.command("migrate", short_help="Take the files of this machine into the shared store, or back.")
@click.argument("config", required=False, type=click.Path())
@click.option("--back", "is_back", is_flag=True, help="Take what is in the store into the files of this machine.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Say what would be taken, and change nothing.")
@click.option("--overwrite", is_flag=True, help="Replace what differs where it is taken to.")
@common_options
def migrate(context: Invocation, config: str | None, *, is_back: bool, is_dry: bool, overwrite: bool) -> int:
    """Take what this machine keeps for a config into `settings.cluster.store`: tokens, logins and the like.

    Nothing is deleted where it was. What was revoked at either place ends at both. Anything else that differs stays,
    unless you say --overwrite. If it is interrupted, do it again. Exits with 1 if something was left because it
    differs.
    """
    from dynamic_mcp.cli.runner import run
    from dynamic_mcp.features.cluster.migrations import migrate_all

    read = with_config_argument(context, config).read_config()
    if getattr(read.cluster, "store", None) is None:
        raise DynamicMcpError(f"`{read.file}` has no `settings.cluster.store`", hint="docs/scaling.md shows one")
    with context.out.progress("migrating"):
        done = run(migrate_all(read, to_store=not is_back, overwrites=overwrite, is_dry=is_dry))
    columns = ("WHAT", "FOUND", "WOULD BE TAKEN" if is_dry else "TAKEN", "THERE ALREADY", "ENDED", "DIFFERENT")
    counts = [(each.found, each.taken, each.there, each.ended, len(each.different)) for each in done]
    rows = [[each.label, *map(str, numbers)] for each, numbers in zip(done, counts, strict=True)]
    context.out.print_rows(done, columns, rows)
    for each in done:
        for name in each.different:
            context.out.say(f"not taken, since another one is there: {each.label}, {name}")
        if each.note and each.taken:
            context.out.say(f"note: {each.label}: {each.note}")
    return 1 if any(each.different for each in done) else 0
