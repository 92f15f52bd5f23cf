"""The fields of a server that is a program: command, arguments, environment, directory."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from dynamic_mcp.config.types import VARIABLE_NAME
from dynamic_mcp.importer.adapter import Meaning, Syntax
from dynamic_mcp.importer.convert.draft import FieldValue, ServerDraft, UnusableError, describe_kind, parse_members
from dynamic_mcp.importer.model import ToolScope
from dynamic_mcp.system.text import pluralize

_WINDOWS_PATH = re.compile(r"(?:[A-Za-z]:[\\/]|\\\\)")
_WINDOWS_PROGRAM = re.compile(r"(?:[A-Za-z]:[\\/]|\\\\|\.{1,2}[\\/])[^\"]*\.(?:exe|cmd|bat|com|ps1)", re.IGNORECASE)
_RELATIVE = re.compile(r"\.{1,2}[/\\]")
_SHELLS = frozenset(("sh", "bash", "zsh", "fish", "dash", "cmd", "powershell", "pwsh"))


def convert_program(draft: ServerDraft, command: FieldValue) -> dict[str, object]:
    """Return the fields of an entry that starts a program. Raises UnusableError."""
    words = _command_words(draft, command)
    entry: dict[str, object] = {"command": _convert_command(draft, words[0])}
    args = [*words[1:], *_read_arguments(draft)]
    if texts := _convert_args(draft, args):
        entry["args"] = texts
    if env := _convert_env(draft, command):
        entry["env"] = env
    entry.update(_convert_paths(draft))
    _note_wrappers(draft, words)
    return entry


def split_command_line(text: str, *, is_windows: bool) -> list[str]:
    """Split a command line into words. Raises ValueError if a quote is not closed."""
    if not is_windows and not _WINDOWS_PATH.search(text):
        return shlex.split(text)
    return [re.sub(r'^(["\'])(.*)\1$', r"\2", word) for word in shlex.split(text, posix=False)]


def read_plain_words(draft: ServerDraft, command: FieldValue) -> list[str]:
    """Return the command and those arguments that are texts, without adding notices."""
    value = command.value
    if isinstance(value, dict):
        value = [value.get("path", value.get("command")), *_as_list(value.get("args"))]
    words = [word for word in _as_list(value) if isinstance(word, str)]
    args = [
        arg for original in draft.find_all(Meaning.ARGS) for arg in _as_list(original.value) if isinstance(arg, str)
    ]
    return [*(words[0].split() if len(words) == 1 and not args and words[0].split() else words), *args]


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _command_words(draft: ServerDraft, command: FieldValue) -> list[tuple[str, object]]:
    """Return the command and the arguments in the same field, each with its place."""
    value = command.value
    if isinstance(value, dict):  # Zed's old form
        return _object_words(draft, command.name, value)
    if isinstance(value, list):
        return [(f"{command.name}[{i}]", word) for i, word in enumerate(value)]
    text = draft.to_plain_text(command.name, value)
    if text is None or not text.strip():
        raise UnusableError(command.name, "is not a command")
    return [(command.name, word) for word in _separate(draft, command.name, text)]


def _object_words(draft: ServerDraft, name: str, value: Mapping[str, object]) -> list[tuple[str, object]]:
    path = next((value[key] for key in ("path", "command") if key in value), None)
    if not isinstance(path, str) or not path.strip():
        raise UnusableError(f"{name}.path", "is not a command")
    for key in value:
        if key not in ("path", "command", "args", "env"):
            draft.note(f"{name}.{key}", "has no counterpart here and is left out")
    return [
        (f"{name}.path", path),
        *((f"{name}.args[{i}]", arg) for i, arg in enumerate(_as_list(value.get("args")))),
    ]


def _separate(draft: ServerDraft, name: str, text: str) -> list[str]:
    """Split a command that may be a whole command line, unless it is clearly a path."""
    is_windows = draft.context.machine.platform == "win32"
    if not re.search(r"\s", text.strip()) or draft.choose(Meaning.ARGS) or _is_path(text, is_windows=is_windows):
        return [text]
    try:
        words = split_command_line(text, is_windows=is_windows)
    except ValueError:
        draft.note(name, "has an unclosed quote and is taken as one word")
        return [text]
    draft.note(name, f"was a single string; it becomes a command and {pluralize(len(words) - 1, 'argument')}")
    return words


def _is_path(text: str, *, is_windows: bool) -> bool:
    if _WINDOWS_PROGRAM.fullmatch(text) or re.fullmatch(r"/.*\.app/[^-]*", text):
        return True
    if is_windows and text.startswith(("\\\\", "//")):
        return False  # accessing the file would log in to that machine
    try:
        return text.startswith("/") and Path(text).is_file()
    except (OSError, ValueError):
        return False


def _convert_command(draft: ServerDraft, word: tuple[str, object]) -> str:
    name, value = word
    text = draft.convert_text(name, value)
    if text is None or not text.strip():
        raise UnusableError(name, "is not a command")
    machine = draft.context.machine
    if re.match(r"~[/\\]", text):
        home = "${USERPROFILE}" if machine.platform == "win32" else "${HOME}"
        return home + text[1:]
    if _RELATIVE.match(text):
        return _resolve_relative(draft, name, text)
    return text


def _resolve_relative(draft: ServerDraft, name: str, text: str) -> str:
    if draft.context.source.scope is ToolScope.USER:
        draft.note(name, "is relative to the directory in which the tool was started: use an absolute path")
        return text
    separator = "\\" if "\\" in text else "/"
    base = str(draft.context.machine.project).replace("${", "$${")
    return base + separator + re.sub(r"^(?:\.[/\\])+", "", text)


def _read_arguments(draft: ServerDraft) -> list[tuple[str, object]]:
    original = draft.choose(Meaning.ARGS)
    if original is None:
        return []
    if isinstance(original.value, str):
        is_windows = draft.context.machine.platform == "win32"
        draft.note(original.name, "is a string, not a list; it is split at spaces")
        try:
            return [(original.name, word) for word in split_command_line(original.value, is_windows=is_windows)]
        except ValueError:
            return [(original.name, original.value)]
    if isinstance(original.value, list):
        return [(f"{original.name}[{i}]", arg) for i, arg in enumerate(original.value)]
    draft.note(original.name, f"is {describe_kind(original.value)}, not a list, and is left out")
    return []


def _convert_args(draft: ServerDraft, args: list[tuple[str, object]]) -> list[str]:
    texts = (draft.convert_text(name, arg) for name, arg in args)
    return [text for text in texts if text is not None]


def _convert_env(draft: ServerDraft, command: FieldValue) -> dict[str, str]:
    env: dict[str, str] = {}
    for original in _env_fields(draft, command):
        variables = parse_members(original.value)
        if variables is None:
            draft.note(original.name, f"is {describe_kind(original.value)}, not an object, and is left out")
        for name, value in (variables or {}).items():
            _set_variable(draft, env, f"{original.name}.{name}", name, value)
    for original in draft.find_all(Meaning.ENV_NAMES):
        for name in _read_names(draft, original):
            env.setdefault(name, f"${{{name}}}")
    return env


def _env_fields(draft: ServerDraft, command: FieldValue) -> list[FieldValue]:
    found = [original for original in draft.find_all(Meaning.ENV) if original.value is not None]
    if isinstance(command.value, dict) and command.value.get("env"):
        found.append(FieldValue(f"{command.name}.env", command.value["env"]))
    return found


def _set_variable(draft: ServerDraft, env: dict[str, str], field: str, name: str, value: object) -> None:
    if not re.fullmatch(VARIABLE_NAME, name):
        draft.note(field, "is not a valid variable name and is left out")
    elif value is None or (value == "" and draft.context.adapter.passes_empty):
        if draft.context.adapter.passes_empty and re.fullmatch(r"[A-Za-z_]\w*", name):
            env[name] = f"${{{name}}}"
        else:
            draft.note(field, "is null and is left out")
    elif (text := draft.convert_text(field, value, env_name=name)) is not None:
        env[name] = text


def _read_names(draft: ServerDraft, original: FieldValue) -> list[str]:
    """Return the names of variables to pass on, given as texts or as objects with a `name`."""
    names: list[str] = []
    for i, each in enumerate(_as_list(original.value)):
        name = each.get("name") if isinstance(each, dict) else each
        if isinstance(name, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            names.append(name)
            for key, value in each.items() if isinstance(each, dict) else ():
                if key != "name" and value not in (None, "local"):
                    draft.note(f"{original.name}[{i}].{key}", "has no counterpart here and is left out")
        else:
            draft.note(f"{original.name}[{i}]", "is not a valid variable name and is left out")
    return names


def _convert_paths(draft: ServerDraft) -> dict[str, object]:
    entry: dict[str, object] = {}
    if (original := draft.choose(Meaning.CWD)) and (cwd := draft.convert_text(original.name, original.value)):
        entry["cwd"] = cwd
        if is_relative(cwd) and draft.context.source.scope is ToolScope.USER:
            draft.note(
                original.name,
                "is relative: here to the config file, not to the directory in which the tool was started",
            )
    if original := draft.choose(Meaning.ENV_FILE):
        files = [draft.convert_text(original.name, each) for each in _as_list(original.value)]
        if paths := [path for path in files if path]:
            entry["env_file"] = paths if len(paths) > 1 else paths[0]
            relative = any(map(is_relative, paths)) and draft.context.source.scope is ToolScope.USER
            draft.note(
                original.name,
                "becomes `env_file`: the file must exist" + "; its path is relative to the config" * relative,
            )
    return entry


def is_relative(path: str) -> bool:
    """Return whether a path is relative to its config."""
    return not re.match(r"[/\\~]|[A-Za-z]:|\$\{|%", path)


def _note_wrappers(draft: ServerDraft, words: list[tuple[str, object]]) -> None:
    original = draft.choose(Meaning.ARGS)
    args = [*(word for _, word in words[1:]), *(_as_list(original.value) if original else [])]
    for arg in args:
        if isinstance(arg, str) and re.fullmatch(r"mcp-remote(?:@.*)?", arg):
            draft.note("", "runs `mcp-remote` to reach a remote server; `url` does that without a program")
    name = re.split(r"[/\\]", str(words[0][1]))[-1].lower().removesuffix(".exe")
    is_read = Syntax.SHELL in draft.context.adapter.variables
    for arg in args if name not in _SHELLS and not is_read else ():
        if isinstance(arg, str) and "$(" in arg:
            draft.note("args", "contain `$(`, which stays literal text and is never run")
