"""Reads a help text or a rendered manual page: its flags, words and commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from dynamic_mcp.features.scan.facts import CommandFact, FlagFact, Subcommand, ValueFact, WordFact
from dynamic_mcp.features.scan.help.layout import HelpEntry, Layout, join, read_layout
from dynamic_mcp.features.scan.help.spelling import Spelling, read_spelling
from dynamic_mcp.features.scan.help.usage import commands_of_usage, read_usage
from dynamic_mcp.features.scan.help.values import listed_values, read_value, says_repeatable
from dynamic_mcp.packs.model import Style

_COMMANDS = re.compile(r"\b(?:sub)?commands?\b", re.IGNORECASE)
_ARGUMENTS = re.compile(r"^(?:positional )?(?:arguments?|args|parameters|operands)$", re.IGNORECASE)
_NOT_COMMANDS = re.compile(r"\b(?:options?|flags|examples?|aliases|deprecated)\b", re.IGNORECASE)
_COMMAND = re.compile(r"([a-z0-9][A-Za-z0-9_.:+-]*)(?:\*|:)?(?=$|[\s,(\[<])")
_REQUIRED = re.compile(r"\[required\]|\(required\)|\*required\*|^required\.|\[required;|; required\]", re.IGNORECASE)
_NAME = re.compile(r"[^a-z0-9]+")
_USAGE_SIGNS = frozenset("[<{(ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_MAX_DESCRIPTION = 300
_BOX_TOP = re.compile(r"^\s*[╭┌+][─-]+ (?P<title>[^─]+?) [─-]+[╮┐+]\s*$")
_BOX_BOTTOM = re.compile(r"^\s*[╰└]─+[╯┘]\s*$")
_BOX_SIDES = re.compile(r"^\s*│(?P<inside>.*)│\s*$")
_BOX_COLUMNS = re.compile(
    r"^\s*(?P<star>\*?)\s+(?P<names>-\S+(?:\s+-\S+)*)(?:\s+(?P<takes>[A-Z<\[]\S*(?: RANGE)?))?(?=\s{2,}|$)"
)
_BULLET = re.compile(r"^(\s*)[○•●∙](?=\s)")
_NOTHING = ValueFact(type="boolean")
_DURATION = re.compile(r"\d+(?:\.\d+)?(?:ns|us|ms|s|m|h)+[\dhms]*")
_ValueReader = Callable[[Spelling, str], ValueFact]
_Form = Literal["argparse", "click", "cobra", "clap", "docopt", "go", "gnu"]
# The first that is found. Each program framework prints some words that the others do not.
_SIGNS: tuple[tuple[_Form, str], ...] = (
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
_WITH_EQUALS = frozenset(("argparse", "click", "cobra", "clap", "docopt", "go"))
_WITH_SEPARATOR = frozenset(("argparse", "click", "cobra", "clap", "docopt"))


def read_text(text: str, path: Sequence[str] = (), *, source: str = "--help") -> CommandFact:
    """Return the command with this path, as a text describes it."""
    text = _without_boxes(text)
    form, layout = find_form(text), read_layout(text)
    subcommands = tuple(_read_subcommands(form, layout, path))
    words, has_separator = read_usage(layout.usage, path, is_group=bool(subcommands))
    return CommandFact(
        source=source,
        path=tuple(path),
        description=shorten(_describe(layout)),
        flags=tuple(_read_flags(form, layout.flags)),
        words=None if words is None else tuple(_explain(words, layout.words)),
        subcommands=subcommands,
        separator=True if has_separator or form in _WITH_SEPARATOR else None,
    )


def shorten(text: str) -> str:
    """Return the first sentences of a description, as many as fit into a pack's line."""
    text = " ".join(text.split())
    if len(text) <= _MAX_DESCRIPTION:
        return text
    cut = text[:_MAX_DESCRIPTION]
    end = max(cut.rfind(". "), cut.rfind("; "))
    return cut[: end + 1] if end > 40 else cut[: cut.rfind(" ")] + " …"


# --- flags -------------------------------------------------------------------------------------------------------


def _read_flags(form: _Form, entries: Sequence[HelpEntry]) -> Iterator[FlagFact]:
    spelled = [(entry, each) for entry in entries if (each := read_spelling(entry.head)) is not None]
    has_equals = form in _WITH_EQUALS or any(spelling.sign == "=" for _, spelling in spelled)
    names: set[str] = set()
    for entry, spelling in spelled:
        description = join([spelling.rest, entry.description])
        for flag in _flags_of(form, spelling, description, has_equals=has_equals):
            if not names.intersection(flag.names):
                names.update(flag.names)
                yield flag


def _flags_of(form: _Form, spelling: Spelling, description: str, *, has_equals: bool) -> Iterator[FlagFact]:
    names = tuple(name for name in spelling.names if not name.lstrip("-").isdigit())
    if not names:
        return
    value = _read_flag_value(form, spelling, description)
    yield FlagFact(
        names=names,
        value=value,
        description=shorten(description),
        required=True if _REQUIRED.search(description) else None,
        style=_style_of(form, spelling, value, has_equals=has_equals),
    )
    if spelling.off:
        yield FlagFact(
            names=spelling.off,
            value=_read_flag_value("gnu", Spelling(names=spelling.off), ""),
            description="The opposite.",
        )


# --- words and commands ------------------------------------------------------------------------------------------


def _explain(words: Sequence[WordFact], entries: Sequence[HelpEntry]) -> Iterator[WordFact]:
    """Yield the words of a usage with their descriptions in the text."""
    explained = {_name(entry.head): entry for entry in entries if _ARGUMENTS.match(entry.heading)}
    for word in words:
        entry = explained.get(word.name)
        if entry is None:
            yield word
            continue
        values = word.values or listed_values(entry.description)
        typed = read_value(entry.head.partition("  ")[2]).type if not values else None
        yield WordFact(
            name=word.name,
            type="enum" if values else "path" if typed == "path" else word.type,
            values=values,
            description=shorten(entry.description),
            required=word.required,
            repeatable=word.repeatable,
        )


def _name(head: str) -> str:
    return _NAME.sub("_", head.lower().removesuffix("...")).strip("_")


def _read_subcommands(form: _Form, layout: Layout, path: Sequence[str]) -> Iterator[Subcommand]:
    if form == "docopt" or (layout.usage and layout.usage[0].startswith("git ")):
        yield from map(Subcommand, commands_of_usage(layout.usage, path))
    names: set[str] = set()
    for entry in layout.words:
        for each in _commands_of(entry, layout):
            if each.name not in names:
                names.add(each.name)
                yield each


def _commands_of(entry: HelpEntry, layout: Layout) -> Iterator[Subcommand]:
    if entry.head.startswith("{"):
        if any(re.search(re.escape(entry.head.split("}")[0] + "}") + r"\s+\.\.\.", line) for line in layout.usage):
            yield from _parsers_of(entry)
        return
    if not _COMMANDS.search(entry.heading) or _NOT_COMMANDS.search(entry.heading):
        return
    if (entry.head.count(",") >= 2 and not entry.lines) or entry.head.endswith(","):
        for word in join([entry.head, *entry.lines]).split(","):
            if _COMMAND.fullmatch(word.strip()):
                yield Subcommand(word.strip())
        return
    head = entry.head.removeprefix("- ")
    match = _COMMAND.match(head)
    if match is None or match[1].endswith("."):
        return
    rest = head[match.end() :].strip()
    is_listed = head != entry.head and match[1].endswith(":")  # `- name: what it does`
    if is_listed:
        yield Subcommand(match[1].rstrip(":"), shorten(join([rest, entry.description])))
    elif not rest or rest[:1] in _USAGE_SIGNS or entry.has_gap:
        yield Subcommand(match[1].rstrip(":"), shorten(entry.description), rest if rest[:1] in _USAGE_SIGNS else "")


def _parsers_of(entry: HelpEntry) -> Iterator[Subcommand]:
    """Yield the commands of argparse: their names in braces, and then each on its own line."""
    names = entry.head.strip("{}").split("}")[0].split(",")
    described = {line.split()[0]: line.partition("  ")[2] for line in entry.lines if line.split()}
    aliases = {
        alias for line in entry.lines if (m := re.match(r"\S+ \(([^()]+)\)", line)) for alias in m[1].split(", ")
    }
    for name in names:
        if _COMMAND.fullmatch(name) and name not in aliases:
            yield Subcommand(name, described.get(name, "").strip())


def _describe(layout: Layout) -> str:
    """Return the first paragraph that is a sentence."""
    return join(list(layout.first)[:8])


def _without_boxes(text: str) -> str:
    """Return the text with a heading for each box, and without bullets."""
    if "│" not in text and not any(mark in text for mark in "○•●∙"):
        return text
    return "\n".join(_open_box(line) for line in text.splitlines())


def _open_box(line: str) -> str:
    if found := _BOX_TOP.match(line):
        return f"{found['title']}:"
    if _BOX_BOTTOM.match(line):
        return ""
    if found := _BOX_SIDES.match(line):
        return "  " + _BOX_COLUMNS.sub(_join_columns, found["inside"].rstrip())
    return _BULLET.sub(r"\1 ", line)


def _join_columns(match: re.Match[str]) -> str:
    """Join the names of a flag and its value; a leading star marks it as required."""
    star = "[required] " if match["star"] else ""
    return f"{' '.join(match['names'].split())}{' ' + match['takes'] if match['takes'] else ''}   {star}"


def _read_flag_value(form: _Form, spelling: Spelling, description: str) -> ValueFact:
    """Return the value of a flag in a text of this form."""
    if spelling.placeholder is None:
        return _NOTHING
    if spelling.second is not None:
        return ValueFact(type="pairs")
    return _READERS.get(form, _read_gnu)(spelling, description)


def _style_of(form: _Form, spelling: Spelling, value: ValueFact, *, has_equals: bool) -> Style | None:
    """Return how a flag is written, if not in a pack's default way. `has_equals`: the program supports `--a=b`."""
    name = next((each for each in spelling.names if each.startswith("--")), spelling.names[0])
    if value.type == "boolean":
        return "equals" if _takes_boolean(form, spelling) else None
    if value.type == "pairs":
        return None
    if spelling.sign == "=" or has_equals:
        return "equals" if len(name) > 2 and not name.startswith("--") else None
    return "separate" if len(name) > 2 or (spelling.sign == " " and form == "gnu") else None


def _takes_boolean(form: _Form, spelling: Spelling) -> bool:
    """Return whether a boolean needs its value: it is on by default, or spelled with one, as Go's flags are."""
    text = (spelling.placeholder or "").strip("<>'\"").lower()
    return text == "true" or (form == "go" and text == "false") or text in ("bool", "boolean")


def _read_gnu(spelling: Spelling, description: str) -> ValueFact:
    return read_value(spelling.placeholder or "", description)


def _read_named(spelling: Spelling, description: str) -> ValueFact:
    """Read a placeholder that is the flag's own name unless the author chose one: `--count COUNT` gives no type."""
    value = read_value(spelling.placeholder or "", description)
    text = re.sub(r"[^a-z0-9]", "", (spelling.placeholder or "").lower())
    is_default = any(text == re.sub(r"[^a-z0-9]", "", name.lower()) for name in spelling.names)
    if (is_default and value.type in ("integer", "number", "boolean")) or value.type == "boolean":
        return ValueFact(type="string", repeatable=value.repeatable)
    return value


def _read_argparse(spelling: Spelling, description: str) -> ValueFact:
    """Read `{a,b}`, a metavar, or one that is a comma-separated list of values."""
    value = _read_named(spelling, description)
    # `FILE [FILE ...]` takes all words that follow; given twice, the last one counts
    return value if says_repeatable(description) else _without_repeats(value)


def _read_click(spelling: Spelling, description: str) -> ValueFact:
    text = (spelling.placeholder or "").strip()
    if text.startswith("<") and " " in text:
        return ValueFact(type="pairs") if len(text.split()) == 2 else ValueFact(type="string")
    value = read_value(text, description)
    if value.type == "enum" and not text.startswith("["):
        return ValueFact(type="string")
    return value


def _read_cobra(spelling: Spelling, description: str) -> ValueFact:
    text = (spelling.placeholder or "").strip("'\"")
    if spelling.sign != "=":
        return _NOTHING if text == "count" else read_value(text, description)
    if text in ("true", "false"):
        return _NOTHING
    if text == "[]":
        return ValueFact(type="string", repeatable=True)
    if re.fullmatch(r"-?\d+", text):
        return ValueFact(type="integer")
    if _DURATION.fullmatch(text):
        return ValueFact(type="string")
    return read_value("string", description)  # it shows the default


def _read_go(spelling: Spelling, description: str) -> ValueFact:
    text = (spelling.placeholder or "").strip("'\"")
    if text in ("true", "false"):
        return _NOTHING
    return read_value(text if re.fullmatch(r"[\w|-]+", text) else "string", description)


def _without_repeats(value: ValueFact) -> ValueFact:
    return ValueFact(type=value.type, values=value.values, minimum=value.minimum, maximum=value.maximum)


_READERS: Mapping[_Form, _ValueReader] = {
    "argparse": _read_argparse,
    "click": _read_click,
    "clap": _read_named,
    "cobra": _read_cobra,
    "go": _read_go,
}


def find_form(text: str) -> _Form:
    """Return the form of a help text; `gnu` if it has no signs of another one."""
    for form, sign in _COMPILED:
        if sign.search(text):
            return form
    return "docopt" if _DOCOPT.search(text) else "gnu"
