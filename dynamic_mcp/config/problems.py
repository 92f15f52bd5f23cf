"""Describes the problems of a config: where they are, what is wrong, how to fix them.

Imported only when there is a problem. Messages repeat a value only if it cannot be a secret.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from msgspec import structs
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dynamic_mcp.config import form
from dynamic_mcp.config.http_form import Http, Tls
from dynamic_mcp.config.keys import Keys, format_path
from dynamic_mcp.config.model import Root
from dynamic_mcp.config.section import Section
from dynamic_mcp.errors import ConfigError

_KINDS: dict[str, type[Section]] = {"stdio": form.Program, "remote": form.Remote}
_SECTIONS: dict[str, type[Section]] = {
    "features": form.Features,
    "timeout": form.Timeout,
    "tools": form.Tools,
    "retry": form.Retry,
    "oauth": form.OAuth,
    "identity_provider": form.IdentityProvider,
    "settings": form.Settings,
    "log": form.Log,
    "daemon": form.Daemon,
    "http": Http,
    "tls": Tls,
    "search": form.Search,
    "embeddings": form.Embeddings,
}
_KIND_HINT = "a server has either `command`, if it is a program, or `url`, if it is remote"
_MESSAGES = {
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "string_too_short": "must not be empty",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
}


@dataclass(frozen=True)
class Problem:
    """One problem; `where` is a path such as `mcpServers.github.url`."""

    where: str
    message: str
    hint: str = ""


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
            hint = "`http` is streamable HTTP, `sse` the older transport; leave it out to detect it"
            return Problem(f"{where}.type", "must be `stdio`, `http` or `sse`", hint)
        case "literal_error":
            return Problem(where, "must be " + str(context["expected"]).replace("'", "`"))
        case "greater_than_equal":
            return Problem(where, f"must be at least {context['ge']}")
        case "less_than_equal":
            return Problem(where, f"must be at most {context['le']}")
        case kind:
            return Problem(where, _MESSAGES.get(kind) or details["msg"].lower())


def _path_in_file(keys: Keys) -> Keys:
    # after a server's name, pydantic inserts the tag of its kind, or a mark that the name itself is invalid
    return keys[:2] + keys[3:] if keys[:1] == ("mcpServers",) else keys


def _unknown_field(keys: Keys) -> Problem:
    name = str(keys[-1])
    fields = _field_names(_section(keys[:-1]))
    near = get_close_matches(name, fields, 1)
    hint = "the fields here are " + ", ".join(f"`{field}`" for field in fields)
    if len(keys) == 4 and keys[0] == "mcpServers" and any(name in _field_names(kind) for kind in _KINDS.values()):
        hint = f"{_KIND_HINT}; {hint}"
    elif near:
        hint = f"did you mean `{near[0]}`? {hint}"
    return Problem(format_path(_path_in_file(keys)), "is an unknown field", hint)


def _section(keys: Keys) -> type[Section]:
    if not keys:
        return form.Root
    if keys[0] == "mcpServers" and len(keys) == 3:
        return _KINDS[str(keys[2])]
    return _SECTIONS[str(keys[-1])]


def _field_names(section: type[Section]) -> list[str]:
    return [field.encode_name for field in structs.fields(section)]
