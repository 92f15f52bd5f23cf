"""Anthropic's messages: https://platform.claude.com/docs/en/api/messages."""

from __future__ import annotations

import json

from tests.clients.model.dialect import Answer, Json, Result, Saying, Shown, blocks, calls_of, typed


class Messages:
    """`POST /v1/messages`."""

    def speaks(self, path: str) -> bool:
        return path.endswith("/messages")

    def read(self, body: Json) -> Shown:
        results: list[Result] = []
        called: dict[str, str] = {}
        for message in body["messages"]:
            for block in blocks(message["content"]):
                match block["type"]:
                    case "tool_use":
                        called[block["id"]] = block["name"]
                    case "tool_result":
                        results.append(_result(block, called[block["tool_use_id"]]))
        tools = [tool["name"] for tool in body.get("tools", ()) if not tool.get("defer_loading")]
        return Shown(tuple(tools), tuple(results))

    def answer(self, body: Json, path: str, saying: Saying, number: int) -> Answer:
        content, reason = _content(saying, number)
        message = {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        return Answer(events=typed(_events(message))) if body.get("stream") else Answer(message)


def _result(block: Json, tool: str) -> Result:
    result = Result(tool, is_error=bool(block.get("is_error")))
    for part in blocks(block.get("content")):
        match part["type"]:
            case "text":
                result.texts.append(part["text"])
            case "image":
                result.images.append(part["source"]["data"])
            case "tool_reference":
                result.texts.append(part["tool_name"])
    return result


def _content(saying: Saying, number: int) -> tuple[list[dict[str, Json]], str]:
    if isinstance(saying, str):
        return [{"type": "text", "text": saying}], "end_turn"
    used = [
        {"type": "tool_use", "id": f"toolu_{number}_{index}", "name": each.tool, "input": dict(each.arguments)}
        for index, each in enumerate(calls_of(saying))
    ]
    return used, "tool_use"


def _events(message: dict[str, Json]) -> list[dict[str, Json]]:
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    return [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
        *(each for index, block in enumerate(message["content"]) for each in _events_of(index, block)),
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def _events_of(index: int, block: dict[str, Json]) -> list[dict[str, Json]]:
    if block["type"] == "text":
        begun, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        begun, delta = (
            {**block, "input": {}},
            {"type": "input_json_delta", "partial_json": json.dumps(block["input"])},
        )
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        {"type": "content_block_delta", "index": index, "delta": delta},
        {"type": "content_block_stop", "index": index},
    ]
