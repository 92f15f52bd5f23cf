"""What `cluster render` prints for the configs of these tests, and how to find things in it.

`python -m tests.deployment.rendered` writes the golden files again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dynamic_mcp.features.cluster.chart import parse_documents
from dynamic_mcp.features.cluster.render import Rendering, render

Json = Any  # objects of Kubernetes
HERE = Path(__file__).parent
CHART = HERE.parent.parent / "deploy" / "chart"
CONFIGS = ("team", "company", "pinned")
NAME = "mcp"


def rendering_of(config: str, *changes: str) -> Rendering:
    """Render one of the configs of these tests, with its values and its secrets."""
    at = HERE / "configs" / config
    values, secrets = at.with_suffix(".yaml"), at.with_suffix(".env")
    return render(at.with_suffix(".json"), NAME, values_file=values, changes=changes, secrets_file=secrets)


@cache
def _documents_of(config: str) -> bytes:
    return json.dumps(parse_documents(rendering_of(config).manifests)).encode()


def objects_of(config: str) -> Objects:
    """Return what is rendered for one of the configs of these tests."""
    return Objects(json.loads(_documents_of(config)))


def golden_file(config: str) -> Path:
    return HERE / "golden" / f"{config}.yaml"


class Objects:
    """The objects of some manifests."""

    def __init__(self, documents: list[Json]) -> None:
        self.all = [each for each in documents if each is not None]

    def __iter__(self) -> Iterator[Json]:
        return iter(self.all)

    def of(self, kind: str) -> list[Json]:
        return [each for each in self.all if each["kind"] == kind]

    def one(self, kind: str, name: str = NAME) -> Json:
        (found,) = (each for each in self.of(kind) if each["metadata"]["name"] == name)
        return found

    def config(self, name: str = NAME) -> Json:
        """Return the config of the pods of this name."""
        return json.loads(self.one("ConfigMap", name)["data"]["dynamic-mcp.json"])

    def variables(self, name: str = NAME) -> list[str]:
        """Return the names of the variables in a Secret."""
        lines: str = self.one("Secret", name)["stringData"]["variables.env"]
        return [line.partition("=")[0] for line in lines.splitlines()]

    def pod(self, kind: str, name: str = NAME) -> Json:
        """Return the spec of the pods of an object."""
        return self.one(kind, name)["spec"]["template"]["spec"]

    def pods(self) -> dict[str, Json]:
        """Return the spec of all pods, by the names of their objects."""
        kinds: Sequence[str] = ("Deployment", "StatefulSet")
        return {
            each["metadata"]["name"]: each["spec"]["template"]["spec"] for kind in kinds for each in self.of(kind)
        }

    def named(self) -> dict[tuple[str, str], Json]:
        """Return all objects by kind and name, with their configs parsed."""
        found = {(each["kind"], each["metadata"]["name"]): each for each in self.all}
        assert len(found) == len(self.all), "two objects have one name"
        for each in found.values():
            if "dynamic-mcp.json" in (data := each.get("data") or {}):
                each["data"] = {**data, "dynamic-mcp.json": json.loads(data["dynamic-mcp.json"])}
        return found


if __name__ == "__main__":
    for each in CONFIGS:
        golden_file(each).write_text(rendering_of(each).manifests, encoding="utf-8")
