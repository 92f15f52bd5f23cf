"""Twenty sessions on one proxy: whatever they do at once, nothing crosses between them, and nothing stays behind."""

from __future__ import annotations

import sys

import pytest

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import config_of
from tests.history.harness import Apart, MemoryUpstream, Shared, Windows, group, journal, memory_proxy, remote
from tests.history.http_upstream import NonceHttp
from tests.history.record import History
from tests.history.seeds import SEEDS
from tests.history.workload import ALL, Plan, check

needs_pipes = pytest.mark.skipif(sys.platform == "win32", reason="the loop of Windows reads no pipes of this kind")

GROUPS = ("a", "b")
# What a stdio upstream must not do for its sessions to go on sharing it.
QUIET = tuple(each for each in ALL if each != "ask")


def _proxy(history: History, *, share: str = "", has_streams: bool = False) -> Proxy:
    def make(name: str, number: int) -> MemoryUpstream:
        return MemoryUpstream(name, number, history, has_streams=has_streams)

    upstream = remote() if has_streams else None
    return memory_proxy(make, *(group(name, upstream, share=share) for name in GROUPS), instances=60)


@pytest.mark.parametrize("seed", SEEDS)
async def test_sessions_that_share_nothing_keep_every_promise_so_that_the_checker_asks_nothing_impossible(
    seed: int,
) -> None:
    history, proxies = History(), iter(range(1000))

    def make_proxy() -> Proxy:
        number = next(proxies)
        return memory_proxy(
            lambda name, _: MemoryUpstream(name, number, history), *(group(name) for name in GROUPS), instances=1
        )

    await check(Plan(seed, GROUPS, may_refuse=False, must_log=True, must_update=True), history, Apart(make_proxy))


async def test_sessions_that_share_nothing_but_a_remote_server_keep_every_promise() -> None:
    history = History()
    async with NonceHttp("a", history).listening() as url:
        config = config_of(group("a", Remote(kind="http", url=url, headers={})))
        plan = Plan(1, slots=8, may_refuse=False, must_log=True, must_update=True)
        await check(plan, history, Apart(lambda: Proxy(config)))


@pytest.mark.parametrize(
    "over_pipes", [False, pytest.param(True, marks=needs_pipes)], ids=["in process", "over pipes"]
)
async def test_sessions_with_a_process_each_keep_every_promise(*, over_pipes: bool) -> None:
    history = History()
    async with journal(history, "a") as program:
        config = config_of(group("a", program))
        plan = Plan(1, slots=4, may_refuse=False, must_log=True, must_update=True)
        await check(plan, history, Apart(lambda: Proxy(config), over_pipes=over_pipes))


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_crosses_between_sessions_that_share_what_starts_identically(seed: int) -> None:
    history = History()
    host = Shared(_proxy(history))
    try:
        await check(Plan(seed, GROUPS), history, host)
    finally:
        await host.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_crosses_on_links_that_are_shared_as_long_as_nobody_asks(seed: int) -> None:
    history = History()
    host = Shared(_proxy(history))
    try:
        await check(Plan(seed, GROUPS, does=QUIET, must_update=True), history, host)
    finally:
        await host.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_session_with_instances_of_its_own_gets_every_log_line_and_every_question(seed: int) -> None:
    history = History()
    host = Shared(_proxy(history, share="session"))
    try:
        await check(Plan(seed, GROUPS, may_refuse=False, must_log=True, must_update=True), history, host)
    finally:
        await host.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_comes_in_the_stream_of_a_call_belongs_to_that_call(seed: int) -> None:
    history = History()
    host = Shared(_proxy(history, has_streams=True))
    try:
        await check(Plan(seed, GROUPS, may_refuse=False, must_log=True, must_update=True), history, host)
    finally:
        await host.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_crosses_over_streamable_http(seed: int) -> None:
    history = History()
    async with NonceHttp("a", history).listening() as url:
        host = Shared(Proxy(config_of(group("a", Remote(kind="http", url=url, headers={})))))
        try:
            await check(Plan(seed, may_refuse=False, must_log=True, must_update=True), history, host)
        finally:
            await host.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_crosses_in_a_process_that_is_shared(seed: int) -> None:
    history = History()
    async with journal(history, "a") as program:
        host = Shared(Proxy(config_of(group("a", program))))
        try:
            await check(Plan(seed, does=QUIET, must_update=True), history, host)
        finally:
            await host.close()


async def test_nothing_crosses_when_a_process_asks() -> None:
    history = History()
    async with journal(history, "a") as program:
        host = Shared(Proxy(config_of(group("a", program))))
        try:
            await check(Plan(4, slots=6), history, host)
        finally:
            await host.close()


@needs_pipes
@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_crosses_between_two_faces_of_one_process(seed: int) -> None:
    history = History()
    async with journal(history, "a") as program:
        host = Shared(Proxy(config_of(group("a", program))), over_pipes=True)
        try:
            await check(Plan(seed, slots=2, lives=3, operations=20, clients=("one",)), history, host)
        finally:
            await host.close()


@needs_pipes
@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_crosses_between_windows_of_a_daemon(seed: int) -> None:
    history = History()
    host = Windows(_proxy(history))
    try:
        await check(Plan(seed, GROUPS), history, host)
    finally:
        await host.close()


@needs_pipes
async def test_windows_with_instances_of_their_own_get_every_log_line_and_every_question() -> None:
    history = History()
    host = Windows(_proxy(history, share="session"))
    try:
        await check(Plan(1, GROUPS, may_refuse=False, must_log=True, must_update=True), history, host)
    finally:
        await host.close()
