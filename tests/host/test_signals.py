"""Which signals a serving process takes, on each system."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable

import pytest

from dynamic_mcp.host.signals import SignalHandlers
from tests.fakes import BOUND_S


class WindowsLoop(asyncio.SelectorEventLoop):
    """Takes no handlers of signals, as the event loops of Windows."""

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: object) -> None:
        raise NotImplementedError

    def remove_signal_handler(self, sig: int) -> bool:
        raise NotImplementedError


def never() -> None:
    raise AssertionError("no signal was sent")


def test_windows_leaves_the_signals_as_they_are() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    loop = WindowsLoop()
    with SignalHandlers(loop, end=never, reload=never, platform="win32") as signals:
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    loop.close()
    assert not signals.has_received_end


@pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")
@pytest.mark.parametrize("platform", ["linux", "darwin"])
@pytest.mark.parametrize(("name", "is_end"), [("SIGTERM", True), ("SIGINT", True), ("SIGHUP", False)])
async def test_a_signal_ends_or_reloads_and_has_its_default_again_afterwards(
    platform: str, name: str, *, is_end: bool
) -> None:
    number = signal.Signals[name]
    loop, ended, reloaded = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    before = signal.getsignal(number)
    try:
        with SignalHandlers(loop, end=ended.set, reload=reloaded.set, platform=platform) as signals:
            signal.raise_signal(number)
            async with asyncio.timeout(BOUND_S):
                await (ended if is_end else reloaded).wait()
            assert (ended.is_set(), reloaded.is_set(), signals.has_received_end) == (is_end, not is_end, is_end)
        assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)
    finally:
        signal.signal(number, before)
