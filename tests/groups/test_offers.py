"""What a server has offered to which kinds of clients, and what clients of several kinds are told of together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import Raw

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from dynamic_mcp.groups.catalog_store import CatalogStore, key
from dynamic_mcp.groups.offers import MAX_KINDS, ClientKind, Offers, digest_of, kind_of
from tests.fakes import Json, group_config


def hello(name: str, version: str = "1", **capabilities: Json) -> ClientInfo:
    info = json.dumps({"name": name, "version": version}).encode()
    return ClientInfo(client_info=Raw(info), capabilities=Raw(json.dumps(capabilities).encode()))


def kind(name: str, **capabilities: Json) -> ClientKind:
    found = kind_of(hello(name, **capabilities))
    assert found is not None
    return found


def offered(*offers: tuple[ClientKind, str]) -> Offers:
    found = Offers()
    for each, digest in offers:
        found = found.record(each, digest)
    return found


def test_the_version_of_a_client_makes_no_other_kind_and_its_capabilities_do() -> None:
    assert kind_of(hello("ide", "1")) == kind_of(hello("ide", "2"))
    assert kind_of(hello("ide")) != kind_of(hello("ide", roots={}))


@pytest.mark.parametrize(
    "odd", [hello(""), hello("x" * 10_000), hello("ide", roots={"x": "y" * 10_000}), ClientInfo()]
)
def test_a_client_that_says_nothing_or_too_much_of_itself_is_compared_with_no_other(odd: ClientInfo) -> None:
    assert kind_of(odd) is None


def test_kinds_that_are_offered_the_same_are_told_of_as_one_with_what_any_of_them_can_be_asked() -> None:
    ide = kind("ide", roots={"listChanged": True}, elicitation={"form": {}}, tools=True)
    cli = kind("cli", elicitation={"url": {}}, sampling={}, tasks={"list": {}})
    found = offered((ide, "a"), (cli, "a")).common_hello(ide)

    assert found is not None
    assert (found.name, found.is_common) == ("dynamic-mcp", True)
    assert json.loads(bytes(found.capabilities)) == {
        "elicitation": {"form": {}, "url": {}},
        "roots": {"listChanged": True},
        "sampling": {},
    }


def test_what_they_are_told_of_does_not_depend_on_who_came_first() -> None:
    ide, cli = kind("ide", roots={}, elicitation={"form": {}}), kind("cli", elicitation={"url": {}})
    one, other = (offered(*pairs).common_hello(ide) for pairs in ([(ide, "a"), (cli, "a")], [(cli, "a"), (ide, "a")]))

    assert one is not None
    assert other is not None
    assert one.identity == other.identity


def test_one_kind_alone_and_kinds_that_are_offered_other_things_are_told_of_as_themselves() -> None:
    ide, cli, web = kind("ide"), kind("cli"), kind("web")
    offers = offered((ide, "a"), (cli, "b"))

    assert [offers.common_hello(each) for each in (ide, cli, web)] == [None] * 3


def test_clients_with_different_extensions_are_not_told_of_together() -> None:
    ide, cli = kind("ide", extensions={"ui": {"x": 1}}), kind("cli", extensions={})
    assert offered((ide, "a"), (cli, "a")).common_hello(ide) is None

    web = kind("web", extensions={"ui": {"x": 1}})
    found = offered((ide, "a"), (cli, "a"), (web, "a")).common_hello(ide)
    assert found is not None
    assert json.loads(bytes(found.capabilities)) == {"extensions": {"ui": {"x": 1}}}


def test_a_server_that_offers_ourselves_something_else_makes_a_difference() -> None:
    ide, cli = kind("ide"), kind("cli")
    offers = offered((ide, "a"), (cli, "a"))
    common = offers.common_hello(ide)
    assert common is not None
    ours = kind_of(common)
    assert ours is not None

    assert offers.record(ours, "b").common_hello(ide) is None
    assert offers.record(ours, "a").common_hello(ide) == common


def test_what_is_offered_anew_makes_what_others_were_offered_out_of_date() -> None:
    ide, cli = kind("ide"), kind("cli")
    offers = offered((ide, "a"), (cli, "a"), (ide, "b"))

    assert offers.digests == {ide: "b"}
    assert offers.record(cli, "b").common_hello(cli) is not None


def test_the_kinds_that_are_remembered_are_bounded() -> None:
    offers = offered(*((kind(f"client {number}"), "a") for number in range(MAX_KINDS + 1)))

    assert len(offers.digests) == MAX_KINDS
    assert kind("client 0") not in offers.digests


def test_two_catalogs_are_the_same_in_whatever_order_their_lists_were_read() -> None:
    tools, prompts = Listing({"t": Raw(b"{}")}), Listing({"p": Raw(b"{}")})
    one = Catalog({ListKind.TOOLS: tools, ListKind.PROMPTS: prompts})
    other = Catalog({ListKind.PROMPTS: prompts, ListKind.TOOLS: tools})

    assert digest_of(one) == digest_of(other)
    assert digest_of(one) != digest_of(Catalog({ListKind.TOOLS: prompts, ListKind.PROMPTS: prompts}))
    assert digest_of(one) != digest_of(Catalog(one.lists, instructions="for you"))


def test_offers_are_kept_with_the_catalog_until_others_are(tmp_path: Path) -> None:
    store, config = CatalogStore(tmp_path), group_config()
    offers = offered((kind("ide", roots={}), "a"), (kind("cli"), "b"))
    store.save(config, Catalog(), offers=offers)
    store.save(config, Catalog(instructions="new"))  # as a command does, which compares nothing
    kept = store.load(config)

    assert kept is not None
    assert (kept.offers, kept.catalog.instructions) == (offers, "new")
    store.save(config, Catalog(), offers=Offers())
    kept = store.load(config)
    assert kept is not None
    assert kept.offers == Offers()


@pytest.mark.parametrize("offers", ["1", "[1]", '[["ide"]]', '{"a":1}'])
def test_offers_that_cannot_be_read_are_set_aside_with_their_catalog(tmp_path: Path, offers: str) -> None:
    store, config = CatalogStore(tmp_path), group_config()
    store.save(config, Catalog(), offers=offered((kind("ide"), "a")))
    file = tmp_path / f"{key(config)}.v2.json"
    text = file.read_text()
    file.write_text(text[: text.index('"offers"')] + f'"offers":{offers}}}')

    assert store.load(config) is None
    assert file.with_suffix(".bad").exists()
