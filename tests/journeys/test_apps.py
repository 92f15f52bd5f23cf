"""MCP Apps of published servers in a real host: the published packages of the extension, in Chromium.

They are where $DYNAMIC_MCP_TEST_APPS names a folder of npm with them.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.journeys.diary import diary_printed_by
from tests.program import BOUND_S, Json, window_command

pytestmark = pytest.mark.full
HOST = Path(__file__).parent / "app_host.mjs"
PACKAGES = (
    "@ai-sdk/mcp",
    "@modelcontextprotocol/client",
    "@modelcontextprotocol/ext-apps",
    "@modelcontextprotocol/server-basic-vanillajs",
    "@modelcontextprotocol/server-system-monitor",
    "esbuild",
    "playwright-core",
)
MONITOR_PAGE = "ui://system-monitor/mcp-app.html"


@pytest.fixture
def modules() -> Path:
    """The folder of npm with the packages of the extension."""
    modules = Path(os.environ.get("DYNAMIC_MCP_TEST_APPS", ""))
    for package in PACKAGES:
        if not os.environ.get("DYNAMIC_MCP_TEST_APPS") or not (modules / package).is_dir():
            pytest.skip(f"DYNAMIC_MCP_TEST_APPS does not name a folder with `{package}`")
    return modules


@pytest.fixture
def node() -> str:
    return _find("node")


@pytest.fixture
def browser() -> str:
    return _find("chromium")


def _find(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"the command `{program}` is not on the PATH of this machine")
    return found


@pytest.mark.parametrize(("mode", "revision"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_a_host_shows_the_apps_of_several_servers_and_each_calls_its_own_tools(
    tmp_path: Path, modules: Path, node: str, browser: str, mode: str, revision: str
) -> None:
    def server(name: str) -> Json:
        program = modules / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
        return {"command": node, "args": [str(program), "--stdio"]}

    config, plan = tmp_path / "dynamic-mcp.json", tmp_path / "plan.json"
    clock = server("basic-vanillajs")
    config.write_text(json.dumps({"mcpServers": {"home": clock, "work": clock, "monitor": server("system-monitor")}}))
    commands = {"all": window_command(str(config)), "one": window_command("serve", str(config), "--only", "monitor")}
    plan.write_text(json.dumps({"mode": mode, "browser": browser, "tools": 6, **commands}))

    diary = await diary_printed_by(node, str(HOST), str(plan), within_s=4 * BOUND_S)  # it starts a browser

    assert diary["revision"] == revision
    tools = {each["name"]: (each["uri"], each["appOnly"]) for each in diary["tools"]}
    assert tools | dict.fromkeys(("get_dynamic_tools", "call_dynamic_tool"), (None, False)) == {
        "get_dynamic_tools": (None, False),
        "call_dynamic_tool": (None, False),
        "home__get-time": ("ui://home+get-time/mcp-app.html", False),
        "work__get-time": ("ui://work+get-time/mcp-app.html", False),
        "monitor__get-system-info": (MONITOR_PAGE, False),
        "monitor__poll-system-stats": (None, True),
    }
    assert "monitor__poll-system-stats" not in diary["toolsOfModel"]
    assert diary["found"] == ["get-system-info"]

    assert [diary[name]["uri"] for name in ("home", "work", "monitor")] == [
        "ui://home+get-time/mcp-app.html",
        "ui://work+get-time/mcp-app.html",
        MONITOR_PAGE,
    ]
    assert diary["home"]["mimeType"] == "text/html;profile=mcp-app"
    assert diary["home"]["call"] == {"app": "home", "name": "get-time", "isError": False}
    assert diary["monitor"]["call"] == {"app": "monitor", "name": "poll-system-stats", "isError": False}
    assert diary["monitor"]["hostname"] not in ("", "--")

    for stolen in ("stolen", "stolenByListedName"):  # by the page of another server, before that one's was shown
        assert diary[stolen]["isError"]

    ui = {"get-system-info": {"resourceUri": MONITOR_PAGE}, "poll-system-stats": {"visibility": ["app"]}}
    assert dict(diary["one"]) == ui
    assert diary["oneRefuses"]
