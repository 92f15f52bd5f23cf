"""Which part of the proxy answers which method of MCP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from dynamic_mcp.proxy.chain import Chains
from dynamic_mcp.proxy.log_levels import LogLevels
from dynamic_mcp.proxy.router import UseCase
from dynamic_mcp.proxy.tasks import Tasks
from dynamic_mcp.proxy.tools import Tools

if TYPE_CHECKING:  # loaded with the first request for one
    from dynamic_mcp.proxy.completion import Completion
    from dynamic_mcp.proxy.prompts import Prompts
    from dynamic_mcp.proxy.resources import Resources


def list_use_cases(
    chains: Chains, tools: Tools, resources: Callable[[], Resources], tasks: Tasks, log_levels: LogLevels
) -> Mapping[str, UseCase]:
    """Return what answers each method for a client that sees all groups as one server."""

    @cache
    def prompts() -> Prompts:
        from dynamic_mcp.proxy.prompts import Prompts

        return Prompts(chains)

    @cache
    def completion() -> Completion:
        from dynamic_mcp.proxy.completion import Completion

        return Completion(chains)

    return {
        "tools/list": tools.list_tools,
        "tools/call": tools.call,
        "resources/list": lambda request: resources().list_resources(request),
        "resources/templates/list": lambda request: resources().list_templates(request),
        "resources/read": lambda request: resources().read(request),
        "resources/subscribe": lambda request: resources().subscribe(request),
        "resources/unsubscribe": lambda request: resources().unsubscribe(request),
        "prompts/list": lambda request: prompts().list_prompts(request),
        "prompts/get": lambda request: prompts().get(request),
        "completion/complete": lambda request: completion().complete(request),
        "logging/setLevel": log_levels.set,
        "tasks/get": tasks.get,
        "tasks/cancel": tasks.get,
        "tasks/update": tasks.update,
        "tasks/result": tasks.result,
        "tasks/list": tasks.list_tasks,
    }
