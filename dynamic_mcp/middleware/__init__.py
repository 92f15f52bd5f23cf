"""The API for plug-ins: the only package of dynamic-mcp that other projects import.

These names follow semantic versioning, as docs/plugins.md says. Only the standard library is imported here, and
nothing else of dynamic-mcp.
"""

from dynamic_mcp.middleware.base import Middleware, Next, PluginServices
from dynamic_mcp.middleware.calls import CallerInfo, CallFailed, CallKind, CallRequest, CallResult
from dynamic_mcp.middleware.items import Item, ListKind

__all__ = [
    "CallFailed",
    "CallKind",
    "CallRequest",
    "CallResult",
    "CallerInfo",
    "Item",
    "ListKind",
    "Middleware",
    "Next",
    "PluginServices",
]
