"""A browser opens for a person at an AI client; a command says itself how to log in."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.groups.group import Group
from dynamic_mcp.oauth.logins import Logins
from dynamic_mcp.proxy.logins import LoginOffers
from tests.fake_parties import FakeCaller, Watcher
from tests.fakes import group_config


class CountingLogins(Logins):
    """Counts the browsers that would open."""

    def __init__(self) -> None:
        super().__init__(Path(), lambda group: f"log in to {group}", None)
        self.opened = 0

    def open_browser(self, group: str, remote: Remote) -> None:
        self.opened += 1


def caller(*, is_command: bool) -> FakeCaller:
    client = FakeCaller()
    client.is_command = is_command
    return client


@pytest.mark.parametrize(
    ("commands", "browsers"), [((), 1), ((False,), 1), ((True,), 0), ((True, True), 0), ((True, False), 1)]
)
async def test_a_browser_opens_unless_only_commands_are_there(commands: tuple[bool, ...], browsers: int) -> None:
    logins = CountingLogins()
    remote = Remote(kind="http", url="http://127.0.0.1:1/mcp", headers={})
    group = Group(group_config(upstream=remote), Watcher())

    LoginOffers(logins, [caller(is_command=each) for each in commands]).open_browser_if_needed(group)

    assert logins.opened == browsers
