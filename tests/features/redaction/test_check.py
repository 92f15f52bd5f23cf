"""What is found wrong with rules on what is replaced."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.features.redaction.check import check
from dynamic_mcp.features.redaction.config import Redact
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from tests.fakes import config_of, group_config

CATALOG = Catalog({ListKind.TOOLS: Listing({"query": Raw(b'{"name":"query"}')})})


def test_rules_on_texts_that_are_about_nothing_or_find_nothing_are_found() -> None:
    rules = (
        Redact("mcpServers.a.redact[0]", tools=("walk",), pattern="x*"),
        Redact("mcpServers.a.redact[1]", tools=("query",), pattern="x+"),
        Redact("mcpServers.a.redact[2]", presets=("keys",)),
    )
    found = check(config_of(group_config("a", rules={"redact": rules})), lambda: {"a": CATALOG})

    assert [each.where for each in found] == ["mcpServers.a.redact[0].pattern", "mcpServers.a.redact[0].tools[0]"]
