"""Public sets of tools and labelled queries: MetaTool from a file, BFCL from the package `bfcl-eval`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Json = Any  # what the files hold
_BFCL = ("live_multiple", "multiple", "simple_python")


@dataclass(frozen=True)
class Query:
    """What somebody asks for, and the tools that are right."""

    text: str
    relevant: frozenset[tuple[str, str]]

    @property
    def is_reported(self) -> bool:
        """Whether it is in the half that nothing was tuned on."""
        return sha256(self.text.encode()).digest()[0] % 2 == 1


@dataclass(frozen=True)
class Corpus:
    """A pool of tools, each with its group, and the queries."""

    name: str
    tools: tuple[dict[str, Json], ...]
    queries: tuple[Query, ...]

    def part(self, *, reported: bool) -> list[Query]:
        """Return one half of the queries."""
        return [query for query in self.queries if query.is_reported is reported]


def metatool(file: Path) -> Corpus:
    """Read a set in the form {"tools": […], "queries": [{"query": …, "relevant": [[group, tool]]}]}."""
    held = json.loads(file.read_text())
    queries = (Query(each["query"], frozenset(map(tuple, each["relevant"]))) for each in held["queries"])
    return Corpus(file.stem, tuple(held["tools"]), tuple(queries))


def bfcl(folder: Path | None) -> Corpus:
    """Pool the functions of three of BFCL's files; the last thing that the user says is the query."""
    data = folder or _installed()
    tools: dict[str, dict[str, Json]] = {}
    queries: list[Query] = []
    for name in _BFCL:
        answers = {each["id"]: each["ground_truth"] for each in _lines(data / f"possible_answer/BFCL_v4_{name}.json")}
        for each in _lines(data / f"BFCL_v4_{name}.json"):
            for function in each["function"]:
                tools.setdefault(function["name"], _tool(function))
            said = [message["content"] for message in each["question"][0] if message["role"] == "user"]
            right = {("bfcl", called) for call in answers[each["id"]] for called in call}
            queries.append(Query(said[-1], frozenset(right)))
    return Corpus("bfcl", tuple(tools.values()), tuple(queries))


def _installed() -> Path:
    spec = find_spec("bfcl_eval")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("bfcl-eval is not installed: `pip install --no-deps bfcl-eval`, or give --bfcl FOLDER")
    return Path(spec.submodule_search_locations[0]) / "data"


def _lines(file: Path) -> Iterator[Json]:
    return map(json.loads, file.read_text().splitlines())


def _tool(function: Json) -> dict[str, Json]:
    described = {"description": function["description"], "inputSchema": function["parameters"]}
    return {"group": "bfcl", "name": function["name"], **described}
