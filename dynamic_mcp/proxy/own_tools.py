"""The interface by which a feature adds a tool of ours to `tools/list`, and answers its calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Raw, Struct

if TYPE_CHECKING:
    from dynamic_mcp.client import Client
    from dynamic_mcp.config.resolved import Config
    from dynamic_mcp.mcp.wire import Frame
    from dynamic_mcp.proxy.request import CallPlan, Request
    from dynamic_mcp.proxy.result_store import ResultStore
    from dynamic_mcp.proxy.view import View
    from dynamic_mcp.system.clock import Clock
    from dynamic_mcp.system.shared_store import SharedStore
    from dynamic_mcp.tools.schema import InputSchema


class FoundTool(Struct, frozen=True):
    """A tool as a client sees it: the names and the definition that it is shown, and what its arguments must fit.

    `is_certain` is False where its server may say something else by now.
    """

    group: str
    name: str
    definition: Raw
    schema: InputSchema
    is_certain: bool


class FindTool(Protocol):
    """Finds the tool that a call with these names of a group and a tool would reach.

    With `fresh`, the server is asked for its tools again. Raises what the call would raise.
    """

    def __call__(self, group: str, name: str, *, fresh: bool = False) -> Awaitable[FoundTool]: ...


class OwnToolContext(Struct, frozen=True):
    """What such a tool works with.

    `view_for` returns what a client may see now. `answer` answers a request that a call of the tool has caused, whose
    `parent` is the call: by the same rules as any other request of its client, and observed like one. It raises
    DynamicMcpError. `finder_for` returns what finds tools for the client of a request. `results` returns the store of
    results that are too long. Bounds of time go by `clock`. `ask_ahead` has a person asked at once about calls that a
    call of the tool is going to cause; it raises DynamicMcpError if none may be made. What is to survive a restart is
    kept in `state_folder`, if there is one, or in what `find_shared_store` returns, if replicas share something.
    """

    view_for: Callable[[Client], View]
    answer: Callable[[Request], Awaitable[Frame]]
    finder_for: Callable[[Request], FindTool]
    results: Callable[[], ResultStore]
    clock: Clock
    ask_ahead: Callable[[Request, CallPlan], Awaitable[None]]
    state_folder: Path | None
    find_shared_store: Callable[[], SharedStore | None]


class OwnTool:
    """Is made by `make_tool` of a module when a config first wants it, and lives as long as the proxy."""

    def apply(self, config: Config) -> None:
        """Work as this config says from now on."""
        raise NotImplementedError

    def describe(self, view: View) -> Raw | None:
        """Return its definition, the same object while it is the same; None where a view is without the tool."""
        raise NotImplementedError

    @property
    def is_for_all(self) -> bool:
        """Return whether every client is offered the tool, where its view has it."""
        return True

    def is_for(self, client: Client) -> bool:
        """Return whether a client is offered the tool, where its view has it."""
        return True

    def answer(self, request: Request, params: Mapping[str, Raw]) -> Awaitable[Frame]:
        """Answer a call. Raises DynamicMcpError."""
        raise NotImplementedError

    async def close(self) -> None:
        """Release what it has opened; no call is in flight any more."""
