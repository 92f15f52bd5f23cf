"""The audit log is there while the config wants it, and goes on over a reload."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from dynamic_mcp.features.audit.config import Audit
from dynamic_mcp.host.observing import Observing
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FakeUpstream, Opener, config_of, group_config
from tests.features.audit.audited import ANSWERS, uses_in


async def test_the_log_goes_on_over_a_reload(tmp_path: Path) -> None:
    settings = Audit(path=tmp_path)
    config = config_of(group_config("up"), audit=settings)
    proxy = Proxy(config, opener=Opener(up=[FakeUpstream(ANSWERS)]))
    observing = Observing(proxy)
    observing.apply(config)
    client = Client(proxy)
    await client.initialize()
    await client.call("up", "get_thing", {"a": 1})
    observing.apply(structs.replace(config, audit=structs.replace(settings, arguments="full")))
    await client.call("up", "get_thing", {"a": 1})
    observing.apply(structs.replace(config, audit=structs.replace(settings, on_failure="stop-writes")))
    await client.call("up", "get_thing", {"a": 2})
    observing.apply(structs.replace(config, audit=None))
    assert proxy.observers is None
    await client.call("up", "get_thing", {"a": 3})
    await observing.close()
    await proxy.close()
    assert [line["arguments"].get("a") for line in uses_in(tmp_path)] == [None, 1, None]


async def test_a_log_without_a_path_is_in_the_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dynamic_mcp.system.paths.state_dir", lambda: tmp_path)
    config = config_of(group_config("up"), audit=Audit())
    proxy = Proxy(config, opener=Opener(up=[FakeUpstream(ANSWERS)]))
    observing = Observing(proxy)
    observing.apply(config)
    client = Client(proxy)
    await client.initialize()
    await client.call("up", "get_thing")
    await observing.close()
    await proxy.close()
    assert len(uses_in(tmp_path / "audit")) == 1
