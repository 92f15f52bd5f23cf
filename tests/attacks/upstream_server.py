"""A hostile MCP server over stdio: what it offers and says comes from the test, beside the tools of odd.py.

    python upstream_server.py SCRIPT [MODE [ARGUMENT]]

SCRIPT is a JSON file that is read for each request, so that a test can change it: `tools` are listed after the
server's own, and `results` has a method's result, its `{"error": …}`, or null for no answer at all. A mode is one
of odd_modes.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.upstreams.odd import MODES, TOOLS, Request, Server, tool
    from tests.upstreams.odd_faults import text_result, to_json
else:
    sys.path.insert(0, str(Path(__file__).parent.parent / "upstreams"))
    from odd import MODES, TOOLS, Request, Server, tool
    from odd_faults import text_result, to_json

Json = Any  # what a test wrote down


class HostileServer(Server):
    """Answers by its script, and keeps what its questions were answered with."""

    def __init__(self, script: Path) -> None:
        super().__init__()
        self.script = script
        self.answers: list[Json] = []
        self.expected = 0
        self.asking: Request | None = None

    def handle(self, request: Request) -> None:
        """Answer as the script says, else correctly."""
        script = json.loads(self.script.read_text())
        self.listed = [each.listed for each in TOOLS.values()] + script.get("tools", [])
        results = script.get("results", {})
        if request.method not in results:
            super().handle(request)
        elif (result := results[request.method]) is not None:
            member = "error" if "error" in result else "result"
            body = result.get("error", result)
            self.write(to_json({"jsonrpc": "2.0", "id": json.loads(request.id), member: body}).encode() + b"\n")

    def receive(self, line: bytes) -> None:
        """Keep an answer to a question, and handle everything else."""
        message = json.loads(line)
        if self.asking is None or "method" in message or not str(message.get("id")).startswith("question"):
            super().receive(line)
            return
        self.answers.append(message)
        if len(self.answers) == self.expected:
            self.answer(self.asking, text_result(to_json(self.answers)))
            self.asking = None


@tool("Writes lines, with `$ID` in them replaced by the id of this call; each character is a byte.", lines="array")
def say(server: Server, request: Request) -> None:
    lines = [str(line).replace("$ID", request.id) for line in request.arguments["lines"]]
    server.write_each(line.encode("latin-1") for line in lines)


@tool("Asks the client these questions at once, and answers what it was answered.", method="string", params="array")
def ask_all(server: Server, request: Request) -> None:
    assert isinstance(server, HostileServer)
    method, questions = request.arguments["method"], request.arguments["params"]
    server.asking, server.answers, server.expected = request, [], len(questions)
    frames = [
        {"jsonrpc": "2.0", "id": f"question-{number}", "method": method, "params": params}
        for number, params in enumerate(questions)
    ]
    server.write_each(to_json(frame).encode() + b"\n" for frame in frames)


@tool("Answers what a file says.", path="string")
def read_file(server: Server, request: Request) -> str:
    try:
        return Path(request.arguments["path"]).read_bytes().decode(errors="replace")
    except OSError as exc:
        return f"failed: {exc}"


def main() -> None:
    """Serve as the script and the mode say."""
    server = HostileServer(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        MODES[sys.argv[2]](server, sys.argv[3] if len(sys.argv) > 3 else "")
    server.serve()


if __name__ == "__main__":
    main()
