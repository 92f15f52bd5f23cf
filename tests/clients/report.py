"""Run all that the tests know of the AI clients, and write what came of it into docs/clients.md.

    python -m tests.clients.report [-n PROCESSES]

The clients are where DYNAMIC_MCP_TEST_CLIENTS and DYNAMIC_MCP_TEST_NODE name them; see CONTRIBUTING.md.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.clients.table import CLIENTS, Client

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
COLUMNS = (
    *("import", "install", "variables", "results", "images", "tools visible", "cold start"),
    *("elicitation", "skill"),
)
BEGINNING = """# AI clients

`python -m tests.clients.report` wrote this page. Each client ran without an account, with a scripted model behind
it, in its own home directory: once alone, and once through dynamic-mcp after `dynamic-mcp import` and
`dynamic-mcp install --replace`.

"""
END = """
| column | yes means |
|---|---|
| import | the servers arrive in the config, and the client's files keep every byte |
| install | the client lists dynamic-mcp, and after `undo` its own servers again, in the same bytes |
| variables | servers get the arguments, variables, directory, path and headers that the client alone gives them |
| results | the model gets the same texts, structured results and errors as with the client alone |
| images | the model gets the image itself |
| tools visible | the two tools are in the model's first request; otherwise it must search for them |
| cold start | the first search finds the tools of a server that is still starting |
| elicitation | the forms in which the client lets a server ask a person |
| skill | by `install --cli` alone, the skill is in the model's first request, and its commands work in its shell |

Clients rewrite some of their files themselves. The tests read these before and after each run; if the client has
written a file in between, `undo` only removes the entry. The client's file refers to variables in twenty-two
spellings; each client supports a few of them. Other variables are only in the shell.
"""
DIFFERING = """These spellings mean something else after an import, and are not compared. "Here" is dynamic-mcp,
"there" the client. The names are those of the tests: `V_SET` is set, `V_EMPTY` is empty, `V_UNSET` is not set.
"""
NOT_ASKED = "-"
# The heading of what `tests.clients.surfaces` writes, at the end.
SURFACES = "\n## The two tools, direct tools, or `auto`\n"


class Collector:
    """What the tests found, by client and column."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.broken: dict[str, list[str]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what came of a test."""
        properties = {name: str(value) for name, value in report.user_properties}
        if "column" not in properties or (report.when != "call" and not report.skipped):
            return
        name = report.nodeid.partition("[")[2].removesuffix("]")
        client = max((each.name for each in CLIENTS if name.startswith(each.name)), key=len)
        cell = {"passed": properties.get("cell", "yes"), "skipped": NOT_ASKED}.get(report.outcome, "**no**")
        self.cells[client, properties["column"]].append(cell)
        if report.failed:
            self.broken[client].append(report.nodeid.partition("[")[0].rpartition("::test_")[2].replace("_", " "))

    def cell(self, client: Client, column: str) -> str:
        """Return the words of a cell: a promise that is kept in part is not kept."""
        found = self.cells[client.name, column]
        asked = [each for each in found if each != NOT_ASKED] or [NOT_ASKED]
        return "**no**" if "**no**" in asked else " ".join(dict.fromkeys(asked))


def page(collector: Collector) -> str:
    """Return the whole page."""
    heads = ("client", "version", *COLUMNS, "what to know")
    rows = [heads, tuple("---" for _ in heads)]
    for client in CLIENTS:
        cells = (collector.cell(client, column) for column in COLUMNS)
        rows.append((client.title, client.version, *cells, client.know))
    table = "".join(f"| {' | '.join(row)} |\n".replace("|  |", "| |") for row in rows)
    differing = "".join(
        f"- {client.title}: `{spelling}`: {meaning}\n"
        for client in CLIENTS
        for spelling, meaning in client.differs.items()
    )
    broken = "".join(
        f"- {client.title}: {promise}\n"
        for client in CLIENTS
        for promise in dict.fromkeys(collector.broken[client.name])
    )
    known = f"\n## What is spelled differently\n\n{DIFFERING}\n{differing}"
    return BEGINNING + table + END + known + (f"\n## Where it says no\n\n{broken}" if broken else "")


def surfaces_of(text: str) -> str:
    """Return the part of the page that `tests.clients.surfaces` has written."""
    return "".join(text.partition(SURFACES)[1:])


def main() -> int:
    """Run the tests, and write the page if every client was there."""
    os.environ["DYNAMIC_MCP_TEST_CLIENTS_WHOLE"] = "1"
    collector = Collector()
    args = sys.argv[1:] or ["-n", "2"]
    folder = str(Path(__file__).parent)
    # the tests of one module share the turns of a client
    code = pytest.main(
        [folder, "-m", "", "--dist", "loadfile", "--timeout", "600", "--tb", "short", *args], plugins=[collector]
    )
    missing = [client.title for client in CLIENTS if (client.name, "results") not in collector.cells]
    if missing or any(NOT_ASKED in collector.cells[client.name, "results"] for client in CLIENTS):
        print(f"{PAGE.name} stays as it is: not every client was there", file=sys.stderr)
        return 1
    PAGE.write_text(page(collector) + surfaces_of(PAGE.read_text()))
    return int(code)


if __name__ == "__main__":
    raise SystemExit(main())
