"""`add URL`: the server that a host's AI catalog or card names, and what becomes of cards that lie."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dynamic_mcp.config import jsonc
from tests.cli.commands import CliRunner
from tests.features.registry.fake_registry import FakeRegistry, Json, Response, fake_registry, reply
from tests.http_program import serving_http
from tests.program import odd

CATALOG = "/.well-known/ai-catalog.json"
CARD_TYPE = "application/mcp-server-card+json"


@pytest.fixture
def host(cli: CliRunner) -> Iterator[FakeRegistry]:
    """A web server on loopback without any document; the config has no servers."""
    cli.configure({})
    with fake_registry() as running:
        yield running


def publish(host: FakeRegistry, pages: Mapping[str, Json]) -> None:
    """Serve these documents; a response is served as it is."""
    host.override = lambda path: (
        page if isinstance(page := pages.get(path), Response) else None if page is None else reply(page)
    )


def card(url: str, name: str = "com.example/weather", **members: Json) -> Json:
    """Return a card with one remote."""
    remote = {"type": "streamable-http", "url": url, **members.pop("remote", {})}
    schema = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
    return {
        "$schema": schema,
        "name": name,
        "version": "1.0.0",
        "description": "Weather",
        "remotes": [remote],
        **members,
    }


def catalog(*entries: Json) -> Json:
    """Return a catalog."""
    base = {"identifier": "urn:air:example.com:mcp:weather", "type": CARD_TYPE}
    return {"specVersion": "1.0", "entries": [{**base, **each} for each in entries]}


def entries_of(cli: CliRunner) -> Json:
    document: Json = jsonc.loads(cli.config.read_text())
    return document["mcpServers"]


def test_a_catalog_leads_to_a_card_and_its_remote_is_added(cli: CliRunner, host: FakeRegistry) -> None:
    endpoint = f"{host.url}/mcp"
    publish(host, {CATALOG: catalog({"url": f"{endpoint}/server-card"}), "/mcp/server-card": card(endpoint)})
    done = cli.run("add", host.url, "--yes")
    assert (done.code, done.out) == (0, "")
    assert f"com.example/weather 1.0.0 by the server card at `{endpoint}/server-card`" in done.err
    assert f"reaches: {endpoint}" in done.err
    assert entries_of(cli) == {"weather": {"description": "Weather", "type": "http", "url": endpoint}}
    accepted = [headers["accept"] for headers in host.headers]
    assert all(CARD_TYPE in each for each in accepted)


def test_a_card_beside_the_endpoint_or_at_the_url_itself_is_found_first(cli: CliRunner, host: FakeRegistry) -> None:
    endpoint = f"{host.url}/mcp"
    publish(host, {"/mcp/server-card": card(endpoint), "/cards/w.json": card(endpoint), CATALOG: catalog()})
    for url in (endpoint, f"{endpoint}/", f"{endpoint}/server-card", f"{host.url}/cards/w.json"):
        done = cli.run("add", url, "--print", "--yes")
        assert (done.code, done.json["mcpServers"]["weather"]["url"]) == (0, endpoint)
    assert CATALOG not in host.requests


def test_documents_that_a_host_does_not_have_are_no_warning_where_a_card_is_found(
    cli: CliRunner, host: FakeRegistry
) -> None:
    publish(host, {CATALOG: catalog({"data": card(f"{host.url}/mcp")})})
    done = cli.run("add", f"{host.url}/mcp", "--yes")
    assert done.code == 0
    assert "/mcp/server-card" in host.requests
    assert "server-card" not in done.err


def test_a_card_in_the_catalog_itself_is_read(cli: CliRunner, host: FakeRegistry) -> None:
    publish(host, {CATALOG: catalog({"type": "application/a2a-agent-card+json"}, {"data": card(f"{host.url}/mcp")})})
    done = cli.run("add", host.url, "--print", "--yes", "--as", "w")
    assert list(done.json["mcpServers"]) == ["w"]


def test_of_several_servers_one_is_picked_by_name_or_url(cli: CliRunner, host: FakeRegistry) -> None:
    one, two = card(f"{host.url}/one", "com.example/one"), card(f"{host.url}/two", "com.example/two")
    publish(host, {CATALOG: catalog({"data": one}, {"data": two})})
    done = cli.run("add", host.url, "--yes")
    assert done.code == 2
    assert "com.example/one: Weather" in done.err
    assert "--pick NAME" in done.err
    for pick in ("two", "com.example/two", f"{host.url}/two"):
        assert list(cli.run("add", host.url, "--yes", "--print", "--pick", pick).json["mcpServers"]) == ["two"]


def test_what_a_card_requires_is_asked_for_and_a_secret_stays_out_of_the_config(
    cli: CliRunner, host: FakeRegistry
) -> None:
    token = {"isRequired": True, "isSecret": True, "description": "A token"}
    header = {"name": "Authorization", "value": "Bearer {token}", "isRequired": True, "variables": {"token": token}}
    publish(host, {"/mcp/server-card": card(f"{host.url}/mcp", remote={"headers": [header]})})
    done = cli.run("add", f"{host.url}/mcp", "--yes")
    assert done.code == 2
    assert "token (required; secret)" in done.err
    (cli.folder / "secret").write_text("s3cret-of-mine")
    done = cli.run("add", f"{host.url}/mcp", "--yes", "--set", "token=@secret")
    assert done.code == 0
    (value,) = entries_of(cli)["weather"]["headers"].values()
    assert value.startswith("Bearer ${")
    assert "s3cret-of-mine" not in cli.config.read_text()


def test_a_card_that_leads_to_another_host_is_doubted_and_not_taken_without_a_word(
    cli: CliRunner, host: FakeRegistry
) -> None:
    evil = "https://evil.example/mcp"
    publish(host, {"/mcp/server-card": card(evil)})
    before = cli.config.read_text()
    done = cli.run("add", f"{host.url}/mcp", "--yes")
    assert done.code != 0
    assert f"leads to another host than `{host.url}/mcp`: `{evil}`" in done.err
    assert f"--pick {evil}" in done.err
    assert "warning: the card leads to another host" in cli.run("add", f"{host.url}/mcp").err
    assert cli.config.read_text() == before
    assert cli.run("add", f"{host.url}/mcp", "--yes", "--pick", evil).code == 0
    assert entries_of(cli)["weather"]["url"] == evil


@pytest.mark.parametrize(
    ("remote", "why"),
    [
        ({"url": "http://weather.example/mcp"}, "is not https"),
        ({"type": "websocket"}, "its transport `websocket` is unknown"),
        ({"url": "https://user@127.0.0.1/mcp"}, "does not say plainly what it reaches"),
        ({"url": "{base}/mcp"}, "how to fill in its URL"),
        ({"url": "https://weather.example/${HOME}"}, "how to fill in its URL"),
        ({"url": 7}, "cannot be used"),
    ],
)
def test_a_remote_that_cannot_be_used_says_why(cli: CliRunner, host: FakeRegistry, remote: Json, why: str) -> None:
    publish(host, {"/mcp/server-card": card(f"{host.url}/mcp", remote=remote)})
    done = cli.run("add", f"{host.url}/mcp", "--yes", "--pick", "http")
    assert done.code != 0
    assert entries_of(cli) == {}
    plain = cli.run("add", f"{host.url}/mcp", "--yes")
    assert why in done.err + plain.err
    assert "registry show" not in done.err + plain.err


def test_packages_in_a_card_start_nothing_here(cli: CliRunner, host: FakeRegistry) -> None:
    package = {"registryType": "npm", "identifier": "@evil/x", "version": "1.0.0", "transport": {"type": "stdio"}}
    document = {**card(f"{host.url}/mcp"), "remotes": [], "packages": [package]}
    publish(host, {"/mcp/server-card": document})
    done = cli.run("add", f"{host.url}/mcp", "--yes")
    assert done.code != 0
    assert "the packages in the card" in done.err
    assert entries_of(cli) == {}


@pytest.mark.parametrize(
    "page",
    [
        Response(200, b"<html>"),
        Response(200, b"[" * 100_000),
        Response(200, b'{"entries": ' + b" " * (2 << 20) + b"[]}"),
        Response(301, b"", {"location": "http://127.0.0.1:1/"}),
        Response(500, b""),
        reply({"entries": [7, {"type": CARD_TYPE}, {"type": CARD_TYPE, "url": "file:///etc/passwd"}]}),
        reply({"entries": [{"type": CARD_TYPE, "data": {"name": "no slash", "version": "1"}}]}),
        reply({"name": "\x1b[31m", "version": "1"}),
    ],
    ids=["html", "deep", "large", "redirect", "broken", "odd entries", "odd card", "odd name"],
)
def test_a_document_that_is_none_is_no_server(cli: CliRunner, host: FakeRegistry, page: Response) -> None:
    publish(host, {CATALOG: page})
    done = cli.run("add", host.url, "--yes")
    assert done.code != 0
    assert "leads to no MCP server" in done.err
    assert f"{host.url}{CATALOG}" in done.err or "entry of" in done.err or "no server card" in done.err
    assert "\x1b" not in done.err
    assert entries_of(cli) == {}


def test_a_catalog_cannot_lead_into_this_machine_from_elsewhere(cli: CliRunner, host: FakeRegistry) -> None:
    done = cli.run("add", "http://192.0.2.1/mcp", "--yes")
    assert done.code == 2
    assert "is not https" in done.err


@pytest.mark.parametrize("url", ["ftp://example.com", "https://user@example.com/mcp", "https://exa mple.com"])
def test_a_url_that_is_not_plain_is_refused(cli: CliRunner, host: FakeRegistry, url: str) -> None:
    assert cli.run("add", url, "--yes").code == 2


@pytest.mark.parametrize("has_card", [True, False])
async def test_our_own_card_leads_to_our_endpoint_and_an_endpoint_without_one_is_added_as_it_is(
    cli: CliRunner, tmp_path: Path, has_card: bool
) -> None:
    cli.configure({})
    public = "http://127.0.0.1:1/mcp"
    settings = {"http": {"public_url": public}} if has_card else {}
    folder = tmp_path / "served"
    folder.mkdir()
    async with serving_http(folder, {"odd": odd()}, settings=settings) as program:
        url = f"{program.origin}/mcp"
        done = await asyncio.to_thread(cli.run, "add", url, "--yes", "--print")
    added = {name: each["url"] for name, each in done.json["mcpServers"].items()}
    assert added == ({"dynamic-mcp": public} if has_card else {"127-0-0-1": url})
