from __future__ import annotations

import pytest

from dynamic_mcp.features.scan.facts import FlagFact
from dynamic_mcp.features.scan.help.text import find_form, read_text

GNU = """\
Usage: brew [OPTION]... SOURCE... DEST
Brews what is in SOURCE and puts it into DEST.

  -n, --cups=NUM             make NUM cups
  -o, --output=FILE          write to FILE instead of DEST; a description that
                               goes on, with --cups in it
      --colour[=WHEN]        colour the cups
  -q                         say nothing
  -T --temperature=DEGREES   how hot
      --strength={mild,strong}
                             how strong
"""

ARGPARSE = """\
usage: brew [-h] [--cups N] [--bean {arabica,robusta}] [--milk | --no-milk] {make,list} ...

Brews.

positional arguments:
  {make,list}
    make                make some
    list                list what there is

options:
  -h, --help            show this help message and exit
  --cups N              how many
  --bean {arabica,robusta}
                        which bean
  --milk, --no-milk     with milk
  --spot X Y            where to
"""

CLICK = """\
Usage: brew [OPTIONS] SOURCE [DEST]...

  Brews what is in SOURCE.

Options:
  -c, --cups INTEGER RANGE   How many.  [default: 2; 1<=x<=9]
  --bean [arabica|robusta]   Which bean.  [required]
  --milk / --no-milk         With milk.
  --recipe FILE              What to follow.
  --help                     Show this message and exit.
"""

COBRA = """\
Brews coffee.

Usage:
  brew [command]

Available Commands:
  make        Make some
  list        List what there is

Flags:
      --bean strings       which beans
  -c, --cups int           how many (default 2)
  -h, --help               help for brew
      --label map          what to write on them (default map[])
      --milk               with milk
      --dry-run string[="client"]   only try

Use "brew [command] --help" for more information about a command.
"""

KUBECTL = """\
Brew coffee.

Options:
    --all=false:
\tBrew all of them.

    -f, --filename=[]:
\tWhat to brew.

    --cups=2:
\tHow many.

    -o, --output='':
\tHow it is shown. One of: (json, yaml, name).

    --wait=true:
\tWait for it.

Usage:
  brew make (-f FILENAME | NAME) [options]

Use "brew options" for a list of global command-line options (applies to all commands).
"""

CLAP = """\
Brews coffee

Usage: brew [OPTIONS] <SOURCE> [DEST]

Arguments:
  <SOURCE>  What to brew
  [DEST]    Where to

Options:
  -c, --cups <CUPS>      How many
      --depth <NUM>      How deep
      --bean <BEAN>      Which bean [possible values: arabica, robusta]
  -v, --verbose...       More words
  -r, --recipe <FILE>    What to follow
  -h, --help             Print help
"""

CLAP_LONG = """\
Brews coffee

Usage: brew [OPTIONS]

Options:
      --bean <BEAN>
          Which bean

          Possible values:
          - arabica: The mild one
          - robusta: The strong one

  -h, --help
          Print help (see a summary with '-h')
"""

DOCOPT = """\
Brews coffee.

Usage:
  brew make <name>... [--cups=<n>] [--recipe=<file>]
  brew (-h | --help)

Options:
  -h --help          Show this screen.
  --cups=<n>         How many [default: 2].
  --recipe=<file>    What to follow.
  --milk             With milk.
"""

GO = """\
Usage: brew [global options] make [options]

  Brews coffee.

Options:

  -cups=n              How many.

  -milk=false          Without milk.

  -recipe=filename     What to follow. This option can be used multiple times.

  -strong              Strong.
"""

TYPER = """\
 Usage: brew [OPTIONS] COMMAND [ARGS]...

 Brews.

╭─ Options ─────────────────────────────────────────────╮
│ --cups  -c      INTEGER  How many. [default: 2]       │
│ --help                   Show this message and exit.  │
╰───────────────────────────────────────────────────────╯
╭─ Commands ────────────────────────────────────────────╮
│ make   Make some.                                     │
│ list   List what there is.                            │
╰───────────────────────────────────────────────────────╯
"""

MAN = """\
BREW(1)                      General Commands Manual                      BREW(1)

NAME
       brew - brews coffee

SYNOPSIS
       brew [options] source...

OPTIONS
       -c, --cups=<number>
           How many.

       --bean=<name>
           Which bean.

       -q, --quiet
           Say nothing. See also
           --cups above.
"""


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (GNU, "gnu"),
        (ARGPARSE, "argparse"),
        (CLICK, "click"),
        (COBRA, "cobra"),
        (KUBECTL, "cobra"),
        (CLAP, "clap"),
        (CLAP_LONG, "clap"),
        (DOCOPT, "docopt"),
        (GO, "go"),
        (TYPER, "click"),
    ],
)
def test_each_form_is_recognised(text: str, form: str) -> None:
    assert find_form(text) == form


def flags(text: str) -> dict[str, FlagFact]:
    found = {flag.names[-1] if flag.names[0][:2] != "--" else flag.names[0]: flag for flag in read_text(text).flags}
    return {name: flag for name, flag in found.items() if name != "--help"}


def types(text: str) -> dict[str, object]:
    return {
        name: flag.value.values or flag.value.type for name, flag in flags(text).items() if flag.value is not None
    }


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            GNU,
            {
                "--cups": "integer",
                "--output": "path",
                "--colour": "string",
                "-q": "boolean",
                "--temperature": "string",
                "--strength": ("mild", "strong"),
            },
        ),
        (
            ARGPARSE,
            {
                "--cups": "integer",
                "--bean": ("arabica", "robusta"),
                "--milk": "boolean",
                "--no-milk": "boolean",
                "--spot": "pairs",
            },
        ),
        (
            CLICK,
            {
                "--cups": "integer",
                "--bean": ("arabica", "robusta"),
                "--milk": "boolean",
                "--no-milk": "boolean",
                "--recipe": "path",
            },
        ),
        (
            COBRA,
            {
                "--bean": "string",
                "--cups": "integer",
                "--label": "string",
                "--milk": "boolean",
                "--dry-run": "string",
            },
        ),
        (
            KUBECTL,
            {
                "--all": "boolean",
                "--filename": "string",
                "--cups": "integer",
                "--output": ("json", "yaml", "name"),
                "--wait": "boolean",
            },
        ),
        (
            CLAP,
            {
                "--cups": "string",  # the placeholder is the flag's own name, which says nothing
                "--depth": "integer",
                "--bean": ("arabica", "robusta"),
                "--verbose": "boolean",
                "--recipe": "path",
            },
        ),
        (CLAP_LONG, {"--bean": ("arabica", "robusta")}),
        (DOCOPT, {"--cups": "integer", "--recipe": "path", "--milk": "boolean"}),
        (GO, {"-cups": "integer", "-milk": "boolean", "-recipe": "path", "-strong": "boolean"}),
        (TYPER, {"--cups": "integer"}),
        (MAN, {"--cups": "integer", "--bean": "string", "--quiet": "boolean"}),
    ],
)
def test_each_flag_is_read_with_its_type(text: str, wanted: dict[str, object]) -> None:
    assert types(text) == wanted


def test_a_flag_that_repeats_is_a_list() -> None:
    repeated = [
        name
        for text in (COBRA, KUBECTL, GO)
        for name, flag in flags(text).items()
        if flag.value is not None and flag.value.repeatable
    ]
    assert repeated == ["--bean", "--label", "--filename", "-recipe"]


def test_a_flag_that_must_be_given_is_required() -> None:
    assert [name for name, flag in flags(CLICK).items() if flag.required] == ["--bean"]


def test_the_range_of_a_number_is_kept() -> None:
    value = flags(CLICK)["--cups"].value
    assert value is not None
    assert (value.minimum, value.maximum) == (1, 9)


def test_a_switch_that_is_on_by_default_is_written_with_its_value() -> None:
    assert {name: flag.style for name, flag in flags(KUBECTL).items() if flag.style} == {"--wait": "equals"}


@pytest.mark.parametrize(
    ("text", "path", "wanted"),
    [
        (GNU, (), [("source", True, True), ("dest", True, False)]),
        (CLICK, (), [("source", True, False), ("dest", False, True)]),
        (CLAP, (), [("source", True, False), ("dest", False, False)]),
        (ARGPARSE, (), []),
        (COBRA, (), []),
        (MAN, (), [("source", True, True)]),
    ],
)
def test_the_words_of_the_usage_are_read(text: str, path: tuple[str, ...], wanted: list[object]) -> None:
    words = read_text(text, path).words
    assert words is not None
    assert [(word.name, word.required, word.repeatable) for word in words] == wanted


@pytest.mark.parametrize("text", [ARGPARSE, COBRA, TYPER])
def test_the_commands_are_read(text: str) -> None:
    assert [each.name for each in read_text(text).subcommands] == ["make", "list"]
    assert all(each.description for each in read_text(text).subcommands)


@pytest.mark.parametrize("text", [GNU, CLICK, CLAP, GO, KUBECTL, MAN])
def test_nothing_else_is_taken_for_a_command(text: str) -> None:
    assert read_text(text).subcommands == ()


# As pip writes it: the list is part of the description, and prose goes on below it.
LIST_IN_PROSE = """\

Usage:
  brew config [<options>] list
  brew config [<options>] set name value

Description:
  Manage how coffee is made.

  Subcommands:

  - list: List the settings (or those of the file given)
  - set: Set a value

  Names should have a dot in them,
  with the special word "all" for every cup. For example,
  "brew config set all.sugar 1" would set
  the sugar of each cup, if the pot
  exists. Otherwise, all goes to the
  default.

Config Options:
  --user                      Only those of the user
"""


def test_a_list_of_commands_in_a_description_is_read_and_the_prose_below_it_is_not() -> None:
    found = read_text(LIST_IN_PROSE, ("config",)).subcommands
    assert [(each.name, each.description) for each in found] == [
        ("list", "List the settings (or those of the file given)"),
        ("set", "Set a value"),
    ]


def test_a_description_goes_on_over_several_lines() -> None:
    said = flags(GNU)["--output"].description
    assert said == "write to FILE instead of DEST; a description that goes on, with --cups in it"


@pytest.mark.parametrize("text", [ARGPARSE, CLICK, COBRA, CLAP, GNU])
def test_the_description_of_the_program_is_what_comes_first(text: str) -> None:
    assert read_text(text).description.startswith("Brews")


@pytest.mark.parametrize(
    ("line", "names", "kind"),
    [
        ("  -U<n>, --unified=<n>     context", ("-U", "--unified"), "integer"),
        ("  --stat[=<width>[,<name-width>[,<count>]]]   a table", ("--stat",), "string"),
        ("  -<number>, -n <number>, --max-count=<number>   how many", ("-n", "--max-count"), "integer"),
        ("  -., --hidden             hidden ones too", ("-.", "--hidden"), "boolean"),
        ("  -F FILTER[:options]      add one", ("-F",), "string"),
        ("  --[no-]sign              sign it", ("--sign",), "boolean"),
        ("  -M, --machine CONTAINER  where", ("-M", "--machine"), "string"),
        ("     --cacert <file> The certificate", ("--cacert",), "path"),
        ("  --limit=N|all            at most", ("--limit",), "string"),
        ("  -v...                    more", ("-v",), "boolean"),
    ],
)
def test_flags_are_read_however_they_are_spelled(line: str, names: tuple[str, ...], kind: str) -> None:
    flag = read_text(f"Usage: brew [OPTIONS]\n\n{line}\n").flags[0]
    assert (flag.names, flag.value and flag.value.type) == (names, kind)


def test_commands_that_only_the_usage_names_are_found() -> None:
    assert [each.name for each in read_text(DOCOPT).subcommands] == ["make"]
    text = "usage: git brew [-v]\n   or: git brew make [--now] <name>\n   or: git brew list\n"
    assert [each.name for each in read_text(text, ("brew",)).subcommands] == ["make", "list"]
