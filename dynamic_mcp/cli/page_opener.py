"""Finds or serves the page of a config, and opens it in a browser that is logged in by a link."""

from __future__ import annotations

import importlib.util
import os
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dynamic_mcp.cli import startup
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.location import identify
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.oauth.browser import has_browser, open_file
from dynamic_mcp.observe.proxies import ProxyRegistry, RunningProxy
from dynamic_mcp.system import paths
from dynamic_mcp.system.extras import install_hint
from dynamic_mcp.ui.links import PageLinks

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation
    from dynamic_mcp.config.resolved import Config

_STARTS_WITHIN_S = 3.0
_POLL_S = 0.1


def open_page(context: Invocation, *, opens_browser: bool) -> int:
    """Open the page, served until Ctrl-C if nothing that runs does; return the exit code. Raises DynamicMcpError."""
    config = context.read_config()
    if config.ui is False:
        raise DynamicMcpError(f"`{config.file}` turns the page off", hint="remove `ui` from its `settings`")
    if importlib.util.find_spec("jinja2") is None:
        raise DynamicMcpError("the page needs the package `jinja2`", hint=install_hint("ui"))
    page = _PageOpener(context, config, opens_browser=opens_browser)
    url = None if context.is_alone else _find_http(config) or run(_ask_daemon(context, config))
    if url is not None:
        run(page.show(url))
        return 0
    context.out.say("nothing that runs has the page of this config: serving it until Ctrl-C, with servers of its own")
    return startup.serve_ui(str(config.file), page.show)


class _PageOpener:
    def __init__(self, context: Invocation, config: Config, *, opens_browser: bool) -> None:
        self._out = context.out
        self._config = identify(config.file)
        self._links = PageLinks(paths.state_dir())
        self._opens_browser = opens_browser

    async def show(self, url: str) -> None:
        """Open a browser at the page below a URL, or print the link, which is valid for five minutes and once."""
        link = f"{url}/ui/login?link={self._links.create(self._config)}"
        is_open = False
        if self._opens_browser and has_browser(os.environ):
            is_open = await open_file(self._links.write_redirect(link))
        self._out.say(
            "opened the page in a browser; or open this link, once:" if is_open else "open this link, once:"
        )
        self._out.print_text(link)


def _find_http(config: Config) -> str | None:
    """Return the URL at which a running process serves this config over HTTP; None if none does.

    One that has just started is given a moment to say where.
    """
    ends_at = time.monotonic() + _STARTS_WITHIN_S
    while True:
        found = [each.status for each in _list_running(config)]
        served = next((status.url for status in found if status.url.startswith("http")), None)
        is_starting = any(status.kind == "http" and not status.url for status in found)
        if served is not None or not is_starting or time.monotonic() > ends_at:
            break
        time.sleep(_POLL_S)
    if served is None:
        return None
    parts = urlsplit(served)
    return f"{parts.scheme}://{parts.netloc}{'' if config.http is None else config.http.root_path}"


def _list_running(config: Config) -> list[RunningProxy]:
    """Return the processes that serve a config, without those that are silent."""
    running = ProxyRegistry(paths.state_dir() / "running").list_proxies()
    file = identify(config.file)
    return [each for each in running if each.status.config == file and not each.silent_s]


async def _ask_daemon(context: Invocation, config: Config) -> str | None:
    """Have the daemon of a config serve the page; return the URL that its path is below, None without a daemon."""
    from dynamic_mcp.cli.daemon_client import find_daemon

    daemon = await find_daemon(context, config)
    if daemon is None:
        return None
    try:
        return await daemon.open_ui()
    finally:
        await daemon.aclose()
