"""What `examples/openapi.json` offers: the operations of its document, but for those that the config leaves out."""

from __future__ import annotations

from pathlib import Path

from dynamic_mcp.config.openapi import make_selection
from dynamic_mcp.config.read import read
from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.openapi.service import read_service

CONFIG = Path(__file__).parent.parent / "examples" / "openapi.json"


def test_its_operations_are_tools_with_what_a_call_gives_and_no_key() -> None:
    (group,) = read(CONFIG, {}).groups
    assert isinstance(group.upstream, Remote)
    assert group.upstream.api is not None
    assert group.upstream.url == "https://eu.shop.example.com/v1"
    data = Path(group.upstream.api.location).read_bytes()
    service = read_service(data, make_selection(group.upstream, group.upstream.api))
    arguments = {tool["name"]: [*tool["inputSchema"]["properties"]] for tool in service.tools}
    assert arguments == {"listOrders": ["status", "page"], "createOrder": ["body"], "getOrder": ["id"]}
    assert service.find_unfilled() == {}
