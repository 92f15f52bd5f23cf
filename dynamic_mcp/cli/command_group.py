"""The click group of all commands: loads a command when it is used, and reports unknown words."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import click

from dynamic_mcp import __version__
from dynamic_mcp.cli.command_names import command_names, is_command, looks_like_a_command, sections
from dynamic_mcp.config.location import split_profile
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments, NotFound
from dynamic_mcp.features import table

_EPILOG = """\
Exit codes: 0 success; 1 failure; 2 the config or the command line is wrong, or there is no such name;
3 nothing was sent: a rule refuses it, it needs approval, its definition is held back, or it cannot be recorded;
4 login needed; 5 the server failed, or its tool reported an error; 130 interrupted.

Every command has --help. Data goes to stdout, as JSON when piped; messages go to stderr.
"""


class _CommandGroup(click.Group):
    """Loads commands when they are used. A first word that is not a command is the config to serve."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return command_names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in command_names():
            return None
        command = _load(cmd_name).command
        assert isinstance(command, click.Command)
        return _require_utf8(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in sections().items():
            with formatter.section(title):
                found = [(name, self.get_command(ctx, name)) for name in names]
                formatter.write_dl([(name, each.get_short_help_str(70)) for name, each in found if each])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `serve` if there is no command."""
        if not ctx.resilient_parsing and not self._has_command(ctx, args):
            if args and looks_like_a_command(args[0]):
                _refuse_unknown(args[0], self.list_commands(ctx))
            words = args[1:] if (rest := split_profile(args)[0]) is args else rest  # a profile can have any name
            for word in words if args and args[0].startswith("-") else ():
                if is_command(word) and not Path(word).exists():
                    raise click.UsageError(f"the command comes first: `dynamic-mcp {word} [OPTIONS] …`")
            args = ["serve", *args]
        return super().parse_args(ctx, args)

    def _has_command(self, ctx: click.Context, args: list[str]) -> bool:
        options = {name for param in self.get_params(ctx) for name in param.opts}
        return bool(args) and (args[0] in self.list_commands(ctx) or args[0] in options)


@click.group(
    cls=_CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="[CONFIG] | COMMAND …",
    epilog=_EPILOG,
)
@click.version_option(__version__, "-V", "--version", prog_name="dynamic-mcp", message="%(prog)s %(version)s")
def commands() -> None:
    """One MCP server in front of many: a model sees two small tools and finds the rest on demand.

    With a CONFIG, or without arguments, it serves. Put `dynamic-mcp /path/dynamic-mcp.json` into your AI tool's
    MCP settings.
    """


def invoke(args: list[str]) -> int:
    """Run a command line and return its exit code. Raises DynamicMcpError."""
    try:
        code = commands.main(args, prog_name="dynamic-mcp", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as exc:
        click.echo(exc.format_message(), err=True)
        return exc.exit_code
    except click.ClickException as exc:
        raise (InvalidArguments if isinstance(exc, click.UsageError) else DynamicMcpError)(
            _format_error(exc)
        ) from exc
    except click.Abort as exc:
        raise KeyboardInterrupt from exc
    return code if isinstance(code, int) else 0


def _load(name: str) -> ModuleType:
    module = "import_" if name == "import" else name.replace("-", "_")
    for feature, command in table.commands():
        if command.name == name:
            return feature.load(f"commands.{module}")
    return importlib.import_module(f"dynamic_mcp.cli.commands.{module}")


def _format_error(exc: click.ClickException) -> str:
    message = exc.format_message().removesuffix(".").replace(". Choose from:", ": choose from").replace("\n\t", " ")
    message = message[:1].lower() + message[1:].replace("'", "`").replace("Did you mean", "did you mean")
    message = re.sub(r"\. \(?(did you mean [^?]*\?)\)?$", r"; \1", message)
    context = getattr(exc, "ctx", None)
    return message if context is None else f"{message}\nhint: `{context.command_path} --help` shows the usage"


def _refuse_unknown(word: str, names: list[str]) -> NoReturn:
    from dynamic_mcp.errors import closest

    near = closest(word, names, most=2, cutoff=0.6)
    raise NotFound("command or config file", word, near, hint="`dynamic-mcp --help` lists the commands")


class _Text(click.types.StringParamType):
    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse bytes that are not UTF-8, since the text is written as JSON to a server or a config."""
        text = str(super().convert(value, param, ctx))
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"`{text}` is not UTF-8", param, ctx)
        return text


_TEXT = _Text()


def _require_utf8(command: click.Command) -> click.Command:
    """Make a command and its subcommands refuse text that is not UTF-8, and return it; paths may be any bytes."""
    for param in command.params:
        if param.type is click.STRING:
            param.type = _TEXT
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        _require_utf8(each)
    return command
