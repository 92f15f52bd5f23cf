"""Gemini's content: https://ai.google.dev/api/generate-content."""

from __future__ import annotations

import json

from tests.clients.model.dialect import Answer, Json, Result, Saying, Shown, calls_of, event


class Gemini:
    """`POST /v1beta/models/MODEL:generateContent` and its stream; images come beside the result or inside it."""

    def speaks(self, path: str) -> bool:
        return path.endswith((":generateContent", ":streamGenerateContent"))

    def read(self, body: Json) -> Shown:
        results: list[Result] = []
        for content in body["contents"]:
            for part in content["parts"]:
                if answered := part.get("functionResponse"):
                    results.append(_result(answered))
                elif results and "inlineData" in part:
                    results[-1].images.append(part["inlineData"]["data"])
        tools = [each for tool in body.get("tools") or () for each in tool.get("functionDeclarations", ())]
        return Shown(tuple(tool["name"] for tool in tools), tuple(results))

    def answer(self, body: Json, path: str, saying: Saying, number: int) -> Answer:
        parts: list[Json] = (
            [{"text": saying}]
            if isinstance(saying, str)
            else [{"functionCall": {"name": each.tool, "args": dict(each.arguments)}} for each in calls_of(saying)]
        )
        document = {
            "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
            "modelVersion": "scripted",
        }
        return Answer(events=(event(document),)) if ":stream" in path else Answer(document)


def _result(answered: Json) -> Result:
    response = answered.get("response", {})
    result = Result(answered["name"], is_error="error" in response)
    result.texts = [each if isinstance(each, str) else json.dumps(each) for each in response.values()]
    for part in answered.get("parts", ()):
        if "inlineData" in part:
            result.images.append(part["inlineData"]["data"])
    return result
