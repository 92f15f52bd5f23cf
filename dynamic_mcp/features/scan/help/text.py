"""Reads a help text or a rendered manual page: the flags, words and commands that it lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dynamic_mcp.features.scan.facts import CommandFact, FlagFact, Subcommand, WordFact
from dynamic_mcp.features.scan.help.dialects import (
    WITH_EQUALS,
    WITH_SEPARATOR,
    Form,
    find_form,
    read_flag_value,
    style_of,
)
from dynamic_mcp.features.scan.help.layout import Entry, Layout, join, read_layout
from dynamic_mcp.features.scan.help.spelling import Spelling, read_spelling
from dynamic_mcp.features.scan.help.usage import commands_of_usage, read_usage
from dynamic_mcp.features.scan.help.values import listed_values, read_value

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


def read_text(text: str, path: Sequence[str] = (), *, source: str = "--help") -> CommandFact:
    """Return what a text says of the command with these words after the program's name."""
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
        separator=True if has_separator or form in WITH_SEPARATOR else None,
    )


def shorten(text: str) -> str:
    """Return the first sentences of a description, as many as fit a line of a pack."""
    text = " ".join(text.split())
    if len(text) <= _MAX_DESCRIPTION:
        return text
    cut = text[:_MAX_DESCRIPTION]
    end = max(cut.rfind(". "), cut.rfind("; "))
    return cut[: end + 1] if end > 40 else cut[: cut.rfind(" ")] + " …"


# --- flags -------------------------------------------------------------------------------------------------------


def _read_flags(form: Form, entries: Sequence[Entry]) -> Iterator[FlagFact]:
    spelled = [(entry, found) for entry in entries if (found := read_spelling(entry.head)) is not None]
    has_equals = form in WITH_EQUALS or any(found.sign == "=" for _, found in spelled)
    seen: set[str] = set()
    for entry, spelling in spelled:
        description = join([spelling.rest, entry.description])
        for flag in _flags_of(form, spelling, description, has_equals=has_equals):
            if not seen.intersection(flag.names):
                seen.update(flag.names)
                yield flag


def _flags_of(form: Form, spelling: Spelling, description: str, *, has_equals: bool) -> Iterator[FlagFact]:
    names = tuple(name for name in spelling.names if not name.lstrip("-").isdigit())
    if not names:
        return
    value = read_flag_value(form, spelling, description)
    yield FlagFact(
        names=names,
        value=value,
        description=shorten(description),
        required=True if _REQUIRED.search(description) else None,
        style=style_of(form, spelling, value, has_equals=has_equals),
    )
    if spelling.off:
        yield FlagFact(
            names=spelling.off,
            value=read_flag_value("gnu", Spelling(names=spelling.off), ""),
            description="The opposite.",
        )


# --- words and commands ------------------------------------------------------------------------------------------


def _explain(words: Sequence[WordFact], entries: Sequence[Entry]) -> Iterator[WordFact]:
    """Yield the words of a usage with what the text says of them below."""
    said = {_name(entry.head): entry for entry in entries if _ARGUMENTS.match(entry.heading)}
    for word in words:
        entry = said.get(word.name)
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


def _read_subcommands(form: Form, layout: Layout, path: Sequence[str]) -> Iterator[Subcommand]:
    if form == "docopt" or (layout.usage and layout.usage[0].startswith("git ")):
        yield from map(Subcommand, commands_of_usage(layout.usage, path))
    seen: set[str] = set()
    for entry in layout.words:
        found = list(_commands_of(entry, layout))
        for each in found:
            if each.name not in seen:
                seen.add(each.name)
                yield each


def _commands_of(entry: Entry, layout: Layout) -> Iterator[Subcommand]:
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
    found = _COMMAND.match(head)
    if found is None or found[1].endswith("."):
        return
    rest = head[found.end() :].strip()
    is_listed = head != entry.head and found[1].endswith(":")  # `- name: what it does`
    if is_listed:
        yield Subcommand(found[1].rstrip(":"), shorten(join([rest, entry.description])))
    elif not rest or rest[:1] in _USAGE_SIGNS or entry.has_gap:
        yield Subcommand(found[1].rstrip(":"), shorten(entry.description), rest if rest[:1] in _USAGE_SIGNS else "")


def _parsers_of(entry: Entry) -> Iterator[Subcommand]:
    """Yield the commands of argparse: their names in braces, and then each in a line of its own."""
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
    """Return the text with a heading for each box, and without bullets in front of lines."""
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
    """Put the names of a flag and what it takes side by side; a star in front says that it must be given."""
    star = "[required] " if match["star"] else ""
    return f"{' '.join(match['names'].split())}{' ' + match['takes'] if match['takes'] else ''}   {star}"
