"""A group that needs a login says so with the command, waits for nobody, and goes on by itself when it is done."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from dynamic_mcp.errors import LoginNeeded
from dynamic_mcp.groups.lifecycle import State
from tests.fake_parties import LoneGroup, Watcher
from tests.fakes import FakeClock, FakeUpstream, Opener, group_config, settled

COMMAND = "dynamic-mcp auth login up"


class Person:
    """Logs in, or has not yet."""

    def __init__(self) -> None:
        self.has_logged_in = False

    def needed(self, scope: str | None = None) -> LoginNeeded:
        return LoginNeeded("up", COMMAND, scope=scope, is_done=lambda: self.has_logged_in)


async def needing(person: Person, clock: FakeClock) -> tuple[LoneGroup, Opener]:
    """Return a group that needs a login, and will do with it."""
    opener = Opener(up=[person.needed(), FakeUpstream()])
    group = LoneGroup(group_config(), Watcher(), opener=opener, clock=clock)
    group.begin()
    await settled()
    assert group.state is State.NEEDS_LOGIN
    return group, opener


async def test_the_reason_holds_the_command() -> None:
    group, _ = await needing(Person(), FakeClock())

    assert COMMAND in group.reason
    await group.close()


async def test_it_is_not_tried_again_by_itself_until_somebody_has_logged_in() -> None:
    person, clock = Person(), FakeClock()
    group, opener = await needing(person, clock)
    for _ in range(10):
        await clock.pass_(600)
    assert opener.opened == ["up"]

    person.has_logged_in = True
    await clock.pass_(2)

    assert group.state is State.READY
    await group.close()


async def test_a_call_right_after_the_login_does_not_wait_for_the_next_look() -> None:
    person, clock = Person(), FakeClock()
    group, _ = await needing(person, clock)
    with pytest.raises(LoginNeeded):
        await group.send("ping", None, timeout_s=1)

    person.has_logged_in = True

    assert (await group.read_catalog()).tools
    await group.close()


async def test_a_call_that_waits_for_an_attempt_without_the_login_gets_one_with_it() -> None:
    person = Person()
    opener = Opener(up=[person.needed(), FakeUpstream()])
    opener.gate.clear()
    group = LoneGroup(group_config(), Watcher(), opener=opener, clock=FakeClock())
    group.begin()
    await settled()
    call = asyncio.create_task(group.read_catalog())
    await settled()
    person.has_logged_in = True
    opener.gate.set()

    assert (await call).tools
    assert opener.opened == ["up", "up"]
    await group.close()


async def test_the_call_after_a_login_that_a_call_needed_does_not_wait_for_the_next_attempt() -> None:
    person, first, second = Person(), FakeUpstream(), FakeUpstream()
    opener = Opener(up=[first, second])
    group = LoneGroup(group_config(), Watcher(), opener=opener, clock=FakeClock())
    group.begin()
    await group.read_catalog()

    def refuse(params: object) -> bytes:
        first.link.fail_request(str(first.sent[-1]["id"]).encode(), person.needed())
        return b"{}"

    first.answers["tools/call"] = refuse
    with pytest.raises(LoginNeeded):
        await group.send("tools/call", {}, timeout_s=1)
    await settled()

    person.has_logged_in = True
    second.answers["tools/call"] = lambda params: b"{}"

    assert await group.send("tools/call", {}, timeout_s=1)
    assert opener.opened == ["up", "up"]
    await group.close()


@pytest.mark.parametrize(("scope", "state"), [(None, State.WAITING), ("admin", State.READY)])
async def test_a_call_that_is_refused_ends_the_link_only_if_no_call_can_do_without_the_login(
    scope: str | None, state: State
) -> None:
    upstream = FakeUpstream()
    group = LoneGroup(group_config(), Watcher(), opener=Opener(up=[upstream]), clock=FakeClock())
    group.begin()
    await group.read_catalog()

    def refuse(params: object) -> bytes:
        upstream.link.fail_request(str(upstream.sent[-1]["id"]).encode(), Person().needed(scope))
        return b"{}"

    upstream.answers["tools/call"] = refuse
    with pytest.raises(LoginNeeded):
        await group.send("tools/call", {}, timeout_s=1)

    assert group.state is state
    with contextlib.suppress(LoginNeeded):
        await group.close()
