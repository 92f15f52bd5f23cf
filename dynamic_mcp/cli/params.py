"""The type of text arguments and options: valid UTF-8, unless they are paths."""

from __future__ import annotations

import click


class _Text(click.types.StringParamType):
    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse bytes that are not UTF-8: they end up in JSON, for a server or a config, which cannot hold them."""
        text = str(super().convert(value, param, ctx))
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"`{text}` is not UTF-8", param, ctx)
        return text


_TEXT = _Text()


def require_utf8(command: click.Command) -> click.Command:
    """Make a command and its subcommands refuse text that is not UTF-8, and return it; paths may be any bytes."""
    for param in command.params:
        if param.type is click.STRING:
            param.type = _TEXT
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        require_utf8(each)
    return command
