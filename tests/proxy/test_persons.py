"""Persons with a login each: nothing of one reaches another, and what needs no login is shared as ever."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

import pytest

from dynamic_mcp.config.access import Access, AccessRule
from dynamic_mcp.config.resolved import Share
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.identity import LOCAL_USER, Authentication, Principal
from tests.fakes import BOUND_S, Client, Json, group_config, settled, text_of
from tests.proxy.persons import ANN, BOB, desk, remote
from tests.proxy.windows import echo, shown

_DIRECT = DirectTools(is_all=True)


async def test_each_person_has_groups_catalogs_and_calls_of_their_own(tmp_path: Path) -> None:
    async with desk(store=CatalogStore(tmp_path)) as on:
        ann, bob, local = await on.join(ANN), await on.join(BOB), await on.join()

        said = [await echo(each, "far") for each in (ann, bob, local)]
        lists = [await shown(each, "far") for each in (ann, bob, local)]

        assert said == ["as ann", "as bob", "as nobody"]
        for own, text in zip(("ann", "bob", "nobody"), lists, strict=True):
            assert [f"tool_of_{who}" in text for who in ("ann", "bob", "nobody")] == [
                who == own for who in ("ann", "bob", "nobody")
            ]


@pytest.mark.parametrize("share", [Share.AUTO, Share.USER, Share.SESSION])
async def test_persons_share_no_group_whatever_shares_an_instance(share: Share) -> None:
    async with desk(group_config("far", upstream=remote(), share=share)) as on:
        said = [await echo(await on.join(who), "far") for who in (LOCAL_USER, ANN, BOB)]

        assert said == ["as nobody", "as ann", "as bob"]


async def test_a_subject_of_another_issuer_is_another_person() -> None:
    async with desk() as on:
        await echo(await on.join(ANN), "far")
        await echo(await on.join(Authentication(Principal("https://idp.test", "ann"), "jwt")), "far")

        assert len(on.connector.reached("far")) == 2
        assert len({*on.proxy.groups}) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"upstream": remote(is_shared=True)},
        {"upstream": remote(), "share": Share.ALL},
        {"upstream": remote(grant="client_credentials")},
        {},
    ],
)
async def test_persons_get_no_groups_where_no_server_has_a_login_of_each(changes: Json) -> None:
    async with desk(group_config("far", **changes)) as on:
        clients = [await on.join(Authentication(Principal("token", f"p{n}"), "bearer")) for n in range(20)]

        assert [await echo(each, "far") for each in clients] == ["as nobody"] * 20
        assert len(list(on.proxy.groups)) == 1
        assert len({on.proxy.view_for(each.session) for each in clients}) == 1


async def test_a_header_of_the_config_is_used_for_all() -> None:
    far = remote()
    headers = {"authorization": "Bearer of all"}
    async with desk(group_config("far", upstream=type(far)(far.kind, far.url, headers, far.oauth))) as on:
        assert [await echo(await on.join(who), "far") for who in (ANN, BOB)] == ["as nobody"] * 2


async def test_servers_without_logins_stay_shared_beside_those_that_have_them() -> None:
    async with desk(group_config("far", upstream=remote()), group_config("near")) as on:
        ann, bob = await on.join(ANN), await on.join(BOB)
        for each in (ann, bob):
            await echo(each, "near")

        groups = [on.proxy.groups.of(who.principal) for who in (ANN, BOB)]
        assert groups[0]["near"] is groups[1]["near"] is on.proxy.groups["near"]
        assert groups[0]["far"] is not groups[1]["far"]


async def test_a_person_is_forgotten_with_its_last_client() -> None:
    async with desk() as on:
        one, other, bob = await on.join(ANN), await on.join(ANN), await on.join(BOB)
        for each in (one, other, bob):
            await echo(each, "far")

        await on.leave(one)
        assert await echo(other, "far") == "as ann"
        await on.leave(other)

        assert on.proxy.groups.of(ANN.principal) == {}
        assert len(list(on.proxy.groups)) == 2
        assert [server.closed for server in on.connector.servers if server.who == "ann"] == [True]
        assert await echo(bob, "far") == "as bob"


async def test_a_person_who_comes_back_finds_its_own_catalog_on_disk_and_nobody_elses(tmp_path: Path) -> None:
    store = CatalogStore(tmp_path)
    async with desk(store=store) as on:
        await echo(await on.join(ANN), "far")
    async with desk(store=store) as on:
        on.connector.mute = {"ann", "bob"}
        for who in (ANN, BOB):
            await on.join(who)

        known = [on.proxy.groups.of(who.principal)["far"].catalog for who in (ANN, BOB)]
        assert [each is not None for each in known] == [True, False]


async def test_a_client_before_its_greeting_never_uses_the_logins_of_the_local_user() -> None:
    async with desk() as on:
        local = await on.join()
        await echo(local, "far")
        ann = Client(on.proxy, authentication=ANN)

        assert text_of(await ann.call("far", "echo")) == "as ann"

        await on.leave(ann)
        assert on.proxy.groups.of(ANN.principal) == {}


async def test_a_client_that_has_gone_sees_nothing_and_brings_nobody_back() -> None:
    async with desk() as on:
        ann = await on.join(ANN)
        await on.leave(ann)

        assert list(on.proxy.view_for(ann.session)) == []
        assert on.proxy.groups.of(ANN.principal) == {}


async def test_persons_who_are_there_get_logins_of_their_own_with_a_reload_and_lose_them_with_another() -> None:
    shared, own = (group_config("far", upstream=remote(is_shared=each)) for each in (True, False))
    async with desk(shared) as on:
        ann, bob = await on.join(ANN), await on.join(BOB)
        assert await echo(ann, "far") == "as nobody"

        await on.reload(own)
        assert [await echo(each, "far") for each in (ann, bob)] == ["as ann", "as bob"]

        await on.reload(shared)
        assert [await echo(each, "far") for each in (ann, bob)] == ["as nobody"] * 2
        assert len(list(on.proxy.groups)) == 1


async def test_a_reload_that_changes_nothing_of_a_server_keeps_the_connections_of_all() -> None:
    far = group_config("far", upstream=remote())
    async with desk(far) as on:
        ann, bob = await on.join(ANN), await on.join(BOB)
        before = [await echo(each, "far") for each in (ann, bob)]

        await on.reload(far, group_config("near"))

        assert [await echo(each, "far") for each in (ann, bob)] == before
        assert on.connector.reached("far") == ["ann", "bob"]
        await settled()


async def test_a_changed_catalog_of_one_person_is_announced_to_that_person_alone() -> None:
    async with desk(group_config("far", upstream=remote(), direct=_DIRECT)) as on:
        ann, bob = await on.join(ANN), await on.join(BOB)
        for each in (ann, bob):
            await echo(each, "far")
            await each.hears("notifications/tools/list_changed")
        of_ann = next(server for server in on.connector.servers if server.who == "ann")
        before = [len(each.heard("notifications/tools/list_changed")) for each in (ann, bob)]

        of_ann.answers["tools/list"] = {"tools": [{"name": "other", "inputSchema": {"type": "object"}}]}
        of_ann.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

        await ann.hears("notifications/tools/list_changed", before[0] + 1)
        await settled()
        assert len(bob.heard("notifications/tools/list_changed")) == before[1]


async def test_nothing_holds_on_to_the_groups_of_a_person_who_has_gone() -> None:
    async with desk(group_config("far", upstream=remote()), group_config("near")) as on:
        ann = await on.join(ANN)
        await echo(ann, "far")
        group = weakref.ref(on.proxy.groups.of(ANN.principal)["far"])
        assert group() is not None

        await on.leave(ann)
        del ann
        on.connector.forget()
        async with asyncio.timeout(BOUND_S):
            while group() is not None:
                gc.collect()
                await asyncio.sleep(0.01)


async def test_persons_with_roles_see_of_their_own_groups_what_their_roles_may() -> None:
    access = Access(roles={"dev": (AccessRule("dev"),), "reader": (AccessRule("reader", tools=("tool_of_*",)),)})
    dev, reader = (
        Authentication(who.principal, "bearer", roles=(role,)) for who, role in ((ANN, "dev"), (BOB, "reader"))
    )
    async with desk(access=access) as on:
        ann, bob = await on.join(dev), await on.join(reader)

        assert await echo(ann, "far") == "as ann"
        assert "as bob" not in await echo(bob, "far")
        assert text_of(await bob.call("far", "tool_of_bob")) == "as bob"
        assert ["tool_of_ann" in await shown(each, "far") for each in (ann, bob)] == [True, False]


async def test_what_changes_for_one_person_is_not_looked_up_for_others() -> None:
    async with desk() as on:
        ann, bob = await on.join(ANN), await on.join(BOB)
        groups = {who: on.proxy.groups.of(who.principal)["far"] for who in (ANN, BOB)}

        assert on.proxy.view_for(ann.session).has_group(groups[ANN])
        assert not on.proxy.view_for(ann.session).has_group(groups[BOB])
        assert [*on.proxy.groups.that_may_serve(bob.session)] == [groups[BOB], on.proxy.groups["far"]]
