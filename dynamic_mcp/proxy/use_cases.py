"""Which part of the proxy answers which method of MCP."""

from __future__ import annotations

from collections.abc import Mapping

from dynamic_mcp.proxy.chain import Chains
from dynamic_mcp.proxy.completion import Completion
from dynamic_mcp.proxy.log_levels import LogLevels
from dynamic_mcp.proxy.prompts import Prompts
from dynamic_mcp.proxy.resources import Resources
from dynamic_mcp.proxy.router import UseCase
from dynamic_mcp.proxy.tasks import Tasks
from dynamic_mcp.proxy.tools import Tools


def list_use_cases(
    chains: Chains, tools: Tools, resources: Resources, tasks: Tasks, log_levels: LogLevels
) -> Mapping[str, UseCase]:
    """Return what answers each method for a client that sees all groups as one server."""
    prompts = Prompts(chains)
    return {
        "tools/list": tools.list_tools,
        "tools/call": tools.call,
        "resources/list": resources.list_resources,
        "resources/templates/list": resources.list_templates,
        "resources/read": resources.read,
        "resources/subscribe": resources.subscribe,
        "resources/unsubscribe": resources.unsubscribe,
        "prompts/list": prompts.list_prompts,
        "prompts/get": prompts.get,
        "completion/complete": Completion(chains).complete,
        "logging/setLevel": log_levels.set,
        "tasks/get": tasks.get,
        "tasks/cancel": tasks.get,
        "tasks/update": tasks.update,
        "tasks/result": tasks.result,
        "tasks/list": tasks.list_tasks,
    }
