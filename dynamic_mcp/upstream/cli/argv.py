"""The arguments of a call as the words of a command line.

A value never becomes a flag: only flags that the pack declares are written, each as the pack writes it, and a word of
a call that could be taken for a flag is refused. There is no shell, so nothing else has a meaning in a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NoReturn

from msgspec import Struct

from dynamic_mcp.packs.model import RESERVED, Command, Flag, Positional, compile_pattern

AnyArgument = Flag | Positional
# Linux takes up to 128 KiB in one word (MAX_ARG_STRLEN), Windows 32767 characters in all of them.
MAX_WORD_BYTES = 100_000
MAX_BYTES = 500_000


class BadArguments(ValueError):
    """The program does not run with these arguments; the message is for the model that chose them."""


class CommandWords(Struct, frozen=True):
    """The words after the name of the program, and the paths among the arguments, by argument name."""

    argv: tuple[str, ...]
    paths: tuple[tuple[str, str], ...]


def build(command: Command, arguments: Mapping[str, object], *, at_files: bool = False) -> CommandWords:
    """Return the words of a command, without those that precede every command. Raises BadArguments."""
    return _Line(command, arguments, at_files=at_files).build()


class _Line:
    def __init__(self, command: Command, arguments: Mapping[str, object], *, at_files: bool) -> None:
        self._command = command
        self._arguments = arguments
        self._at_files = at_files
        self._paths: list[tuple[str, str]] = []

    def build(self) -> CommandWords:
        """Return the words: the command, its flags, its fixed words, and the positional arguments."""
        command = self._command
        self._check_names()
        words = [*command.path]
        words += [word for flag in command.flags for word in self._flag(flag)]
        words += command.fixed
        before, after = command.sides
        words += self._side(before)
        words += ["--"] * command.separator
        words += self._side(after)
        if sum(len(word.encode()) + 1 for word in words) > MAX_BYTES:
            raise BadArguments(f"the arguments have more than {MAX_BYTES} bytes")
        return CommandWords(tuple(words), tuple(self._paths))

    def _check_names(self) -> None:
        every: list[AnyArgument] = [*self._command.flags, *self._command.positionals]
        specs = {each.argument: each for each in every}
        for name in self._arguments:
            if name not in specs and name not in RESERVED:
                raise BadArguments(f"there is no argument `{name[:100]}`")
        for name, each in specs.items():
            if each.required and self._arguments.get(name) in (None, []):
                raise BadArguments(f"`{name}` is missing")

    def _flag(self, flag: Flag) -> Iterator[str]:
        value = self._arguments.get(flag.argument)
        if value is None:
            return
        if flag.type == "boolean":
            yield from self._switch(flag, value)
        elif flag.type == "pairs":
            yield from self._pairs(flag, value)
        else:
            for text in self._texts(flag, value):
                yield from self._write(flag, text)

    def _switch(self, flag: Flag, value: object) -> Iterator[str]:
        if not isinstance(value, bool):
            _refuse(flag, "must be true or false")
        if flag.written == "equals":
            yield f"{flag.name}={'true' if value else 'false'}"
        elif value:
            yield flag.name

    def _pairs(self, flag: Flag, value: object) -> Iterator[str]:
        if not isinstance(value, dict):
            _refuse(flag, "must be an object whose members are texts")
        for name, each in value.items():
            if not isinstance(each, str):
                _refuse(flag, "must be an object whose members are texts")
            words = [self._check_word(flag, text) for text in (name, each)]
            for word in words:
                _check_no_flag(flag, word)
            yield from (flag.name, *words)

    def _write(self, flag: Flag, text: str) -> Iterator[str]:
        match flag.written:
            case "equals":
                yield f"{flag.name}={text}"
            case "joined":
                if not text:
                    _refuse(flag, "must not be empty")  # the next word would be its value
                yield f"{flag.name}{text}"
            case _:
                _check_no_flag(flag, text)
                yield from (flag.name, text)

    def _side(self, positionals: list[Positional]) -> list[str]:
        """Return the words of one side; a word is identified by its position, so no earlier one may be missing."""
        words: list[str] = []
        missing = ""
        for each in positionals:
            found = [*self._positional(each)]
            if found and missing:
                raise BadArguments(f"`{each.argument}` needs `{missing}` too")
            missing = missing or ("" if found else each.argument)
            words += found
        return words

    def _positional(self, each: Positional) -> Iterator[str]:
        value = self._arguments.get(each.argument)
        if value is None:
            return
        before, after = each.wrap
        for text in (f"{before}{text}{after}" for text in self._texts(each, value)):
            if each.before_separator or not self._command.separator:
                _check_no_flag(each, text)
            yield text

    def _texts(self, each: AnyArgument, value: object) -> Iterator[str]:
        """Yield the texts of an argument, which are several only if it is repeatable."""
        if not each.repeatable:
            yield self._text(each, value)
            return
        if not isinstance(value, list):
            _refuse(each, "must be a list")
        for item in value:
            yield self._text(each, item)

    def _text(self, each: AnyArgument, value: object) -> str:
        if each.type in ("integer", "number"):
            return self._check_word(each, _number(each, value))
        if not isinstance(value, str):
            _refuse(each, "must be a text")
        text = self._check_word(each, value)
        if each.type == "enum" and text not in (each.values or ()):
            _refuse(each, f"must be one of {', '.join(f'`{one}`' for one in each.values or ())}")
        if each.pattern is not None and not compile_pattern(each.pattern)(text):
            _refuse(each, f"must match `{each.pattern}`")
        if each.except_ is not None and compile_pattern(each.except_)(value):
            _refuse(each, f"must not match `{each.except_}`")
        if each.type == "path":
            if not text:
                _refuse(each, "must not be empty")
            self._paths.append((each.argument, text))
        return text

    def _check_word(self, each: AnyArgument, text: str) -> str:
        if "\0" in text:
            _refuse(each, "must not contain a NUL character")
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            _refuse(each, "is not valid Unicode")
        if size > MAX_WORD_BYTES:
            _refuse(each, f"must not have more than {MAX_WORD_BYTES} bytes")
        if not (each.literal or self._at_files) and (text == "-" or text.startswith("@")):
            _refuse(each, "must not be `-` or begin with `@`: the program would read stdin or a file instead")
        return text


def _number(each: AnyArgument, value: object) -> str:
    kind = "a whole number" if each.type == "integer" else "a number"
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(each, f"must be {kind}")
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e15:
            value = int(value)
        elif each.type == "integer" or value - value != 0:
            _refuse(each, f"must be {kind}")
    if each.minimum is not None and value < each.minimum:
        _refuse(each, f"must be at least {each.minimum:g}")
    if each.maximum is not None and value > each.maximum:
        _refuse(each, f"must be at most {each.maximum:g}")
    if isinstance(value, int) and abs(value) > 1 << 63:
        _refuse(each, "is too large")
    return repr(value)


def _check_no_flag(each: AnyArgument, text: str) -> None:
    if text.startswith("-"):
        _refuse(each, "must not begin with `-`: the program would take it for a flag")


def _refuse(each: AnyArgument, why: str) -> NoReturn:
    raise BadArguments(f"`{each.argument}` {why}")
