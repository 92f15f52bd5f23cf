"""`dynamic-mcp call GROUP TOOL`: run one tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import asking_options, save_option, timeout_option
from dynamic_mcp.cli.suggestions import complete_argument, complete_group, complete_tool

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Run a tool.")
@click.argument("group", shell_complete=complete_group)
@click.argument("tool", shell_complete=complete_tool)
@click.argument("arguments", nargs=-1, metavar="[JSON | key=value … | -]", shell_complete=complete_argument)
@click.option("--select", metavar="JSONPATH", help="Print only this part of the result, e.g. `$.items[*].name`.")
@timeout_option
@save_option
@asking_options
def command(
    context: Invocation,
    group: str,
    tool: str,
    arguments: tuple[str, ...],
    *,
    select: str | None,
    timeout: str | None,
    save: str | None,
) -> int:
    """Run TOOL of GROUP and print its result.

    Arguments are a JSON object, `-` for a JSON object on stdin, or key=value pairs, typed by the tool's schema:

    \b
    key=value     a value; repeat the key for a list
    a.b=value     a member of an object
    key:=JSON     any JSON
    key=@FILE     the text of a file; key:=@FILE its JSON
    key=\\@text    a text that begins with @

    Text is printed as text, structured content as JSON, the output of a command line program as it is; images and
    other files are saved. --json prints the whole result. An error result goes to stderr, with exit code 5. Ctrl-C
    cancels the call. If the call needs approval, you are asked at the terminal.

    \b
    dynamic-mcp call time get_current_time timezone=Europe/Oslo
    dynamic-mcp call github create_issue '{"title": "It broke", "labels": ["bug"]}'
    """
    from dynamic_mcp.cli.tool_call import CallOptions, call_tool

    return call_tool(context, CallOptions(group, tool, arguments, select=select, timeout=timeout, save=save))
