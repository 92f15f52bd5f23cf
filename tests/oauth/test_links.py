"""Links to log in: who may use one, how long, and how many there are."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.identity import Principal
from dynamic_mcp.oauth.bearer import BearerCredentials
from dynamic_mcp.oauth.links import VALID_S, LoginLinks
from dynamic_mcp.oauth.logins import Logins
from dynamic_mcp.web.authorization_response import UnexpectedResponse
from tests.oauth.parts import bearer, remote

ANN = Principal("token", "ann")


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time


def of(person: Principal) -> Remote:
    return replace(remote("https://mcp.example.com/mcp"), login_of=person)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def links(clock: Clock) -> LoginLinks:
    return LoginLinks(lambda: "https://front.test", clock.now)


@pytest.fixture
def credentials(tmp_path: Path) -> BearerCredentials:
    return bearer(of(ANN), tmp_path)


async def test_a_link_is_long_and_its_own(links: LoginLinks, tmp_path: Path) -> None:
    persons = [Principal("token", f"p{number}") for number in range(100)]
    found = {links.send(bearer(of(each), tmp_path), each) for each in persons}

    ids = [link.id for link in found if link is not None]
    assert len({*ids}) == 100
    assert min(map(len, ids)) >= 43
    assert all(link is not None and link.url == f"https://front.test/upstream-login/{link.id}" for link in found)
    links.close()


async def test_a_link_that_nobody_has_opened_is_sent_again_while_it_lasts(
    links: LoginLinks, credentials: BearerCredentials, clock: Clock
) -> None:
    first = links.send(credentials, ANN)
    clock.time = VALID_S / 3
    again = links.send(credentials, ANN)
    clock.time = VALID_S * 2 / 3
    later = links.send(credentials, ANN)

    assert first is again
    assert later is not None
    assert later is not first
    links.close()


async def test_a_link_expires_and_whoever_waits_hears_that_nobody_has_logged_in(
    links: LoginLinks, credentials: BearerCredentials, clock: Clock
) -> None:
    link = links.send(credentials, ANN)
    assert link is not None
    assert links.find(link.id) is link

    clock.time = VALID_S

    assert links.find(link.id) is None
    assert await link.wait_for_end() is False


async def test_a_person_has_a_few_links_at_most_and_the_oldest_go_first(
    links: LoginLinks, credentials: BearerCredentials
) -> None:
    sent = []
    for number in range(20):
        link = links.send(credentials, ANN)
        assert link is not None
        assert link.claim(f"browser {number}")
        sent.append(link)

    assert len(links) == 4
    assert [links.find(link.id) is not None for link in sent] == [False] * 16 + [True] * 4
    links.close()


async def test_the_first_browser_keeps_a_link(links: LoginLinks, credentials: BearerCredentials) -> None:
    link = links.send(credentials, ANN)
    assert link is not None
    assert not link.belongs_to("")
    assert not link.belongs_to("one")

    assert [link.claim(browser) for browser in ("one", "other", "one")] == [True, False, True]
    assert [link.belongs_to(browser) for browser in ("one", "other", "")] == [True, False, False]
    links.close()


async def test_a_person_who_comes_and_goes_gets_no_more_links_for_that(links: LoginLinks, tmp_path: Path) -> None:
    assert len({links.send(bearer(of(ANN), tmp_path), ANN) for _ in range(20)}) == 1
    links.close()


async def test_without_an_address_of_ours_there_are_no_links(credentials: BearerCredentials) -> None:
    assert LoginLinks(lambda: None).send(credentials, ANN) is None


@pytest.mark.parametrize("query", ["", "state=", "state=x", "state=a&state=b", "&".join(["a=b"] * 60), "%ff=%00"])
async def test_what_belongs_to_no_login_is_refused(links: LoginLinks, query: str) -> None:
    with pytest.raises(UnexpectedResponse):
        links.find_returning(query)


async def test_credentials_of_a_person_are_theirs_and_forgotten_with_them(tmp_path: Path) -> None:
    logins = Logins(tmp_path, lambda group: f"log in to {group}", None)
    bob = Principal("token", "bob")
    of_all, of_ann, of_bob = remote("https://mcp.example.com/mcp"), of(ANN), of(bob)
    before = [logins.authorization("up", each) for each in (of_all, of_ann, of_bob)]

    logins.forget(ANN)

    after = [logins.authorization("up", each) for each in (of_all, of_ann, of_bob)]
    assert len({*map(id, before)}) == 3
    assert [one is other for one, other in zip(before, after, strict=True)] == [True, False, True]
    await logins.close()


async def test_neither_a_port_nor_a_browser_of_this_machine_serves_a_person(tmp_path: Path) -> None:
    logins = Logins(tmp_path, lambda group: f"log in to {group}", {"DISPLAY": ":0"})
    logins.authorization("up", of(ANN))

    logins.open_browser("up", of(ANN))

    assert logins.begin("up", of(ANN)) is None
    assert not await logins.wait_for_browser("up", of(ANN))
    await logins.close()
