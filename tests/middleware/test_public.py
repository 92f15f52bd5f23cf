"""What plug-ins import: immutable, decoded late, and independent of the rest of the program."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from dynamic_mcp import middleware
from dynamic_mcp.middleware import CallerInfo, CallRequest, CallResult, Item, Middleware

REQUEST = CallRequest("tool", "github", "create_issue", raw_arguments=b'{"title":"a","size":123456789012345678901}')


def test_the_package_brings_no_other_module_of_the_program_and_no_dependency() -> None:
    script = "import sys; import dynamic_mcp.middleware; print(*sorted(m.partition('.')[0] for m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"msgspec", "pydantic", "asyncio", "mcp", "click"} & set(loaded)
    script = "import sys; import dynamic_mcp.middleware; print(*(m for m in sys.modules if m.startswith('dynamic')))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert all(name == "dynamic_mcp" or name.startswith("dynamic_mcp.middleware") for name in loaded)


def test_the_stable_names_are_these() -> None:
    assert sorted(middleware.__all__) == [
        "CallFailed",
        "CallKind",
        "CallRequest",
        "CallResult",
        "CallerInfo",
        "Item",
        "ListKind",
        "Middleware",
        "Next",
        "PluginServices",
    ]


def test_a_request_with_other_arguments_is_another_request() -> None:
    changed = REQUEST.replace(arguments={**REQUEST.arguments, "title": "ü\ud800"})
    assert REQUEST.arguments == {"title": "a", "size": 123456789012345678901}
    assert changed.arguments == {"title": "ü\ud800", "size": 123456789012345678901}
    assert (changed.kind, changed.server, changed.name) == ("tool", "github", "create_issue")


@pytest.mark.parametrize("name", ["name", "server", "kind", "raw_arguments"])
def test_a_request_cannot_be_changed(name: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(REQUEST, name, "x")


@pytest.mark.parametrize("arguments", [{"a": float("nan")}, {"a": object()}, {"a": {1, 2}}, [1], "text"])
def test_arguments_that_are_no_json_object_are_refused_at_once(arguments: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        REQUEST.replace(arguments=arguments)


def test_a_resource_has_no_arguments() -> None:
    with pytest.raises(ValueError, match="without arguments"):
        CallRequest("resource", "docs", "file:///a").replace(arguments={})


def test_arguments_are_decoded_only_when_they_are_asked_for() -> None:
    request = CallRequest("tool", "a", "b", raw_arguments=b"[1]")
    with pytest.raises(ValueError, match="not a JSON object"):
        _ = request.arguments


def test_results_are_made_of_a_text_an_error_and_what_mcp_says() -> None:
    assert CallResult.text("hello", structured={"n": 1}).value == {
        "content": [{"type": "text", "text": "hello"}],
        "structuredContent": {"n": 1},
    }
    assert CallResult.text("hello").structured_content is None
    assert CallResult.error("no").is_error
    assert not CallResult.text("yes").is_error
    prompt = CallResult({"messages": []})
    assert prompt.content == []
    assert prompt.raw == b'{"messages":[]}'


def test_a_result_keeps_the_members_that_are_not_replaced() -> None:
    result = CallResult(b'{"content":[],"_meta":{"a":1},"isError":true}')
    assert result.replace(isError=False).value == {"content": [], "_meta": {"a": 1}, "isError": False}
    assert result.is_error


@pytest.mark.parametrize("raw", [b'{"task":{"taskId":"1"}}', b'{"resultType":"input_required"}'])
def test_a_task_or_a_question_is_not_a_complete_result(raw: bytes) -> None:
    assert not CallResult(raw).is_complete
    assert CallResult.text("done").is_complete


def test_an_item_keeps_its_name() -> None:
    item = Item("tools", "github", "search", b'{"name":"find","title":"T","inputSchema":{}}')
    assert item.replace(title=None, description="D").definition == {
        "name": "find",
        "inputSchema": {},
        "description": "D",
    }
    for kind, key in (("tools", "name"), ("prompts", "name"), ("resources", "uri"), ("templates", "uriTemplate")):
        with pytest.raises(ValueError, match=key):
            Item(kind, "s", "n", b"{}").replace(**{key: "other"})  # type: ignore[arg-type]


async def test_a_plug_in_without_methods_changes_nothing() -> None:
    plugin = Middleware()
    result = CallResult.text("x")

    async def following(request: CallRequest) -> CallResult:
        assert request is REQUEST
        return result

    assert await plugin.call(REQUEST, following) is result
    items = [Item("tools", "a", "b", b"{}")]
    assert await plugin.list("tools", items, CallerInfo()) is items
