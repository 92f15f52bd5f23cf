"""OpenAI's chat completions: https://platform.openai.com/docs/api-reference/chat."""

from __future__ import annotations

import json

from tests.clients.model.dialect import Answer, Json, Result, Saying, Shown, base64_of, blocks, calls_of, event


class Chat:
    """`POST /v1/chat/completions`; an image comes in a message of its own after the result that it belongs to."""

    def speaks(self, path: str) -> bool:
        return path.endswith("/chat/completions")

    def read(self, body: Json) -> Shown:
        results: list[Result] = []
        called: dict[str, str] = {}
        for message in body["messages"]:
            called |= {each["id"]: each["function"]["name"] for each in message.get("tool_calls") or ()}
            if message["role"] == "tool":
                results.append(Result(called[message["tool_call_id"]]))
            for block in blocks(message.get("content")) if results else ():
                if block["type"] == "image_url":
                    results[-1].images.append(base64_of(block["image_url"]["url"]))
                elif message["role"] == "tool":
                    results[-1].texts.append(block["text"])
        tools = [tool["function"]["name"] for tool in body.get("tools") or () if tool["type"] == "function"]
        return Shown(tuple(tools), tuple(results))

    def answer(self, body: Json, path: str, saying: Saying, number: int) -> Answer:
        said, reason = _said(saying, number)
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        head = {"id": f"chat_{number}", "created": 0, "model": body["model"]}
        if not body.get("stream"):
            choice = {"index": 0, "message": said, "finish_reason": reason}
            return Answer({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        for index, each in enumerate(said.get("tool_calls", ())):
            each["index"] = index
        head["object"] = "chat.completion.chunk"
        first = {**head, "choices": [{"index": 0, "delta": said, "finish_reason": None}]}
        last = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}
        return Answer(events=(event(first), event(last), event("[DONE]")))


def _said(saying: Saying, number: int) -> tuple[dict[str, Json], str]:
    if isinstance(saying, str):
        return {"role": "assistant", "content": saying}, "stop"
    calls = [
        {
            "id": f"call_{number}_{index}",
            "type": "function",
            "function": {"name": each.tool, "arguments": json.dumps(each.arguments)},
        }
        for index, each in enumerate(calls_of(saying))
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"
