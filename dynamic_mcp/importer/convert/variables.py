"""Converts every tool's variable syntax into ours: `${VAR}` and `${VAR:-default}`.

Text that a tool does not expand stays literal: our `${` is escaped. Commands in values are never run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dynamic_mcp.importer.adapter import Syntax
from dynamic_mcp.importer.model import Machine, ToolScope

_DEFAULT = r"(?:\$\{[^{}]*\}|[^}])*"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_PATTERNS: dict[Syntax, str] = {
    Syntax.ACTIONS: r"\$\{\{\s*(?:secrets|inputs|env)\.(?P<ACTIONS>[^{}\s]+)\s*\}\}",
    Syntax.MUSTACHE: r"\{\{\s*(?P<MUSTACHE>[A-Za-z_]\w*)\s*\}\}",
    Syntax.ENV: rf"\$\{{env:(?P<ENV>[^{{}}:]+)(?::-?(?P<env_default>{_DEFAULT}))?\}}",
    Syntax.INPUT: r"\$\{input:(?P<INPUT>[^{}]+)\}",
    Syntax.FILE: r"\$\{file:(?P<FILE>[^{}]+)\}",
    Syntax.CMD: r"\$\{cmd:(?P<CMD>[^{}]*)\}",
    Syntax.EDITOR: (
        r"\$\{(?P<EDITOR>workspaceFolder|workspaceRoot|workspaceFolderBasename|userHome|cwd|pathSeparator|/"
        r"|(?:workspaceFolder|config|command):[^{}]*)\}"
    ),
    Syntax.DEFAULT: rf"\$\{{(?P<DEFAULT>{_NAME}):-(?P<default>{_DEFAULT})\}}",
    Syntax.DASH: rf"\$\{{(?P<DASH>{_NAME})-(?P<dash_default>{_DEFAULT})\}}",
    Syntax.BRACES: rf"\$\{{(?P<BRACES>{_NAME})\}}",
    Syntax.LENIENT: rf"\$\{{(?P<LENIENT>{_NAME})\}}",
    Syntax.CURLY: r"\{env:(?P<CURLY>[^{}]+)\}",
    Syntax.CURLY_FILE: r"\{file:(?P<CURLY_FILE>[^{}]+)\}",
    Syntax.SHELL: r"(?P<SHELL>\$\((?:[^()]|\([^()]*\))*\))",
    Syntax.POWERSHELL: rf"\$env:(?P<POWERSHELL>{_NAME})",
    Syntax.DOLLAR: rf"\$(?P<DOLLAR>{_NAME})",
    Syntax.PERCENT: rf"%(?P<PERCENT>{_NAME})%",
}
_ECHO = re.compile(rf"\$\(\s*echo\s+\"?\$\{{?({_NAME})\}}?\"?\s*\)")
_NO_VARIABLE = re.compile(r"[^A-Za-z0-9_]+")
_TAKEN = frozenset(
    """
    PATH HOME USER USERNAME LOGNAME SHELL PWD OLDPWD TERM LANG TZ TMPDIR TEMP TMP DISPLAY HOSTNAME UID EUID SHLVL
    EDITOR VISUAL PAGER MAIL USERPROFILE APPDATA LOCALAPPDATA PROGRAMDATA SYSTEMROOT WINDIR COMSPEC
    """.split()  # noqa: SIM905 -- a list of fifty strings is harder to read
)


@dataclass(frozen=True)
class PromptedInput:
    """A value that a tool prompts its user for."""

    id: str
    is_secret: bool = False
    default: str | None = None
    is_known: bool = True


@dataclass(frozen=True)
class Scene:
    """The values that references in one server may refer to.

    `server_variables` are those of the server itself. With `is_unset_empty`, the tool replaces an unset variable by
    an empty text instead of leaving the reference unchanged.
    """

    machine: Machine
    scope: ToolScope
    tool: str
    server: str
    inputs: Mapping[str, PromptedInput] = field(default_factory=dict)
    server_variables: frozenset[str] = frozenset()
    is_unset_empty: bool = False


@dataclass(frozen=True)
class ConvertedText:
    """A text in our syntax, the remarks about it, and the variables that the tool itself used to fill in."""

    text: str
    remarks: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()


def to_variable_name(*words: str) -> str:
    """Return a variable name made from words: `gh-token` is `GH_TOKEN`. Avoids names that systems use."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", "_".join(words))
    name = _NO_VARIABLE.sub("_", spaced).strip("_").upper()
    if not name:
        return "VALUE"
    if name in _TAKEN:
        return f"INPUT_{name}"
    return f"_{name}" if name[0].isdigit() else name


def escape(text: str) -> str:
    """Return literal text in our syntax."""
    return text.replace("${", "$${")


def convert_text(
    text: str, syntax: Iterable[Syntax], scene: Scene, *, field: str, env_name: str = ""
) -> ConvertedText:
    """Convert a tool's text into our syntax; `env_name` if the text is the value of a variable."""
    if not any(mark in text for mark in "${%!"):
        return ConvertedText(text)
    return _Conversion(frozenset(syntax), scene, field, env_name).convert(text)


class _Conversion:
    """One text during its conversion; `pieces` are literal texts and, as tuples, references."""

    def __init__(self, syntax: frozenset[Syntax], scene: Scene, field: str, env_name: str) -> None:
        self._syntax = syntax
        self._scene = scene
        self._field = field
        self._env_name = env_name
        self._is_whole = False
        self._pieces: list[str | tuple[str]] = []
        self._remarks: list[str] = []
        self._exports: list[str] = []

    def convert(self, text: str) -> ConvertedText:
        if Syntax.BANG in self._syntax and text.startswith("!") and len(text) > 1:
            self._is_whole = True
            self._add_command(text)
        else:
            self._convert_references(text)
        return ConvertedText(self._join(), _unique(self._remarks), _unique(self._exports))

    def _convert_references(self, text: str) -> None:
        end = 0
        for match in re.finditer(self._build_pattern(), text) if self._build_pattern() else ():
            self._add_literal(text[end : match.start()])
            self._is_whole = match[0] == text
            self._convert_reference(match)
            end = match.end()
        self._add_literal(text[end:])

    def _build_pattern(self) -> str:
        is_windows = self._scene.machine.platform == "win32"
        used = (syntax for syntax in _PATTERNS if syntax in self._syntax)
        return "|".join(_PATTERNS[syntax] for syntax in used if is_windows or syntax is not Syntax.PERCENT)

    def _convert_reference(self, match: re.Match[str]) -> None:
        kind = Syntax[next(name for name, value in match.groupdict().items() if value is not None and name.isupper())]
        content = match[kind.name].strip()
        match kind:
            case Syntax.DEFAULT:
                self._add_variable(content, match["default"])
            case Syntax.LENIENT if content in self._scene.server_variables and not self._env_name:
                self._add_literal(match[0])  # the program expands it itself, as mcp-remote does
            case Syntax.ENV:
                self._add_variable(content, match["env_default"])
            case Syntax.DASH:
                self._add_variable(content, match["dash_default"])
            case Syntax.DOLLAR:
                self._add_variable(content, self._doubtful_default(content, match))
            case Syntax.ACTIONS:
                self._add_variable(re.split(r"[./]", content)[-1])
            case Syntax.MUSTACHE:
                self._ask_user(content, f"`{{{{{content}}}}}` is filled in for each user")
            case Syntax.INPUT:
                self._add_input(content)
            case Syntax.FILE | Syntax.CURLY_FILE:
                self._ask_user("", f"refers to the file `{content}`, which is not read here")
            case Syntax.SHELL | Syntax.CMD:
                self._add_command(match[0])
            case Syntax.EDITOR:
                self._add_editor_variable(content)
            case _:
                self._add_variable(content)

    def _add_variable(self, name: str, default: str | None = None) -> None:
        if name == "CLAUDE_PROJECT_DIR" and default is None:
            self._add_project(str(self._scene.machine.project))
        elif not re.fullmatch(_NAME, name):
            self._ask_user(name, f"`{name}` is not a valid variable name here")
        elif default is None and self._scene.is_unset_empty:
            self._add_reference(name, "")
        else:
            self._add_reference(name, default)

    def _doubtful_default(self, name: str, match: re.Match[str]) -> str | None:
        """Return `$name` as the default of a doubtful reference, as in `pa$$word`."""
        is_doubtful = name.upper() != name or match.string[: match.start()].endswith("$")
        return f"${name}" if is_doubtful and not self._scene.is_unset_empty else None

    def _add_reference(self, name: str, default: str | None = None) -> None:
        if default is not None and self._syntax & {Syntax.ENV} and "${env:" in default:
            default = re.sub(rf"\$\{{env:({_NAME})\}}", r"${\1}", default)
        self._pieces.append((f"${{{name}}}" if default is None else f"${{{name}:-{default}}}",))

    def _ask_user(self, name: str, reason: str, default: str | None = None) -> None:
        """Add a variable that the user has to set, for a value that only the tool could fill in."""
        chosen = to_variable_name(name) if name else self._fallback_name()
        if self._is_whole and self._env_name:
            chosen = to_variable_name(self._env_name)
        self._remarks.append(f"{reason}: set `{chosen}`")
        self._exports.append(chosen)
        self._add_reference(chosen, default)

    def _fallback_name(self) -> str:
        """Return a name made from tool, server and the last part of the field."""
        words = (self._scene.tool, self._scene.server, self._field.rpartition(".")[2])
        return to_variable_name(*words[1:] if words[0] == "file" else words)

    def _add_input(self, id: str) -> None:
        prompted = self._scene.inputs.get(id, PromptedInput(id, is_known=False))
        default = None if prompted.is_secret else prompted.default
        reason = f"the tool prompts for `{id}`" if prompted.is_known else f"the input `{id}` is not defined"
        if default is not None and ("}" in default or "${" in default):
            default, reason = None, f"{reason}, and its default cannot be expressed here"
        self._ask_user(id, reason, default)

    def _add_command(self, text: str) -> None:
        if match := _ECHO.fullmatch(text):
            self._add_reference(match[1])
        else:
            self._ask_user("", "is the output of a command, which is never run")

    def _add_editor_variable(self, content: str) -> None:
        machine = self._scene.machine
        match content.partition(":")[0]:
            case "userHome":
                self._add_reference("USERPROFILE" if machine.platform == "win32" else "HOME")
            case "pathSeparator" | "/":
                self._add_literal("\\" if machine.platform == "win32" else "/")
            case "workspaceFolderBasename":
                self._add_project(machine.project.name)
            case "workspaceFolder" | "workspaceRoot" | "cwd":
                self._add_project(str(machine.project))
            case _:
                self._ask_user("", f"only the tool knows `${{{content}}}`")

    def _add_project(self, text: str) -> None:
        if self._scene.scope is ToolScope.USER:
            self._remarks.append(f"the workspace folder is fixed to `{text}`")
        self._add_literal(text)

    def _add_literal(self, text: str) -> None:
        if self._pieces and isinstance(self._pieces[-1], str):
            self._pieces[-1] += text
        elif text:
            self._pieces.append(text)

    def _join(self) -> str:
        joined = ""
        for piece in self._pieces:
            if isinstance(piece, str):
                joined += escape(piece)
            else:
                # `$` before a reference would escape it, so it is written as the default of a variable
                text = joined.rstrip("$")
                dollars = joined[len(text) :]
                joined = text + (f"${{DOLLAR:-{dollars}}}" if dollars else "") + piece[0]
        return joined


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
