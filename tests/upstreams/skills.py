"""A server of skills, over stdio: its name and its skills, as JSON, are its arguments. Of the era of 2025-11-25."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

Json = Any  # Any: JSON
EXTENSION = "io.modelcontextprotocol/skills"
# By the path of each skill, its files besides SKILL.md.
Skills = Mapping[str, Mapping[str, str]]


def main_file(name: str, path: str) -> str:
    """Return the SKILL.md of a skill of the server of this name."""
    skill = path.rpartition("/")[2]
    return f"---\nname: {skill}\ndescription: Process {skill} as {name} does\n---\n# {skill} of {name}\n"


class SkillServer:
    """What the server answers; `cursor_at` splits its list into pages of so many skills."""

    def __init__(self, name: str, skills: Skills, *, directories: bool = True, page: int = 100) -> None:
        self.name = name
        self.has_directories = directories
        self.page = page
        self.files: dict[str, str] = {}
        self.skills: dict[str, list[str]] = {}
        for path, others in skills.items():
            self.add(path, others)

    def add(self, path: str, others: Mapping[str, str]) -> None:
        """Serve another skill."""
        root = f"skill://{path}"
        found = {
            f"{root}/SKILL.md": main_file(self.name, path),
            **{f"{root}/{each}": t for each, t in others.items()},
        }
        self.files |= found
        self.skills[f"{root}/SKILL.md"] = list(found)

    def entry(self, uri: str) -> Json:
        """Return the entry of a skill."""
        name = uri.split("/")[-2]
        front_matter = {"name": name, "description": f"Process {name} as {self.name} does"}
        files = [
            {"uri": each, "digest": digest(self.files[each]), "size": len(self.files[each].encode())}
            for each in self.skills[uri]
        ]
        return {"uri": uri, "frontmatter": front_matter, "resources": files}

    def answer(self, method: str, params: Json) -> Json:
        """Return the result of a request, or None for an error."""
        uri = (params or {}).get("uri", "")
        match method:
            case "initialize":
                settings = {"directoryRead": True} if self.has_directories else {}
                return {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"resources": {"listChanged": True}, "extensions": {EXTENSION: settings}},
                    "serverInfo": {"name": self.name, "version": "1"},
                }
            case "skills/list":
                start = int((params or {}).get("cursor", 0))
                entries = [self.entry(each) for each in self.skills][start : start + self.page]
                more = {"nextCursor": str(start + self.page)} if start + self.page < len(self.skills) else {}
                return {"skills": entries, "ttlMs": 60_000, "cacheScope": "public", **more}
            case "skills/get" if uri in self.skills:
                return {"skill": self.entry(uri), "ttlMs": 0, "cacheScope": "private"}
            case "resources/list":
                return {"resources": [self._resource(each) for each in self.files]}
            case "resources/templates/list":
                return {"resourceTemplates": []}
            case "resources/read" if uri in self.files:
                return {"contents": [{"uri": uri, "mimeType": "text/markdown", "text": self.files[uri]}]}
            case "resources/directory/read" if self.has_directories and (children := {*self._children(uri)}):
                return {"resources": [self._resource(f"{uri}/{each}") for each in sorted(children)]}
        return None

    def _resource(self, uri: str) -> Json:
        if uri not in self.files:
            return {"uri": uri, "name": uri.rpartition("/")[2], "mimeType": "inode/directory"}
        about = self.entry(uri)["frontmatter"] if uri in self.skills else {"name": uri.rpartition("/")[2]}
        return {"uri": uri, "mimeType": "text/markdown", **about}

    def _children(self, uri: str) -> Iterator[str]:
        for each in self.files:
            if each.startswith(f"{uri}/"):
                yield each.removeprefix(f"{uri}/").partition("/")[0]


def digest(text: str) -> str:
    """Return the digest of a file, as entries have it."""
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def main() -> None:
    """Serve until stdin ends."""
    server = SkillServer(sys.argv[1], json.loads(sys.argv[2]))
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            result = server.answer(message["method"], message.get("params"))
            error = {"error": {"code": -32602, "message": "there is none"}}
            print(
                json.dumps(
                    {"jsonrpc": "2.0", "id": message["id"], **({"result": result} if result is not None else error)}
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
