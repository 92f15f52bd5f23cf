"""Servers of skills without a process, for tests of what a proxy makes of them."""

from __future__ import annotations

from functools import partial

from tests.fakes import Client, Error, FakeUpstream, Json
from tests.upstreams.skills import Skills, SkillServer

NOT_SERVED = Error(-32602, "there is none")


class SkillUpstream(FakeUpstream):
    """A server of skills; `server` may be changed."""

    def __init__(self, name: str, skills: Skills, *, directories: bool = True, page: int = 100) -> None:
        super().__init__()
        self.server = SkillServer(name, skills, directories=directories, page=page)
        methods = ("initialize", "skills/list", "skills/get", "resources/read", "resources/directory/read")
        lists = ("resources/list", "resources/templates/list")
        self.answers = {method: partial(self._answer_as_server, method) for method in (*methods, *lists)}

    def _answer_as_server(self, method: str, params: Json) -> Json:
        result = self.server.answer(method, params)
        return NOT_SERVED if result is None else result


async def list_skills(client: Client) -> dict[str, Json]:
    """Return the entries that a client lists, by URI."""
    answer = await client.request("skills/list", {})
    return {entry["uri"]: entry for entry in answer["result"]["skills"]}


async def read_text(client: Client, uri: str) -> tuple[str, str]:
    """Return the URI and the text of a file that a client reads."""
    answer = await client.request("resources/read", {"uri": uri})
    (content,) = answer["result"]["contents"]
    return content["uri"], content["text"]
