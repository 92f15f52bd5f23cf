"""A group in the hands of one client: what commands and the doctor ask of a group without a request of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.mcp import wire

if TYPE_CHECKING:  # a command that asks the daemon does without all of this
    from dynamic_mcp.client import Client
    from dynamic_mcp.config.resolved import GroupConfig
    from dynamic_mcp.groups.lifecycle import State
    from dynamic_mcp.policy.access import Judgement
    from dynamic_mcp.policy.classify import Classification
    from dynamic_mcp.proxy.view import GroupView


class ClientGroup(Protocol):
    """A group as a command has it, from a proxy in this process or from the daemon."""

    @property
    def name(self) -> str: ...

    @property
    def config(self) -> GroupConfig:
        """The server that the group runs or connects to."""
        ...

    @property
    def description(self) -> str:
        """One line for a model."""
        ...

    @property
    def catalog(self) -> Catalog | None:
        """The catalog; None while unknown."""
        ...

    def offers(self, feature: str) -> bool:
        """Return whether the config lets this feature through."""
        ...

    def complaint(self, kinds: Iterable[ListKind]) -> str:
        """Say what is missing from these lists and why; empty when they are whole."""
        ...

    async def read_catalog(self, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        """Return what the group offers, connecting to learn it only if need be. Raises DynamicMcpError."""
        ...

    async def reread(self) -> Catalog:
        """Read the tools again. Raises DynamicMcpError."""
        ...

    async def ping(self) -> None:
        """Ask the server whether it answers. Raises DynamicMcpError."""
        ...


class ViewedGroup:
    """One group of a client's view."""

    def __init__(self, view: GroupView, client: Client) -> None:
        self.name = view.name
        self._view = view
        self._client = client

    @property
    def config(self) -> GroupConfig:
        return self._view.config

    @property
    def description(self) -> str:
        return self._view.description

    @property
    def state(self) -> State:
        return self._view.state

    @property
    def catalog(self) -> Catalog | None:
        return self._view.catalog

    @property
    def whole(self) -> Catalog | None:
        """The unfiltered catalog; None while unknown."""
        return self._view.group.catalog

    @property
    def is_from_disk(self) -> bool:
        """True if the catalog is that of an earlier start, and the server has not been asked since."""
        return self._view.group.is_catalog_from_disk

    @property
    def may_ask_about_arguments(self) -> bool:
        """Return whether a guard may ask a person about the arguments of a call."""
        return self._view.presentation.asks

    def classify(self, tool: str) -> Classification:
        """Return whether a tool counts as reading or as writing, and why; it is named as clients see it."""
        from dynamic_mcp.policy.classify import access_of

        own_name, whole = self._view.own_name(tool), self.whole
        entry = whole.tools.get(own_name) if whole is not None else None
        return access_of(own_name, entry or wire.EMPTY_OBJECT, self._view.presentation.effects)

    def judge(self, tool: str) -> Judgement | None:
        """Return what the access rules say of a tool, named as clients see it; None if there are no rules."""
        from dynamic_mcp.config.access import AccessKind

        view = self._view
        return None if view.rules is None else view.judge(AccessKind.TOOL, view.own_name(tool))

    def offers(self, feature: str) -> bool:
        return self._view.offers(feature)

    def complaint(self, kinds: Iterable[ListKind]) -> str:
        return self._view.complaint(kinds)

    async def read_catalog(self, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        return await self._view.learn_catalog(self._client, kinds)

    async def reread(self, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        return await self._view.reread(self._client, kinds)

    async def connect_again(self) -> None:
        """Connect at once, also right after a failure that would not be retried. Raises DynamicMcpError."""
        await self._view.group.connect_again(self._client)

    async def ping(self) -> None:
        instance = self._view.group.instance_for(self._client)
        await instance.request("ping", None, timeout_s=self.config.timeouts.connect_s)
