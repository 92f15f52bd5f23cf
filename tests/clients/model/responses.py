"""OpenAI's responses: https://platform.openai.com/docs/api-reference/responses.

Tools may stand in a namespace; such a tool is called `namespace/tool` here. Those that a client defers are found by
its `tool_search`, which is an item of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.clients.model.dialect import Answer, Call, Json, Result, Saying, Shown, base64_of, blocks, calls_of, typed

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
                    results.append(Result(SEARCH, list(_names(item["tools"]))))
        return Shown(tuple(tools), tuple(results))

    def answer(self, body: Json, path: str, saying: Saying, number: int) -> Answer:
        items = _items(saying, number)
        response = {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 0,
            "model": body["model"],
            "status": "completed",
            "output": items,
            "usage": {
                "input_tokens": 1,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 1,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 2,
            },
        }
        return Answer(events=typed(_events(response, items))) if body.get("stream") else Answer(response)


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


def _items(saying: Saying, number: int) -> list[dict[str, Json]]:
    if isinstance(saying, str):
        said = {"type": "output_text", "text": saying, "annotations": []}
        head = {"type": "message", "id": f"m_{number}", "role": "assistant", "status": "completed"}
        return [{**head, "content": [said]}]
    return [_item(each, f"{number}_{index}") for index, each in enumerate(calls_of(saying))]


def _item(call: Call, number: str) -> dict[str, Json]:
    if call.tool == SEARCH:
        search = {"execution": "client", "arguments": dict(call.arguments)}
        return {"type": "tool_search_call", "id": f"ts_{number}", "call_id": f"call_{number}", **search}
    namespace, _, name = call.tool.rpartition("/")
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "arguments": json.dumps(call.arguments),
        "status": "completed",
    }


def _events(response: dict[str, Json], items: list[dict[str, Json]]) -> Iterator[dict[str, Json]]:
    empties: dict[str, dict[str, Json]] = {"function_call": {"arguments": ""}, "message": {"content": []}}
    steps: list[dict[str, Json]] = [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        *(
            step
            for index, item in enumerate(items)
            for step in (
                {
                    "type": "response.output_item.added",
                    "output_index": index,
                    "item": {**item, "status": "in_progress", **empties.get(item["type"], {})},
                },
                {"type": "response.output_item.done", "output_index": index, "item": item},
            )
        ),
        {"type": "response.completed", "response": response},
    ]
    for number, step in enumerate(steps):
        yield {**step, "sequence_number": number}
