"""The forms of help texts, and what is known of the programs that print them."""

from __future__ import annotations

import re
from typing import Literal

Form = Literal["argparse", "click", "cobra", "clap", "docopt", "go", "gnu"]

# The first that is found. Each program framework prints some words that the others do not.
_SIGNS: tuple[tuple[Form, str], ...] = (
    ("argparse", r"^usage: [^\n]*\n(?:.|\n)*^(?:options|optional arguments|positional arguments):$"),
    ("argparse", r"^  -h, --help +show this help message and exit"),
    ("click", r"^ *(?:-h, )?--help +Show this message and exit\.|^.{1,3}╭─ (?:Options|Commands)|^ *│ --help "),
    ("cobra", r"^(?:Available Commands|Global Flags|Management Commands):$"),
    ("cobra", r'^Use "[^"\n]+ --help" for more information about a (?:given )?command|^ *-h, --help +help for '),
    ("cobra", r"^ +(?:-\w, )?--[\w-]+ (?:string|int|list|strings|stringArray|duration|map|bytes)\b"),
    ("cobra", r'^ +(?:-\w, )?--[\w-]+=(?:\'\'|\[\]|true|false):$|^Use "[^"\n]* options" for a list of global'),
    ("clap", r"^ *-h, --help +(?:Print|Prints) help"),
    ("clap", r"^ +-h, --help\n +(?:Print|Prints) help"),
    ("clap", r"\[possible values: |^SUBCOMMANDS:$"),
    ("go", r"^ {2,}-[a-z]{2,}[\w-]*(?:=\S+)?(?:  |$)"),
)
_COMPILED = [(form, re.compile(sign, re.MULTILINE)) for form, sign in _SIGNS]
_DOCOPT = re.compile(r"^Usage:\s*\n(?:  .*\n)+\s*^Options:", re.MULTILINE)

# Parsers of these know `--flag=value`, and `--` as the end of the flags.
WITH_EQUALS = frozenset(("argparse", "click", "cobra", "clap", "docopt", "go"))
WITH_SEPARATOR = frozenset(("argparse", "click", "cobra", "clap", "docopt"))


def find_form(text: str) -> Form:
    """Return the form of a help text; `gnu` if it has no signs of another one."""
    for form, sign in _COMPILED:
        if sign.search(text):
            return form
    return "docopt" if _DOCOPT.search(text) else "gnu"
