"""`dynamic-mcp audit`: shows, counts, exports and verifies the audit log."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dynamic_mcp.cli.options import common_options, with_config_argument
from dynamic_mcp.cli.suggestions import complete_group

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

    from dynamic_mcp.cli.invocation import Invocation
    from dynamic_mcp.features.audit.commands.lines import LineOptions
    from dynamic_mcp.features.audit.query import Subject

_SHOW = "show"
_FORMATS = ("csv", "ocsf", "jsonl")

_config_argument = click.argument("config", required=False, type=click.Path())
_dir_option = click.option(
    "--dir",
    "directory",
    metavar="DIR",
    type=click.Path(),
    help="The directory of the log, for example of a copy. Default: that of the config, else of the user.",
)
_dirs_option = click.option(
    "--dir",
    "directories",
    metavar="DIR",
    multiple=True,
    type=click.Path(),
    help="The directory of the log, for example of a copy; again for those of other replicas. Default: that of the"
    " config, else of the user.",
)


class _AuditGroup(click.Group):
    """Shows lines unless the first word is another command; a config is the only other word."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `show` if there is no command."""
        if args[:1] != [] and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            for word in args[1:]:
                if word in self.commands and not Path(word).exists() and not ctx.resilient_parsing:
                    raise click.UsageError(f"the command comes first: `dynamic-mcp audit {word} [OPTIONS] …`")
            args = [_SHOW, *args]
        elif not args and not ctx.resilient_parsing:
            args = [_SHOW]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the options of `show` too."""
        show = self.commands[_SHOW]
        items = super().shell_complete(ctx, incomplete)
        with click.Context(show, ctx, _SHOW, resilient_parsing=True) as shown:
            return [*items, *(each for each in show.shell_complete(shown, incomplete) if each.value != "--help")]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of `show`, then the commands."""
        self.commands[_SHOW].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def _line_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options that select lines, which the command gets as LineOptions."""

    @click.option("--since", metavar="TIME", help="Only from this time on: `1h`, `2d`, `2026-11-23`, or with a time.")
    @click.option("--until", metavar="TIME", help="Only before this time; a date is included.")
    @click.option("--who", metavar="GLOB", default="", help="Only of these subjects; the local user is `user`.")
    @click.option("--client", metavar="GLOB", default="", help="Only of these client programs.")
    @click.option("--group", metavar="GLOB", default="", shell_complete=complete_group, help="Only of these groups.")
    @click.option("--tool", metavar="GLOB", default="", help="Only of these tools, prompts or resource URIs.")
    @click.option("--event", metavar="GLOB", default="", help="Only these events: `call`, `read`, `auth.*`, …")
    @click.option("--decision", type=click.Choice(["allow", "ask", "deny"]), help="Only with this decision.")
    @click.option("--errors", is_flag=True, help="Only failed, denied and cancelled ones, or with an unknown result.")
    @click.option("--slow", metavar="TIME", help="Only those that took at least this long, e.g. `1s`.")
    @functools.wraps(function)
    def command(
        context: Invocation, /, *, config: str | None = None, **values: Any
    ) -> int:  # Any: as click parses them
        from dynamic_mcp.features.audit.commands.lines import LineOptions

        options = LineOptions(**{name: values.pop(name) for name in LineOptions.__struct_fields__ if name in values})
        return function(with_config_argument(context, config), options, **values)

    return command


@click.group(
    cls=_AuditGroup,
    short_help="Show who called what, and verify the record.",
    subcommand_metavar="[CONFIG] | COMMAND …",
)
def command() -> None:
    """Show the audit log: who called what, what was decided, and the result; the newest at the bottom.

    Shows the log of CONFIG, only with its lines, or of the config that serving would find, else of the user. Globs
    know `*` and `?`. When piped, each line is JSON, as it was recorded.
    """


@command.command(_SHOW, hidden=True)
@_config_argument
@click.option("-n", "count", metavar="COUNT", default="100", help="How many of the last lines, or all. Default: 100.")
@click.option("-f", "--follow", "follows", is_flag=True, help="Keep showing new lines until Ctrl-C.")
@_dirs_option
@common_options
@_line_options
def show(context: Invocation, options: LineOptions, *, directories: tuple[str, ...], follows: bool) -> int:
    """Show lines of the audit log."""
    from dynamic_mcp.features.audit.commands.lines import show_lines

    return show_lines(context, options, directories=directories, follows=follows)


@command.command("stats", short_help="Count calls and errors, by tool or by person.")
@_config_argument
@click.option(
    "--by", type=click.Choice(["person", "group", "tool"]), default="tool", help="What to count by. Default: tool."
)
@_dirs_option
@common_options
@_line_options
def stats(context: Invocation, options: LineOptions, *, directories: tuple[str, ...], by: Subject) -> int:
    """Show how much was called, how often it failed or was denied, how long it took, and how large the results were.

    Tokens are estimated as bytes / 4.
    """
    from dynamic_mcp.features.audit.commands.lines import show_call_stats

    return show_call_stats(context, options, directories=directories, by=by)


@command.command("export", short_help="Write lines as CSV, OCSF or JSON for another program.")
@_config_argument
@click.option("--format", "form", type=click.Choice(_FORMATS), required=True, help="The form of the lines.")
@click.option("-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="Where to. Default: stdout.")
@click.option("-f", "--force", "must_replace", is_flag=True, help="Replace the file if it exists.")
@click.option("-n", "count", metavar="COUNT", default="all", help="How many of the last lines. Default: all.")
@_dirs_option
@common_options
@_line_options
def export(
    context: Invocation,
    options: LineOptions,
    *,
    directories: tuple[str, ...],
    form: str,
    output: str | None,
    must_replace: bool,
) -> int:
    """Write lines for another program: as CSV, OCSF (API Activity), or as they are."""
    from dynamic_mcp.features.audit.commands.lines import export_lines

    return export_lines(
        context, options, directories=directories, form=form, output=output, must_replace=must_replace
    )


@command.command("verify")
@_config_argument
@click.option("--since", metavar="TIME", help="Only the days (UTC) since this time.")
@click.option("--key", "keys", metavar="FILE", multiple=True, type=click.Path(), help="A PEM file with a public key.")
@click.option("--seals", "seals_file", metavar="FILE", type=click.Path(), help="Seals that were kept elsewhere.")
@_dir_option
@common_options
def verify(
    context: Invocation,
    config: str | None,
    *,
    since: str | None,
    keys: tuple[str, ...],
    seals_file: str | None,
    directory: str | None,
) -> int:
    """Verify that the log is as it was written. Exits with 1 if something was changed or is missing.

    With --key, every seal must be signed with one of the keys. Lines that were cut off at the end show only with
    --seals.
    """
    from dynamic_mcp.features.audit.commands.verifying import verify_log

    context = with_config_argument(context, config)
    return verify_log(context, directory=directory, since=since, keys=keys, seals_file=seals_file)


@command.command("seal", short_help="Seal the days that have ended.")
@_config_argument
@click.option("--now", "is_now", is_flag=True, help="Print a seal of the log as it is now too, to keep elsewhere.")
@_dir_option
@common_options
def seal(context: Invocation, config: str | None, *, is_now: bool, directory: str | None) -> int:
    """Seal the days that have ended and have no seal yet, and print their seals.

    A serving proxy does so by itself. Seals are signed with `settings.audit.seal_key`.
    """
    from dynamic_mcp.features.audit.commands.verifying import seal_log

    return seal_log(with_config_argument(context, config), directory=directory, is_now=is_now)
