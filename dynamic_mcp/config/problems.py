"""Describes the problems of a config: their place, cause and fix.

Imported only when there is a problem. Messages repeat a value only if it cannot be a secret.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from msgspec import Struct
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dynamic_mcp.config import form
from dynamic_mcp.config.flaws import Problem
from dynamic_mcp.config.keys import Keys, format_path
from dynamic_mcp.config.model import Root
from dynamic_mcp.config.section import alternatives, by_tag, choice_in, file_fields, is_user_key
from dynamic_mcp.errors import ConfigError, closest

_KIND_HINT = (
    "a server has either `command`, if it is a program, or `url`, if it is remote, `cli`, if it is a command line"
    " program that is no MCP server, `openapi`, if it is a service with an OpenAPI document, or `skills`, if it is"
    " folders of skills"
)
# For each tag of a section in `form`, the field that makes a server this kind.
_KIND_FIELDS = {"stdio": "command", "remote": "url", "cli": "cli", "openapi": "openapi", "skills": "skills"}
_MOST_FIELDS = 10
_MESSAGES = {
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "string_too_short": "must not be empty",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
}


def find_problems(tree: object) -> list[Problem]:
    """Find all problems of a config with the pydantic models."""
    try:
        Root.model_validate(tree)
    except ValidationError as exc:
        return [_to_problem(details) for details in exc.errors(include_url=False, include_input=False)]
    return []


def duplicate_problems(paths: Sequence[Keys]) -> list[Problem]:
    """Return a problem for each duplicate key."""
    return [Problem(format_path(keys), "appears more than once", "rename or remove all but one") for keys in paths]


def to_error(file: Path, problems: Sequence[Problem]) -> ConfigError:
    """Combine all problems into one error: the first with its path, each other one on its own line."""
    first, *others = problems
    if not others:
        return ConfigError(str(file), first.where, first.message, hint=first.hint)
    lines = [f"\n  `{other.where}`: {_with_hint(other)}" for other in others]
    return ConfigError(str(file), first.where, _with_hint(first) + "".join(lines))


def _with_hint(problem: Problem) -> str:
    return f"{problem.message} ({problem.hint})" if problem.hint else problem.message


def _to_problem(details: ErrorDetails) -> Problem:
    keys = details["loc"]
    where = format_path(_path_in_file(keys))
    context = details.get("ctx", {})
    match details["type"]:
        case "value_error":
            return Problem(where, str(context["error"]), getattr(context["error"], "hint", ""))
        case "extra_forbidden":
            return _unknown_field(keys)
        case "missing":
            return Problem(where, "is missing", _KIND_HINT if keys[-1] == "command" else "")
        case "union_tag_not_found":
            choice = choice_in(_annotation(keys))
            assert choice is not None
            return Problem(f"{where}.{choice.key}", choice.message, choice.hint)
        case "literal_error":
            return Problem(where, "must be " + str(context["expected"]).replace("'", "`"))
        case "greater_than_equal":
            return Problem(where, f"must be at least {context['ge']}")
        case "less_than_equal":
            return Problem(where, f"must be at most {context['le']}")
        case kind:
            return Problem(where, _MESSAGES.get(kind) or details["msg"].lower())


def _path_in_file(keys: Keys) -> Keys:
    """Return the keys without those that pydantic inserts: kinds of servers or providers, marks of invalid names."""
    found: list[str | int] = []
    annotation: Any = form.Root
    for key in keys:
        tagged = by_tag(annotation)
        if len(tagged) > 1 or key == "[key]":
            annotation = tagged.get(str(key))
            continue
        annotation = _inside(annotation, key)
        found.append(key)
    return tuple(found)


def _unknown_field(keys: Keys) -> Problem:
    name = str(keys[-1])
    names = _field_names(_section(keys[:-1]))
    message, hint = "is an unknown field", _suggest_fields(name, names)
    kinds = (form.ProgramEntry, form.RemoteEntry, form.CommandLineEntry, form.OpenApiEntry, form.SkillsEntry)
    if len(keys) == 4 and keys[0] == "mcpServers" and any(name in _field_names(kind) for kind in kinds):
        if name in _KIND_FIELDS.values():
            message, hint = f"cannot stand beside `{_KIND_FIELDS[str(keys[2])]}`", _KIND_HINT
        else:
            hint = _KIND_HINT
    return Problem(format_path(_path_in_file(keys)), message, hint)


def _suggest_fields(name: str, names: Sequence[str]) -> str:
    """Return the fields that may be meant: the closest ones, else all if they are few."""
    near = [f"`{each}`" for each in closest(name, names, cutoff=0.6)]
    if near:
        return f"did you mean {' or '.join(near)}?"
    if len(names) <= _MOST_FIELDS:
        return "the fields here are " + ", ".join(f"`{each}`" for each in names)
    return "the fields are many; docs/configuration.md lists them"


def _section(keys: Keys) -> type[Struct]:
    (section,) = by_tag(_annotation(keys)).values()
    return section


def _annotation(keys: Keys) -> Any:  # Any: types are values here
    annotation: Any = form.Root
    for key in keys:
        tagged = by_tag(annotation)
        annotation = tagged[str(key)] if len(tagged) > 1 else _inside(annotation, key)
    return annotation


def _inside(annotation: Any, key: str | int) -> Any:  # Any: types are values here
    """Return the annotation of a value in an object, a map or a list."""
    for section in by_tag(annotation).values():
        found = file_fields(section).get(str(key))
        return None if found is None else found.type
    for part in alternatives(annotation):
        if get_origin(part) is dict:
            return get_args(part)[1]
        if get_origin(part) in (list, tuple):
            return get_args(part)[0]
    return None


def _field_names(section: type[Struct]) -> list[str]:
    tag = section.__struct_config__.tag_field
    return [*([tag] if tag is not None and not is_user_key(tag) else []), *file_fields(section)]
