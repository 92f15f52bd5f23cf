"""What the words of a command line must be: text that can be written as UTF-8, unless they name a file."""

from __future__ import annotations

import click


class _Text(click.types.StringParamType):
    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse bytes that were no UTF-8: what a server is asked and what a config says is JSON, which has none."""
        text = str(super().convert(value, param, ctx))
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"`{text}` is not UTF-8", param, ctx)
        return text


_TEXT = _Text()


def checked(command: click.Command) -> click.Command:
    """Return the command, which takes only words that are text; paths may be any bytes."""
    for param in command.params:
        if param.type is click.STRING:
            param.type = _TEXT
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        checked(each)
    return command
