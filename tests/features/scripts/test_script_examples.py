"""The examples of docs/scripts.md run, in front of servers with the tools that they call."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from dynamic_mcp.config.resolved import Share
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.proxy.proxy import Proxy
from tests.documents import ROOT, find_blocks
from tests.fakes import FakeUpstream, Json, Opener, config_of, group_config
from tests.features.scripts.scene import SLOW_S, ScriptClient, text

PAGE = ROOT / "docs" / "scripts.md"
EXAMPLES = {mark: block.text for block in find_blocks(PAGE) if (mark := block.find_mark("runs"))}
ISSUES = [{"number": n, "at": f"2026-01-{n:02}", "mail": f"{'ab'[n % 2]}@x"} for n in range(1, 21)]
ROWS = [{"id": n, "status": "open" if n % 2 else "paid", "days": n, "amount": 10} for n in range(500)]
PAGES: dict[str | None, Json] = {
    None: {"files": [{"name": "a.py"}, {"name": "b.md"}], "next": "2"},
    "2": {"files": [{"name": "c.py"}]},
}


def comments(args: Json) -> Json:
    """Answer with two comments, the last by the user for every third issue, and none for the first."""
    n = args["issue"]
    last = {"by": "me" if n % 3 == 0 else "you", "at": f"2026-02-{28 - n:02}"}
    return [] if n == 1 else [{"by": "you", "at": "2026-01-30"}, last]


def weather(args: Json) -> Json:
    """Answer with a temperature, but not for every city."""
    if args["city"] == "Atlantis":
        return {**text("no such city"), "isError": True}
    return {"content": [], "structuredContent": {"celsius": len(args["city"])}}


TOOLS: dict[str, dict[str, Callable[[Json], Json]]] = {
    "github": {"list_issues": lambda args: text(ISSUES), "list_comments": lambda args: text(comments(args))},
    "db": {"query": lambda args: text(ROWS)},
    "directory": {"list_people": lambda args: text([{"mail": "a@x", "team": "red"}])},
    "files": {"list": lambda args: text(PAGES[args.get("cursor")])},
    "weather": {"now": weather},
}
RESULTS: dict[str, tuple[Json, Json]] = {
    "fan out": (
        None,
        [{"number": n, "since": since} for n, since in ((1, "2026-01-01"), (20, "2026-02-08"), (19, "2026-02-09"))],
    ),
    "filter": ({"days": 489}, {"count": 5, "total": 50, "first": [491, 493, 495, 497, 499]}),
    "join": (None, {"nobody": 10, "red": 10}),
    "paginate": (".py", ["a.py", "c.py"]),
    "partial failure": (["Rome", "Atlantis", "London"], {"warmest": "London", "failed": ["Atlantis"]}),
}


def test_each_example_has_its_result() -> None:
    assert len(EXAMPLES) == 5
    assert EXAMPLES.keys() == RESULTS.keys()


@pytest.mark.parametrize("example", EXAMPLES)
async def test_an_example_runs(example: str) -> None:
    def answer_of(group: str) -> Callable[[Json], Json]:
        return lambda params: TOOLS[group][params["name"]](params["arguments"])

    upstreams = {group: [FakeUpstream({"tools/call": answer_of(group)}, tools=TOOLS[group])] for group in TOOLS}
    config = config_of(*(group_config(group, share=Share.ALL) for group in TOOLS), scripts=Scripts())
    proxy = Proxy(config, opener=Opener(**upstreams))
    client = ScriptClient(proxy, bound_s=SLOW_S)
    given, expected = RESULTS[example]
    try:
        await client.initialize()
        result = await client.run(EXAMPLES[example], given)
    finally:
        await proxy.close()
    assert json.loads(result["content"][0]["text"]) == expected
    if example == "partial failure":
        assert result["content"][1]["text"] == "printed:\nAtlantis no such city\n"
