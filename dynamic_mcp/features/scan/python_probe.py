"""Prints the command line of an installed Python program as JSON. Runs in that program's interpreter, not in ours.

It imports the module of the program's script. A click command or typer app is described directly. A function is
called with `--help`, and the first click command or argparse parser that would parse is described. It works with
Python 3.8 and later, and imports nothing that the program does not.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any  # objects of foreign libraries

_MAX_DEPTH = 5
_MAX_COMMANDS = 1000
_NUMBERS = {"int": "integer", "float": "number"}


class _Captured(BaseException):
    """Carries the object that would have parsed the arguments."""


def main(module: str, name: str, program: str) -> None:
    """Describe the program that calls `name` of a module."""
    sys.argv = [program, "--help"]
    parser = _find(module, name)
    if hasattr(parser, "list_commands") or (hasattr(parser, "params") and hasattr(parser, "make_context")):
        description = {"kind": "click", "command": _describe_click(parser, program, 0, [0])}
    else:
        description = {"kind": "argparse", "command": _describe_argparse(parser, 0, [0])}
    sys.stdout.write("\n" + json.dumps(description) + "\n")


def _find(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if type(found).__module__.split(".")[0] == "typer" and hasattr(found, "registered_commands"):
        return importlib.import_module("typer.main").get_command(found)
    if hasattr(found, "params") and hasattr(found, "make_context"):
        return found
    return _capture(found)


def _capture(function: Any) -> Any:
    """Call a function until its arguments would be parsed; return the parser."""
    import argparse

    def stop(parser: Any, *args: Any, **kwargs: Any) -> Any:
        raise _Captured(parser)

    setattr(argparse.ArgumentParser, "parse_known_args", stop)  # noqa: B010 - a type checker forbids the assignment
    click = sys.modules.get("click.core")
    for each in ("BaseCommand", "Command"):
        if click is not None and hasattr(click, each):
            setattr(getattr(click, each), "main", stop)  # noqa: B010
    typer = sys.modules.get("typer.core")
    for each in ("TyperCommand", "TyperGroup"):
        if typer is not None and hasattr(typer, each):
            setattr(getattr(typer, each), "main", stop)  # noqa: B010
    try:
        function()
    except _Captured as captured:
        return captured.args[0]
    raise SystemExit("no click command or argparse parser found")


# --- click -----------------------------------------------------------------------------------------------------


def _describe_click(command: Any, name: str, depth: int, count: list[int]) -> dict[str, Any]:
    context = command.context_class(command, info_name=name, resilient_parsing=True)
    params = [param for param in command.params if not getattr(param, "hidden", False)]
    below = {}
    if hasattr(command, "list_commands") and depth < _MAX_DEPTH:
        for each in command.list_commands(context):
            child = command.get_command(context, each)
            count[0] += 1
            if child is not None and not getattr(child, "hidden", False) and count[0] < _MAX_COMMANDS:
                below[each] = _describe_click(child, each, depth + 1, count)
    return {
        "description": (command.help or "").split("\f")[0].strip(),
        "flags": [_click_flag(param) for param in params if param.param_type_name == "option"],
        "words": [_click_word(param) for param in params if param.param_type_name == "argument"],
        "commands": below,
    }


def _click_flag(param: Any) -> dict[str, Any]:
    is_switch = bool(param.is_flag or param.count)
    return {
        "names": list(param.opts),
        "off": list(param.secondary_opts),
        "description": getattr(param, "help", None) or "",
        "required": bool(param.required),
        "repeatable": bool(param.multiple),
        "arity": 0 if is_switch else param.nargs,
        **({} if is_switch else _click_type(param.type)),
    }


def _click_word(param: Any) -> dict[str, Any]:
    return {
        "name": param.name,
        "description": getattr(param, "help", None) or "",
        "required": bool(param.required),
        "repeatable": param.nargs != 1,
        **_click_type(param.type),
    }


def _click_type(type_: Any) -> dict[str, Any]:
    name = getattr(type_, "name", "")
    if hasattr(type_, "choices"):
        return {"type": "enum", "values": [str(getattr(each, "name", each)) for each in type_.choices]}
    kinds = {"integer": "integer", "integer range": "integer", "float": "number", "float range": "number"}
    kinds.update({"boolean": "boolean", "path": "path", "filename": "path", "file": "path", "directory": "path"})
    return {"type": kinds.get(name, "string"), "minimum": _bound(type_, "min"), "maximum": _bound(type_, "max")}


def _bound(type_: Any, side: str) -> Any:
    return None if getattr(type_, f"{side}_open", False) else getattr(type_, side, None)


# --- argparse --------------------------------------------------------------------------------------------------


def _describe_argparse(parser: Any, depth: int, count: list[int]) -> dict[str, Any]:
    flags, words, below = [], [], {}
    for action in parser._actions:  # noqa: SLF001 - there is no other way to list them
        if action.help == "==SUPPRESS==":
            continue
        kind = type(action).__name__
        if kind == "_SubParsersAction":
            helps = {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001
            for name in dict.fromkeys([*helps, *action.choices] if depth < _MAX_DEPTH else ()):
                count[0] += 1
                if name in action.choices and (name in helps or not helps) and count[0] < _MAX_COMMANDS:
                    described = _describe_argparse(action.choices[name], depth + 1, count)
                    below[name] = {**described, "description": described["description"] or helps.get(name, "")}
        elif action.option_strings:
            flags.append(_argparse_flag(action, kind))
        else:
            words.append(_argparse_word(action))
    return {"description": parser.description or "", "flags": flags, "words": words, "commands": below}


def _argparse_flag(action: Any, kind: str) -> dict[str, Any]:
    is_off = kind == "BooleanOptionalAction"
    arity = action.nargs if isinstance(action.nargs, int) else 1
    return {
        "names": [each for each in action.option_strings if not (is_off and each.startswith("--no-"))],
        "off": [each for each in action.option_strings if is_off and each.startswith("--no-")],
        "description": _fill(action),
        "required": bool(action.required),
        "repeatable": "Append" in kind or "Extend" in kind,
        "arity": arity,
        **({} if arity == 0 else _argparse_type(action)),
    }


def _argparse_word(action: Any) -> dict[str, Any]:
    many = action.nargs in ("*", "+", "...", "A...") or (isinstance(action.nargs, int) and action.nargs > 1)
    return {
        "name": str(action.dest),
        "description": _fill(action),
        "required": action.nargs not in ("?", "*", "..."),
        "repeatable": many,
        **_argparse_type(action),
    }


def _argparse_type(action: Any) -> dict[str, Any]:
    if action.choices is not None:
        return {"type": "enum", "values": [str(each) for each in action.choices][:200]}
    name = getattr(action.type, "__name__", type(action.type).__name__)
    return {"type": "path" if name in ("Path", "FileType") else _NUMBERS.get(name, "string")}


def _fill(action: Any) -> str:
    try:
        return str(action.help or "") % {**vars(action), "prog": "", "type": getattr(action.type, "__name__", "")}
    except (TypeError, ValueError, KeyError):
        return str(action.help or "")


if __name__ == "__main__":
    main(*sys.argv[1:4])
