"""Measure the page for people with 500 groups and 100,000 recorded calls: times, sizes, and what it costs calls.

    python -m tests.benchmarks.page [--groups 500] [--calls 100000] [--rounds 20] [--people 10] [--seconds 10]

It opens each section as the local user and times the answers of the server; with Chromium on the PATH, also until the
browser has painted (`first-contentful-paint`). Then 32 sessions call a server, first alone, and then while ten people
browse, a page each second, and it prints what the calls took. Memory is of the program without its servers, before
and after the first page. It judges nothing. Linux only, because of `/proc`.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import httpx2
import uvloop

from dynamic_mcp.config.location import identify
from dynamic_mcp.ui.links import PageLinks
from tests.benchmarks.audit_queries import write_lines
from tests.benchmarks.http_face import call, resident_kib, running, serve, write_config
from tests.benchmarks.http_load import CallingSession, Target, Timings, open_all, record

_SESSIONS = 32
_EVERY_S = 0.02
_WARM_S = 1.0
_PAGE_EVERY_S = 1.0


async def log_in(client: httpx2.AsyncClient, config: Path, state: Path) -> None:
    link = PageLinks(state).create(identify(config))
    answer = await client.get(f"/ui/login?link={link}")
    assert answer.status_code == 200, answer.text


async def list_pages(client: httpx2.AsyncClient) -> list[str]:
    """Return the paths of all sections."""
    text = (await client.get("/ui")).text
    return re.findall(r'<li><a href="([^"]+)"', text)


async def measure_pages(client: httpx2.AsyncClient, paths: Sequence[str], rounds: int) -> None:
    print(f"{'page':<28}{'median ms':>11}{'max ms':>9}{'kB':>7}")
    for path in paths:
        times: list[float] = []
        for _ in range(rounds):
            began = time.perf_counter()
            answer = await client.get(path)
            times.append(1e3 * (time.perf_counter() - began))
            assert answer.status_code == 200, (path, answer.status_code)
        print(f"{path:<28}{statistics.median(times):>11.1f}{max(times):>9.1f}{len(answer.content) / 1000:>7.1f}")


async def measure_paint(origin: str, config: Path, state: Path, paths: Sequence[str]) -> None:
    """Print how long a browser takes until it has painted each page."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("first paint: not measured, since Chromium is not installed")
        return
    from playwright.async_api import async_playwright

    script = (
        "new Promise(found => new PerformanceObserver(list => found(list.getEntries()[0].startTime))"
        ".observe({type: 'paint', buffered: true}))"
    )
    print(f"{'page':<28}{'painted ms':>11}")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = await browser.new_page()
        await page.goto(f"{origin}/ui/login?link={PageLinks(state).create(identify(config))}")
        for path in paths:
            times = []
            for _ in range(5):
                await page.goto(f"{origin}{path}", wait_until="domcontentloaded")
                times.append(await page.evaluate(script))
            print(f"{path:<28}{statistics.median(times):>11.0f}")
        await browser.close()


async def browse(client: httpx2.AsyncClient, paths: Sequence[str], until: float) -> None:
    """Open one page after the other, one a second."""
    opened = 0
    while time.perf_counter() < until:
        began = time.perf_counter()
        await client.get(paths[opened % len(paths)])
        opened += 1
        await asyncio.sleep(max(0.0, _PAGE_EVERY_S - (time.perf_counter() - began)))


def browse_all(origin: str, logins: Sequence[Mapping[str, str]], paths: Sequence[str], seconds: float) -> None:
    """Let a person browse with each of these cookies, in a process of their own: it must not slow the calls' down."""

    async def browse_together() -> None:
        until = time.perf_counter() + seconds
        clients = [httpx2.AsyncClient(base_url=origin, cookies=dict(each), timeout=60) for each in logins]
        await asyncio.gather(*(browse(each, paths, until) for each in clients))
        for each in clients:
            await each.aclose()

    asyncio.run(browse_together())


async def measure_calls(
    port: int, clients: Sequence[httpx2.AsyncClient], paths: Sequence[str], seconds: float, origin: str
) -> None:
    """Print what calls take, alone and beside people who browse."""
    timings = Timings()
    target = Target(port, params=call("group0"))
    sessions = [CallingSession(f"s{number}", target, timings, _EVERY_S) for number in range(_SESSIONS)]
    await open_all(sessions)
    for each in sessions:
        each.start()
    await record(timings, _WARM_S)
    print(f"{'calls':<28}{'rate/s':>11}{'p50 ms':>9}{'p99 ms':>9}")
    logins = [dict(each.cookies) for each in clients]
    browsers = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    browsers.submit(browse_all, origin, (), paths, 0.0).result()  # the process is there, and has its modules
    for name, people in (("alone", 0), (f"{len(clients)} people browse", len(clients)), ("alone again", 0)):
        timings.latencies_s.clear()
        browsing = browsers.submit(browse_all, origin, logins[:people], paths, seconds if people else 0.0)
        await record(timings, seconds)
        await asyncio.wrap_future(browsing)
        found = timings.figures()
        print(f"{name:<28}{found['rate']:>11,.0f}{found['p50_ms']:>9.2f}{found['p99_ms']:>9.2f}", flush=True)
    browsers.shutdown()
    for each in sessions:
        each.close()
    if timings.errors:
        raise SystemExit(f"{timings.errors} errors, the first one: {timings.first_error}")


async def measure(port: int, pid: int, config: Path, state: Path, chosen: argparse.Namespace) -> None:
    origin = f"http://127.0.0.1:{port}"
    before = resident_kib(pid)
    clients = [httpx2.AsyncClient(base_url=origin, follow_redirects=True, timeout=60) for _ in range(chosen.people)]
    for each in clients:
        await log_in(each, config, state)
    paths = await list_pages(clients[0])
    paths += ["/ui?page=9", "/ui/calls?span=all", "/ui/calls?span=all&page=900", "/ui/tools?q=send%20a%20message"]
    after = resident_kib(pid)
    await measure_pages(clients[0], paths, chosen.rounds)
    print(
        f"memory: {before / 1024:.1f} MiB before the first page, {after / 1024:.1f} after it,"
        f" {resident_kib(pid) / 1024:.1f} after all"
    )
    await measure_paint(origin, config, state, paths)
    await measure_calls(port, clients, paths, chosen.seconds, origin)
    for each in clients:
        await each.aclose()


def main() -> None:
    """Read the options, measure, and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--groups", type=int, default=500)
    options.add_argument("--calls", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--people", type=int, default=10)
    options.add_argument("--seconds", type=float, default=10.0)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        state = folder / "dynamic-mcp" / "State"  # below the config's directory, which is the same here
        (state / "audit").mkdir(parents=True, mode=0o700)
        state.chmod(0o700)
        write_lines(state / "audit", chosen.calls)
        config = write_config(folder, chosen.groups, settings={"audit": True})
        with running(serve(config), folder) as (port, pid, _):
            uvloop.run(measure(port, pid, config, state, chosen))


if __name__ == "__main__":
    main()
