"""Finds the class of a plug-in: by the entry point of an installed package, or by module and class."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from dynamic_mcp.errors import PluginError, closest
from dynamic_mcp.middleware import Middleware

GROUP = "dynamic_mcp.middleware"
_INSTALL = "install its package into the environment of dynamic-mcp"


def load(use: str) -> type[Middleware]:
    """Import a plug-in, which may take a while, and return its class. Raises PluginError."""
    reference = use if ":" in use else _find(use).value
    module_name, _, attribute = reference.partition(":")
    try:
        found: object = import_module(module_name)
    except ModuleNotFoundError as exc:
        if exc.name is not None and f"{module_name}.".startswith(f"{exc.name}."):
            raise PluginError(use, f"there is no module `{module_name}`", hint=_INSTALL) from exc
        raise PluginError(use, f"`{module_name}` cannot be imported: {_describe(exc)}") from exc
    except (Exception, SystemExit) as exc:
        raise PluginError(use, f"`{module_name}` cannot be imported: {_describe(exc)}") from exc
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as exc:
            raise PluginError(use, f"`{module_name}` has no `{attribute}`") from exc
    if not (isinstance(found, type) and issubclass(found, Middleware)):
        raise PluginError(use, f"`{reference}` is not a subclass of `dynamic_mcp.middleware.Middleware`")
    return found


def _find(name: str) -> EntryPoint:
    offered = entry_points(group=GROUP)
    found = {each.value: each for each in offered if each.name == name}
    if not found:
        near = closest(name, offered.names)
        hint = f"did you mean `{near[0]}`? else {_INSTALL}" if near else f"{_INSTALL}, or name it as `module:Class`"
        raise PluginError(name, "no installed package offers a plug-in of this name", hint=hint)
    if len(found) > 1:
        raise PluginError(
            name,
            f"several packages offer a plug-in of this name: {', '.join(f'`{value}`' for value in sorted(found))}",
            hint="name the one you mean as `module:Class`",
        )
    return found.popitem()[1]


def _describe(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
