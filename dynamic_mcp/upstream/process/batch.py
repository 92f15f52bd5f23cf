"""The command line of a batch file (`.cmd`, `.bat`), such as `npx.cmd`, which only `cmd.exe` can run.

`cmd.exe` parses a command line by rules of its own, so the usual quoting would let an argument run other commands
(CVE-2024-24576). The escaping is that of Rust's standard library; what cannot be escaped is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

SUFFIXES = (".bat", ".cmd")
# The longest command line of cmd.exe: https://learn.microsoft.com/troubleshoot/windows-client/shell-experience/command-line-string-limitation
MAX_CHARS = 8191
# Characters besides letters and digits that have no meaning to cmd.exe, so a word of these needs no quotes.
_PLAIN = frozenset(r"#$*+-./:?@\_")
# A `%` that no variable can begin with: what follows it is an empty part of `%cd%`, which always exists.
_PERCENT = "%%cd:~,%"


def is_batch(file: str) -> bool:
    """Return whether a program is a batch file. Windows ignores dots and spaces at the end of a name."""
    return file.rstrip(". ").lower().endswith(SUFFIXES)


def make_command_line(cmd: str, file: str, args: Sequence[str]) -> str:
    """Return the command line that runs a batch file by `cmd`, the path of cmd.exe. Raises ValueError.

    Without AutoRun commands of the registry (`/d`), with command extensions, which the escaping of `%` needs, and
    without delayed expansion, by which `!` would have a meaning. `/c` removes the outer quotes.
    """
    if '"' in file or file.endswith("\\"):
        raise ValueError('the path of a batch file contains no `"`, and does not end with `\\`')
    words = [_quote(file, "its path"), *(_escape(arg, number) for number, arg in enumerate(args, 1))]
    line = f'"{cmd}" /d /e:on /v:off /c "{" ".join(words)}"'
    if len(line) > MAX_CHARS:
        raise ValueError(f"a batch file's command line can have {MAX_CHARS} characters, and this has {len(line)}")
    return line


def _escape(arg: str, number: int) -> str:
    is_plain = all(char in _PLAIN or (char.isascii() and char.isalnum()) for char in arg)
    # a batch file may add quotes of its own (`"%~1"`), which a backslash at the end would escape
    return arg if arg and is_plain and not arg.endswith("\\") else _quote(arg, f"its argument {number}")


def _quote(text: str, name: str) -> str:
    """Quote a word for cmd.exe, and at the same time for the program that gets it from the batch file."""
    if any(ord(char) < 32 and char != "\t" for char in text):
        raise ValueError(f"{name} has a line break or a control character, which a batch file cannot be given")
    parts: list[str] = []
    backslashes = 0
    for char in text:
        if char == '"':
            parts.append("\\" * backslashes + '"')  # before a quote, backslashes count double; `""` is a quote
        parts.append(_PERCENT if char == "%" else char)
        backslashes = backslashes + 1 if char == "\\" else 0
    parts.append("\\" * backslashes)
    return f'"{"".join(parts)}"'
