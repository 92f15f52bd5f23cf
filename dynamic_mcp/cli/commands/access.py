"""`dynamic-mcp access`: show the effect of access rules."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options
from dynamic_mcp.cli.suggestions import complete_group, complete_prompt, complete_tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamic_mcp.cli.access_subject import AccessQuery
    from dynamic_mcp.cli.invocation import Invocation

_connect_option = click.option("--connect", is_flag=True, help="Connect to groups whose tools are not known yet.")


def _question_options(function: Callable[[Invocation, AccessQuery], int]) -> Callable[..., int | None]:
    """Add the options for subject and target to a command, which receives them as an AccessQuery."""

    @click.option(
        "--as", "subject", metavar="SUBJECT", help="Who asks: a name, or ISSUER:SUBJECT; `local` is the local user."
    )
    @click.option("--role", "roles", multiple=True, metavar="ROLE", help="A role of its credential.")
    @click.option("--claims", metavar="FILE", type=click.Path(), help="The claims of its token, as JSON.")
    @click.option("-g", "--group", required=True, metavar="GROUP", shell_complete=complete_group, help="The group.")
    @click.option("--tool", metavar="TOOL", shell_complete=complete_tool, help="The tool.")
    @click.option("--prompt", metavar="NAME", shell_complete=complete_prompt, help="The prompt.")
    @click.option("--resource", metavar="URI", help="The resource.")
    @click.option("--args", "arguments", metavar="JSON", help="The arguments, as a JSON object.")
    @common_options
    @functools.wraps(function)
    def command(
        context: Invocation,
        /,
        *,
        group: str,
        subject: str | None,
        roles: tuple[str, ...],
        claims: str | None,
        tool: str | None,
        prompt: str | None,
        resource: str | None,
        arguments: str | None,
    ) -> int:
        from dynamic_mcp.cli.access_subject import AccessQuery

        return function(context, AccessQuery(group, subject, roles, claims, tool, prompt, resource, arguments))

    return command


@click.group(short_help="Show who may use what, and why.", subcommand_metavar="COMMAND")
def command() -> None:
    """Show what the access rules of a config decide, without asking any server.

    Names of tools and prompts are those that the server gives them.
    """


@command.command("check")
@_question_options
def check(context: Invocation, question: AccessQuery) -> int:
    """Decide one request: the effect, the rule that decides, and why.

    Exits with 0 if it is allowed, with 1 if it is denied, and with 3 if a person must approve it.
    """
    from dynamic_mcp.cli.access_check import check_access

    return check_access(context, question)


@command.command("explain", short_help="Show every rule that a request meets, and the decision.")
@_question_options
def explain(context: Invocation, question: AccessQuery) -> int:
    """Do the same, with every rule of the roles and why it does or does not match."""
    from dynamic_mcp.cli.access_check import explain_access

    return explain_access(context, question)


@command.command("matrix")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@_connect_option
@common_options
def matrix(context: Invocation, *, as_csv: bool, connect: bool) -> int:
    """Show what each role may do with each tool that is known.

    `depends` is decided by the arguments of a call, or by more of a client than its roles.
    """
    from dynamic_mcp.cli.access_matrix import show_matrix

    return show_matrix(context, as_csv=as_csv, connects=connect)


@command.command("classify", short_help="Show which tools count as `read` or `write`, and why.")
@click.argument("group", required=False, shell_complete=complete_group)
@_connect_option
@common_options
def classify(context: Invocation, group: str | None, *, connect: bool) -> int:
    """Show which tools count as `read` and which as `write`, who says so, and why."""
    from dynamic_mcp.cli.access_matrix import show_classes

    return show_classes(context, group, connects=connect)
