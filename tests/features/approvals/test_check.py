"""What is found wrong with approvals: globs that match nothing, and questions that nobody hears of."""

from __future__ import annotations

from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.config.access import Access, AccessRule, Effect
from dynamic_mcp.config.auth import BearerAuth
from dynamic_mcp.config.http import Http
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.features.approvals.check import check
from dynamic_mcp.features.approvals.config import Approval, Notify
from dynamic_mcp.features.guards.config import Guard
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from tests.fakes import config_of, group_config

CATALOG = Catalog({ListKind.TOOLS: Listing({name: Raw(b"{}") for name in ("delete_item", "get_item")})})


def config(*globs: str, approval: Approval | None = None, **changes: Any) -> Config:  # Any: fields of Config
    access = Access(default=Effect.ALLOW, approve={"a": globs} if globs else {})
    made = config_of(group_config("a"), access=access, approval=approval or Approval())
    return replace(made, **changes)


def found(config: Config, *, is_known: bool = True) -> dict[str, str]:
    return {each.where: each.what for each in check(config, lambda: {"a": CATALOG} if is_known else {})}


def test_a_glob_that_matches_no_known_tool_is_found() -> None:
    assert list(found(config("delete_*", "remove_*", "DELETE_ITEM", "*"))) == ["mcpServers.a.approve[1]"]
    assert found(config("remove_*"), is_known=False) == {}


def test_a_name_that_is_like_a_tool_is_suggested() -> None:
    (finding,) = check(config("delete_itm"), lambda: {"a": CATALOG})

    assert finding.hint == "did you mean `delete_item`?"


def test_nobody_is_asked_where_no_rule_says_so() -> None:
    alone = Approval(channels=("client",))

    assert found(config(approval=alone)) == {}
    rules = Access(default=Effect.DENY, roles={"dev": (AccessRule("x", effect=Effect.ASK),)})
    assert list(found(config(approval=alone, access=rules))) == ["settings.approval.channels"]


def test_people_who_cannot_answer_their_own_questions_are_found() -> None:
    queue = Approval(channels=("queue",))
    shared = Http(auth=(BearerAuth(),))

    said = found(config("*", approval=queue, http=shared))
    assert "only a user of this machine or an approver can" in said["settings.approval.channels"]
    assert found(config("*", approval=queue)) == {}
    assert found(config("*", http=shared)) == {}


def test_a_queue_that_nobody_hears_of_is_found() -> None:
    silent = Approval(notify=Notify(desktop=False))

    assert list(found(config("*", approval=silent))) == ["settings.approval.notify"]
    assert found(config("*", approval=replace(silent, notify=Notify(desktop=False, command=("notify",))))) == {}


def test_a_guard_that_asks_needs_somebody_who_is_told() -> None:
    group = group_config("a", rules={"guards": (Guard("g", deny="x", effect="ask"),)})
    alone = config_of(group, approval=Approval(channels=("client",)))

    assert list(found(alone)) == ["settings.approval.channels"]
