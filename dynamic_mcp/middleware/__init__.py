"""What plug-ins are written against: the one package of dynamic-mcp that others import.

These names keep their meaning by semantic versioning, as docs/plugins.md says. Nothing else of dynamic-mcp is
imported here, and nothing but the standard library.
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
