"""The subject of an approval: a request with its texts, and the key that the approval is bound to."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from hashlib import sha256

from msgspec import Raw, Struct

from dynamic_mcp.client import Client
from dynamic_mcp.config.access import AccessKind, Effect
from dynamic_mcp.config.resolved import Share
from dynamic_mcp.errors import ApprovalDenied, DynamicMcpError, InvalidArguments
from dynamic_mcp.features.approvals.questions import ApprovalKey
from dynamic_mcp.features.approvals.store import Scope
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp import strict_json, wire
from dynamic_mcp.mcp.envelope import RETRY_MEMBERS
from dynamic_mcp.policy.call_rules import judging_rules
from dynamic_mcp.policy.classify import access_of
from dynamic_mcp.proxy.misfits import must_fit
from dynamic_mcp.proxy.request import UpstreamRequest
from dynamic_mcp.proxy.view import GroupView
from dynamic_mcp.system.text import one_line
from dynamic_mcp.tools import arguments
from dynamic_mcp.tools.schema import InputSchema

# Longer arguments cannot be shown, so they cannot be approved.
MAX_ARGUMENT_BYTES = 256 << 10
_LONGEST_NAME = 200
_KINDS = {"tools/call": ListKind.TOOLS, "prompts/get": ListKind.PROMPTS}
# `_meta` is about the message, with a new progress token each time. The other names are bound separately.
_NOT_ARGUMENTS = frozenset(("_meta", "name", "uri", *RETRY_MEMBERS))


class Right(Struct, frozen=True):
    """The client's permission for a request: its roles, and the rule that allows it."""

    roles: tuple[str, ...] = ()
    rule: str = ""


class Subject(Struct, frozen=True):
    """A request that needs approval, with the arguments that would be sent.

    `right` says why the client may send it, if there are access rules.
    """

    key: ApprovalKey
    group: GroupView
    access: str
    description: str
    arguments: Raw
    notes: tuple[str, ...]
    client_name: str
    client: weakref.ref[Client]
    right: Right | None

    @property
    def label(self) -> str:
        """The subject in error messages to the client."""
        name = self.group.shown_name(self.key.name) if self.key.kind == "tool" else self.key.name
        return f"`{one_line(name, _LONGEST_NAME)}` of group `{self.group.name}`"

    @property
    def group_name(self) -> str:
        return self.group.name

    @property
    def principal(self) -> Principal:
        return self.key.principal

    def limit_scopes(self, offered: Sequence[Scope]) -> tuple[Scope, ...]:
        """Return for how long it may be allowed, of what is offered."""
        return tuple(offered)

    def is_current(self, message: UpstreamRequest) -> bool:
        """Return whether a request is still about the same, by what is known now. Raises ApprovalDenied."""
        current = self.group.group.current_for(message.request.client)
        return current is self.group.group and describe(message, self.key.rule).key == self.key

    def check_edit(self, edited: Raw) -> None:
        """Raise InvalidArguments if these arguments cannot replace the original ones.

        They use the server's names, and may change values fixed by the config: the user decides.
        """
        if self.key.kind == "resource":
            raise InvalidArguments("a resource has no arguments that could be changed")
        try:
            strict_json.canonical(bytes(edited))
        except ValueError as exc:
            raise InvalidArguments(f"the arguments cannot be read: {exc}") from None
        if self.key.kind == "tool":
            self._check_by_schema(edited)
        elif bytes(edited).lstrip()[:1] != b"{":
            raise InvalidArguments("the arguments are not an object")
        if self.group.rules is not None:
            judgement = self.group.judge(AccessKind(self.key.kind), self.key.name)
            if judgement.decide(edited).effect is Effect.DENY:
                raise InvalidArguments(f"the access rules do not allow {self.label} with these arguments")
        self._check_by_call_rules(edited)

    def _check_by_call_rules(self, edited: Raw) -> None:
        if self.key.kind != "tool":
            return
        try:
            for each in self.group.call_rules.values():
                each.check_arguments(self.key.name, edited)
        except DynamicMcpError as exc:
            raise InvalidArguments(exc.message) from None

    def _check_by_schema(self, edited: Raw) -> None:
        catalog, name = self.group.group.catalog, self.key.name
        if catalog is None or not must_fit(self.group, self.group.shown_name(name)):
            schema = InputSchema(wire.EMPTY_OBJECT)
        else:
            schema = catalog.input_schema(name)
        if not arguments.is_valid(schema, edited):
            flaws = schema.describe_flaws(edited)
            raise InvalidArguments(f"the arguments do not fit {self.label}: {flaws or 'they are not an object'}")


async def identify(message: UpstreamRequest, rule: str, right: Right | None) -> Subject:
    """Return the subject of a request, by the server's current definitions.

    Raises ApprovalDenied if it cannot be shown, and UpstreamError if the server cannot be reached.
    """
    kind = _KINDS.get(message.method, ListKind.RESOURCES)
    if message.group.state is not State.READY:
        # the definition cached on disk may be outdated
        await message.group.reread(message.request.client, [kind])
    return describe(message, rule, right)


def describe(message: UpstreamRequest, rule: str, right: Right | None = None) -> Subject:
    """Return the subject of a request, by the known definitions. Raises ApprovalDenied if it cannot be shown."""
    params, group, client = message.params or {}, message.group, message.request.client
    kind = _KINDS.get(message.method, ListKind.RESOURCES)
    name = wire.text(params.get(kind.key)) or ""
    catalog = group.group.catalog
    entry = wire.EMPTY_OBJECT if catalog is None else catalog.entries(kind).get(name, wire.EMPTY_OBJECT)
    is_tool = kind is ListKind.TOOLS
    shown = group.shown_name(name) if is_tool else name
    key = ApprovalKey(
        principal=message.request.principal,
        server=group.group,
        kind=kind.noun,
        name=name,
        definition=sha256(wire.compact(entry)).digest(),
        rules=(group.rules, tuple(judging_rules(group.presentation))),
        rule=rule,
        arguments=_digest(params, f"`{one_line(shown, _LONGEST_NAME)}` of group `{group.name}`"),
        session=client if group.config.share is Share.SESSION else None,
    )
    return Subject(
        key=key,
        group=group,
        access=access_of(name, entry, group.presentation.effects).access if is_tool else "read",
        description=wire.text(wire.member(entry, "description")) or "",
        arguments=params.get("arguments", wire.EMPTY_OBJECT).copy(),  # without the message around it
        notes=message.notes,
        client_name=client.hello.name,
        client=weakref.ref(client),
        right=right,
    )


def state_digest(params: Mapping[str, Raw]) -> bytes | None:
    """Return a digest of the state that a retry continues; None for a request that is not a retry."""
    return None if RETRY_MEMBERS.isdisjoint(params) else digest_of_state(params.get("requestState", wire.ABSENT))


def digest_of_state(state: Raw) -> bytes:
    """Return a digest of the `requestState` of a result or of its retry; empty if there is none."""
    return sha256((wire.text(state) or "").encode()).digest() if len(state) else b""


def _digest(params: Mapping[str, Raw], label: str) -> bytes:
    """Return a digest of everything that a server may act on. Raises ApprovalDenied."""
    bound = {name: value for name, value in params.items() if name not in _NOT_ARGUMENTS}
    if sum(map(len, bound.values())) > MAX_ARGUMENT_BYTES:
        raise ApprovalDenied(label, f"more than {MAX_ARGUMENT_BYTES >> 10} KiB of arguments cannot be shown")
    try:
        return sha256(strict_json.canonical(wire.encode(bound))).digest()
    except ValueError as exc:  # servers may parse them differently from what the user sees
        raise ApprovalDenied(label, f"its arguments can be read in more than one way: {exc}") from None
