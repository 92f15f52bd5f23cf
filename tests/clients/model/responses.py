"""OpenAI's responses: https://platform.openai.com/docs/api-reference/responses.

Tools may stand in a namespace; such a tool is called `namespace/tool` here. Those that a client defers are found by
its `tool_search`, which is an item of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.clients.model.dialect import Answer, Call, Json, Result, Shown, base64_of, blocks, typed

SEARCH = "tool_search"


class Responses:
    """`POST /v1/responses`."""

    def speaks(self, path: str) -> bool:
        return path.endswith("/responses")

    def read(self, body: Json) -> Shown:
        tools = list(_names(body.get("tools", ())))
        results: list[Result] = []
        called: dict[str, str] = {}
        for item in body["input"]:
            match item.get("type"):
                case "function_call":
                    called[item["call_id"]] = _name(item)
                case "function_call_output":
                    results.append(_result(item["output"], called[item["call_id"]]))
                case "tool_search_output":
                    tools += _names(item["tools"])
                    results.append(Result(SEARCH))
        return Shown(tuple(tools), tuple(results))

    def answer(self, body: Json, path: str, saying: Call | str, number: int) -> Answer:
        item = _item(saying, number)
        response = {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 0,
            "model": body["model"],
            "status": "completed",
            "output": [item],
            "usage": {
                "input_tokens": 1,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 1,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 2,
            },
        }
        return Answer(events=typed(_events(response, item))) if body.get("stream") else Answer(response)


def _name(tool: Json, namespace: str = "") -> str:
    namespace = namespace or tool.get("namespace") or ""
    return f"{namespace}/{tool['name']}" if namespace else str(tool["name"])


def _names(tools: Json) -> Iterator[str]:
    for tool in tools:
        if tool["type"] == "namespace":
            yield from (_name(each, tool["name"]) for each in tool["tools"])
        elif tool["type"] == "function":
            yield _name(tool)


def _result(output: Json, tool: str) -> Result:
    result = Result(tool)
    for block in blocks(output):
        if block["type"] == "input_image":
            result.images.append(base64_of(block["image_url"]))
        else:
            result.texts.append(block["text"])
    return result


def _item(saying: Call | str, number: int) -> dict[str, Json]:
    if isinstance(saying, str):
        said = {"type": "output_text", "text": saying, "annotations": []}
        return {"type": "message", "id": f"m_{number}", "role": "assistant", "status": "completed", "content": [said]}
    if saying.tool == SEARCH:
        search = {"execution": "client", "arguments": dict(saying.arguments)}
        return {"type": "tool_search_call", "id": f"ts_{number}", "call_id": f"call_{number}", **search}
    namespace, _, name = saying.tool.rpartition("/")
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "arguments": json.dumps(saying.arguments),
        "status": "completed",
    }


def _events(response: dict[str, Json], item: dict[str, Json]) -> Iterator[dict[str, Json]]:
    empties: dict[str, dict[str, Json]] = {"function_call": {"arguments": ""}, "message": {"content": []}}
    begun = {**item, "status": "in_progress", **empties.get(item["type"], {})}
    steps: list[dict[str, Json]] = [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    for number, step in enumerate(steps):
        yield {**step, "sequence_number": number}
