"""Write `import-tools.md` from the tools that the importer knows: `python docs/import_tools.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dynamic_mcp.importer.adapter import SYSTEMS, Adapter, FileLocation, Meaning, Syntax, TimeoutField
from dynamic_mcp.importer.convert.fields import COMMON
from dynamic_mcp.importer.model import ToolScope
from dynamic_mcp.importer.tools.catalog import TOOLS
from dynamic_mcp.importer.tools.syntaxes import ANY

FILE = Path(__file__).parent / "import-tools.md"
_SYSTEMS = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}
_SCOPES = {ToolScope.USER: "", ToolScope.PROJECT: "project: ", ToolScope.LOCAL: "local: "}
_EDITOR = re.compile(r"(?:\{appdata\}/[^/]+|~/\.vscode-server/data)(/User/globalStorage/.*)")
_IN_EDITOR = r"<editor>\1"

_INTRODUCTION = """# The tools that are read

`python docs/import_tools.py` generates this page from the importer. Commands accept a tool's name or any of its
aliases, with `_` or `-`.

`<appdata>` is `~/.config` (or `$XDG_CONFIG_HOME`) on Linux, `~/Library/Application Support` on macOS, `%APPDATA%` on
Windows; `<localappdata>` and `<programdata>` are Windows' own. `<config>` is `~/.config` (or `$XDG_CONFIG_HOME`), and
`<data>` `~/.local/share`, everywhere. `<editor>` is each of `Code`, `Code - Insiders`, `VSCodium`, `Cursor`,
`Windsurf`, `Kiro`, `Trae` and `Antigravity` in `<appdata>`, and `~/.vscode-server/data`. A variable in brackets
overrides the directory. ↑ also looks in the directories above the project, up to the root of its repository. A file
marked *older* is read only if there is no newer one. A file marked *of others* does not decide whether the project's
or the user's files count; one marked *if it has servers* decides it only if it has servers.

## What is imported

| in the tool | here |
|---|---|
"""

_NOTES = """
Left out, each with a warning: fields without a counterpart, approvals, stored logins, programs that generate headers,
commands in values (`$(…)`, `!cmd`, `${cmd: …}`) and files in values (`${file:…}`, `{file:…}`), which become variables
to set, WebSockets and Unix sockets, parts of the tool itself, and dynamic-mcp's own entry. Nothing is ever run.

What a tool would expand becomes a variable in our syntax; what it would not expand is escaped. A `url` without a type
stays without one if the tool tries both transports; the type is then detected when the server is used.

A project's relative `cwd` or `env_file` stays relative if the output is in the project, and becomes absolute
otherwise. A user's stays as it is, with a warning.

## Where the tools keep their servers

A server gets the environment that the tool gave it: all, what programs need to run (safe), or all except what the
tool withholds. If it is not known what a tool passes on, the server gets what is safe, as with the protocol's own
libraries. An unset variable stays as it is written and is reported when the server starts, except where *unset is
empty*.

| tool | names | files | variables | environment | `timeout` | remarks |
|---|---|---|---|---|---|---|
"""

_ROWS = (
    ("`command`, `args`", (Meaning.COMMAND, Meaning.ARGS)),
    ("`env`", (Meaning.ENV, Meaning.ENV_NAMES)),
    ("`env_file`", (Meaning.ENV_FILE,)),
    ("`cwd`", (Meaning.CWD,)),
    ("`url`", (Meaning.URL, Meaning.HTTP_URL)),
    (
        "`headers`",
        (Meaning.HEADERS, Meaning.HEADERS_FROM_ENV, Meaning.BEARER, Meaning.BEARER_FROM_ENV),
    ),
    ("`type`", (Meaning.TYPE,)),
    ("`enabled`", (Meaning.ENABLED, Meaning.DISABLED)),
    ("`tools.include`, `tools.exclude`", (Meaning.INCLUDE, Meaning.EXCLUDE, Meaning.TOOLS)),
    (
        "`oauth`",
        (
            Meaning.OAUTH,
            Meaning.CLIENT_ID,
            Meaning.CLIENT_SECRET,
            Meaning.SCOPES,
            Meaning.REDIRECT_PORT,
            Meaning.METADATA_URL,
        ),
    ),
    ("`description`", (Meaning.DESCRIPTION,)),
)


def text() -> str:
    """Return the page as the importer has it now."""
    rows = [f"| {_names(meanings)} | {ours} |" for ours, meanings in _ROWS]
    for part in ("tools", "connect"):
        names = [f"`{name}`" for name, wait in COMMON.items() if isinstance(wait, TimeoutField) and wait.part == part]
        rows.append(f"| {', '.join(names)} | `timeout.{part}` |")
    table = [_row(adapter) for adapter in TOOLS]
    return _INTRODUCTION + "\n".join(rows) + "\n" + _NOTES + "\n".join(table) + "\n"


def _names(meanings: tuple[Meaning, ...]) -> str:
    return ", ".join(f"`{name}`" for name, meaning in COMMON.items() if meaning in meanings)


def _row(adapter: Adapter) -> str:
    names = ", ".join(f"`{name}`" for name in (adapter.name, *adapter.aliases))
    unit = {1.0: "s", 0.001: "ms", None: "guessed"}[adapter.timeout_unit_s]
    remarks = f"{adapter.notes} [Source]({adapter.source}), {adapter.checked}".strip()
    files = "<br>".join(_files(adapter)) or "none"
    cells = (adapter.title, names, files, _variables(adapter), _environment(adapter), unit, remarks)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _variables(adapter: Adapter) -> str:
    parts = ["any" if adapter.variables == ANY else _syntaxes(adapter.variables) or "none"]
    if adapter.env_variables:
        parts.append(f"in `env` and `headers` also {_syntaxes(adapter.env_variables)}")
    for variables in dict.fromkeys(place.variables for place in adapter.places if place.variables is not None):
        places = [place for place in adapter.places if place.variables == variables]
        paths = dict.fromkeys(f"`{_EDITOR.sub(_IN_EDITOR, each.path).removeprefix('./')}`" for each in places)
        parts.append(f"{_syntaxes(variables)} in {', '.join(paths)}")
    if adapter.empties != "nowhere":
        parts.append("unset is empty" + (" in `env` and `headers`" if adapter.empties == "env" else ""))
    return "; ".join(parts)


def _syntaxes(variables: tuple[Syntax, ...]) -> str:
    return " ".join(dict.fromkeys(f"`{each.value.split(',')[0]}`" for each in variables))


def _environment(adapter: Adapter) -> str:
    match adapter.inherits:
        case None:
            return "unknown"
        case tuple(names):
            held_back = [f"`{name.removeprefix('!')}`" for name in names if name.startswith("!")]
            return f"all except {', '.join(held_back)}"
        case choice:
            return choice


def _files(adapter: Adapter) -> Iterator[str]:
    seen: set[str] = set()
    for place in adapter.places:
        file = _format_place(place)
        if file not in seen:
            seen.add(file)
            yield file


def _format_place(place: FileLocation) -> str:
    path = _EDITOR.sub(_IN_EDITOR, place.path).removeprefix("./")
    variable = ""
    if match := re.match(r"\{([A-Z_]+)(?:\|([^}]*))?\}", path):
        variable = f" (`${match[1]}`)" if match[2] else ""
        path = (match[2] or f"${match[1]}") + path[match.end() :]
    path = re.sub(r"\{(\w+)\}", r"<\1>", path)
    systems = "" if place.systems == SYSTEMS else " on " + ", ".join(_SYSTEMS[each] for each in place.systems)
    marks = " ↑" * place.up + " *older*" * place.legacy + " *of others*" * place.borrowed
    marks += " *if it has servers*" * place.ambiguous
    return f"{_SCOPES[place.scope]}`{path}`{variable}{systems}{marks}"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8", newline="\n")
