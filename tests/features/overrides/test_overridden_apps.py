"""Apps whose tools clients see by other names."""

from __future__ import annotations

from tests.fakes import Opener, client_of, group_config
from tests.features.overrides.overridden import rules_of
from tests.proxy.app_servers import DONE, HOST, LINKED, PAGE, app_only, app_server, by_name, listed, read, with_meta


async def test_an_app_calls_a_renamed_tool_by_the_name_that_its_server_gives_it() -> None:
    upstream = app_server(with_meta("show", LINKED), app_only("poll"))
    rules = rules_of(show={"rename": "display"}, poll={"rename": "refresh"})
    async with client_of(Opener(clock=[upstream]), group_config("clock", rules=rules)) as client:
        await client.initialize(capabilities=HOST)
        assert list(await listed(client)) == ["clock__display", "clock__refresh"]
        await read(client, PAGE)

        for name in ("show", "poll"):
            assert (await by_name(client, name))["result"] == DONE
        assert [each["params"]["name"] for each in upstream.heard("tools/call")] == ["show", "poll"]
        assert (await client.call("clock", "refresh"))["isError"]
