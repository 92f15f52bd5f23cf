"""How clients become known: they register, or have a document."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from dynamic_mcp.features.login_server.client_metadata import FetchError, guarded_fetch, is_document_url
from dynamic_mcp.web import address_policy
from tests.features.login_server.parties import (
    REDIRECT,
    Browser,
    Json,
    Site,
    authorize_url,
    error_of,
    header,
    json_of,
    open_site,
)

pytestmark = pytest.mark.usefixtures("kept")

CLIENT = "https://client.example/oauth/client.json"


def document(**changes: Json) -> Json:
    return {"client_id": CLIENT, "client_name": "Published", "redirect_uris": [REDIRECT], **changes}


# --- registration --------------------------------------------------------------------------------------


async def test_a_client_is_told_what_it_was_registered_as(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        response = await site.register(token_endpoint_auth_method="client_secret_post", logo_uri="x", extra=[1])
        told = json_of(response)
        assert told["token_endpoint_auth_method"] == "none"
        assert told["redirect_uris"] == [REDIRECT]
        assert told["grant_types"] == ["authorization_code", "refresh_token"]
        assert "client_secret" not in told
        assert header(response, "cache-control") == "no-store"


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"redirect_uris": []}, "invalid_redirect_uri"),
        ({"redirect_uris": [REDIRECT] * 51}, "invalid_redirect_uri"),
        ({"redirect_uris": [f"{REDIRECT}/{'a' * 1500}"] * 3}, "invalid_redirect_uri"),
        ({"redirect_uris": REDIRECT}, "invalid_client_metadata"),
        ({"redirect_uris": [1]}, "invalid_client_metadata"),
        ({"redirect_uris": [REDIRECT, "javascript:x"]}, "invalid_redirect_uri"),
        ({"grant_types": ["client_credentials"]}, "invalid_client_metadata"),
        ({"response_types": ["token"]}, "invalid_client_metadata"),
        ({"client_name": {"a": 1}}, "invalid_client_metadata"),
    ],
)
async def test_a_client_that_makes_no_sense_is_not_registered(tmp_path: Path, metadata: Json, error: str) -> None:
    async with open_site(tmp_path) as site:
        response = await site.register(**metadata)
        assert (response.status, error_of(response)) == (400, error)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b"[" * 50_000, b"\xff", b'{"redirect_uris":'])
async def test_what_is_no_metadata_is_not_registered(tmp_path: Path, body: bytes) -> None:
    async with open_site(tmp_path) as site:
        response = await site.ask("POST", "/register", body, content_type="application/json")
        assert (response.status, error_of(response)) == (400, "invalid_client_metadata")


async def test_a_form_of_another_page_registers_nothing(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        body = json.dumps({"redirect_uris": [REDIRECT]}).encode()
        assert (await site.ask("POST", "/register", body, content_type="text/plain")).status == 415


async def _statuses(site: Site, peers: list[str]) -> list[int]:
    return [(await site.register(peer=peer)).status for peer in peers]


async def test_one_peer_registers_so_many_clients_and_no_other_suffers(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        statuses = await _statuses(site, ["1.1.1.1"] * 70)
        assert set(statuses[:60]) == {201}
        assert set(statuses[60:]) == {429}
        assert await _statuses(site, ["1.1.1.2"]) == [201]
        site.clock.advance(60)
        assert await _statuses(site, ["1.1.1.1"]) == [201]


async def test_all_addresses_of_one_network_of_ipv6_are_one_peer(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        statuses = await _statuses(site, [f"2001:db8::{number:x}" for number in range(70)])
        assert 429 in statuses
        assert await _statuses(site, ["2001:db8:0:1::1"]) == [201]


async def test_behind_a_trusted_proxy_the_peers_are_those_that_it_names(tmp_path: Path) -> None:
    async with open_site(tmp_path, trusted=("10.0.0.0/8",)) as site:
        body = json.dumps({"redirect_uris": [REDIRECT]}).encode()

        async def register(peer: str, forwarded_for: str) -> int:
            headers = {"content-type": "application/json", "x-forwarded-for": forwarded_for}
            return (await site.ask("POST", "/register", body, peer, **headers)).status

        assert {await register("10.0.0.1", f"6.6.6.6, 1.1.1.{number}, 10.0.0.2") for number in range(70)} == {201}
        assert {await register("10.0.0.1", f"{number}.6.6.6, 2.2.2.2") for number in range(70)} == {201, 429}
        assert {await register("3.3.3.3", f"1.2.3.{number}") for number in range(70)} == {201, 429}


async def test_a_client_that_nobody_has_logged_in_with_is_forgotten_and_others_are_not(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        unused, used = await site.client(), await site.client()
        await site.log_in(client_id=used)
        site.clock.advance(31 * 24 * 3600)
        await site.client()
        assert (await Browser(site).open(authorize_url(unused))).status == 400
        assert (await Browser(site).open(authorize_url(used))).status == 200


# --- documents -----------------------------------------------------------------------------------------


async def test_a_client_with_a_document_logs_in_without_registering(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        site.web.publish(CLIENT, document())
        browser = Browser(site)
        await browser.open(authorize_url(CLIENT))
        assert "Published by" in browser.form.text
        assert "client.example" in browser.form.text
        tokens = await site.log_in(client_id=CLIENT)
        assert (await site.refresh(tokens)).status == 200
        assert site.web.fetched == [CLIENT]


@pytest.mark.parametrize(
    ("cache_control", "after_s", "fetches"),
    [
        ("", 3599, 1), ("", 3601, 2), ("max-age=600", 599, 1), ("max-age=600", 601, 2), ("no-store", 0, 2),
        ("max-age=1", 59, 1), ("max-age=0", 0, 2), ("no-cache, max-age=600", 0, 2), ("max-age=99999999", 86_401, 2),
        ("public, MAX-AGE=600", 599, 1), ("max-age=x", 10, 1),
    ],
)  # fmt: skip
async def test_a_document_is_kept_as_long_as_its_headers_say(
    tmp_path: Path, cache_control: str, after_s: float, fetches: int
) -> None:
    async with open_site(tmp_path) as site:
        site.web.publish(CLIENT, document(), cache_control=cache_control)
        await Browser(site).open(authorize_url(CLIENT))
        site.clock.advance(after_s)
        await Browser(site).open(authorize_url(CLIENT))
        assert len(site.web.fetched) == fetches


@pytest.mark.parametrize(
    "content",
    [
        document(client_id="https://client.example/other.json"), document(client_id=CLIENT + "/"),
        document(client_id=None),
        document(redirect_uris=["https://evil.example/cb"]), document(redirect_uris=[]), document(client_secret="s"),
        b"<html>", b"[]", b"{" * 9000, b" " * 40_000, {"redirect_uris": [REDIRECT]},
    ],
)  # fmt: skip
async def test_a_document_that_is_not_that_of_the_client_lets_nobody_log_in(tmp_path: Path, content: Json) -> None:
    async with open_site(tmp_path) as site:
        site.web.publish(CLIENT, content)
        response = await Browser(site).open(authorize_url(CLIENT))
        assert (response.status, header(response, "location")) == (400, "")


@pytest.mark.parametrize(
    ("status", "kind"), [(404, "application/json"), (302, "application/json"), (200, "text/html")]
)
async def test_an_answer_that_is_no_document_lets_nobody_log_in(tmp_path: Path, status: int, kind: str) -> None:
    async with open_site(tmp_path) as site:
        site.web.publish(CLIENT, document(), status, content_type=kind)
        assert (await Browser(site).open(authorize_url(CLIENT))).status == 400


async def test_a_document_that_cannot_be_fetched_is_not_fetched_again_at_once(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        for _ in range(3):
            assert (await Browser(site).open(authorize_url(CLIENT))).status == 400
        assert len(site.web.fetched) == 1
        site.web.publish(CLIENT, document())
        site.clock.advance(31)
        assert (await Browser(site).open(authorize_url(CLIENT))).status == 200


async def test_people_who_log_in_at_once_fetch_a_document_once(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        site.web.publish(CLIENT, document())
        pages = await asyncio.gather(*(Browser(site).open(authorize_url(CLIENT)) for _ in range(5)))
        assert {page.status for page in pages} == {200}
        assert len(site.web.fetched) == 1


async def test_nobody_makes_the_server_fetch_documents_without_end(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        for number in range(40):
            await Browser(site).open(authorize_url(f"https://victim.example/{number}"))
        assert len(site.web.fetched) == 20


@pytest.mark.parametrize(
    "url",
    [
        "http://client.example/a", "https://client.example", "https://client.example/", "https://client.example/a#b",
        "https://u:p@client.example/a", "https://client.example/../a", "https://client.example/a/./b", "https:///a",
        "https://client.example/%2e%2e/a", "https://client.example\\a/b", "https://x/ a", "ftp://client.example/a",
        f"https://client.example/{'a' * 600}", "https://client.example:99999/a", "https://[::1/a",
    ],
)  # fmt: skip
def test_what_is_no_plain_url_with_a_path_is_no_document(url: str) -> None:
    assert not is_document_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/a", "https://localhost/a", "https://169.254.169.254/latest/meta-data", "https://10.0.0.1/a",
        "https://[::1]/a", "https://[::ffff:127.0.0.1]/a", "https://192.168.1.1/a", "https://0.0.0.0/a", "https://2130706433/a",
        "https://0x7f000001/a", "https://[fe80::1]/a", "https://[fd00::1]/a",
    ],
)  # fmt: skip
async def test_no_document_leads_into_a_network_of_ours(url: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.216.34"] if host == "mcp.example.com" else await address_policy.resolve_host(host, port)

    with pytest.raises(FetchError, match="leads into"):
        await guarded_fetch("https://mcp.example.com/mcp", resolve)(url)


async def test_a_name_of_the_internet_that_means_this_machine_is_not_followed() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.216.34"] if host == "mcp.example.com" else ["93.184.216.35", "127.0.0.1"]

    with pytest.raises(FetchError, match="leads into this machine"):
        await guarded_fetch("https://mcp.example.com/mcp", resolve)("https://rebinding.example/a")


@pytest.mark.parametrize(
    "public_url", ["http://127.0.0.1:8808/mcp", "http://localhost:8808/mcp", "https://[::1]/mcp"]
)
@pytest.mark.parametrize("url", ["https://127.0.0.1:1/a", "https://localhost:1/a", "https://10.0.0.1:1/a"])
async def test_a_server_on_this_machine_fetches_no_document_from_there_unless_that_is_switched_on(
    public_url: str, url: str
) -> None:
    with pytest.raises(FetchError, match=r"leads into .*, which needs `local_client_documents`"):
        await guarded_fetch(public_url)(url)


async def test_a_server_on_this_machine_fetches_documents_from_there_where_that_is_switched_on() -> None:
    with pytest.raises(FetchError) as refused:
        await guarded_fetch("http://127.0.0.1:8808/mcp", may_be_local=True)("https://127.0.0.1:1/a")
    assert "leads into" not in str(refused.value)
