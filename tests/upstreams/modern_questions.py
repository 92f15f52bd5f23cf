"""What conformance_modern.py asks clients in the middle of a request, and what it takes for an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from .conformance_offers import form_with, text
    from .modern_request import INVALID_PARAMS, Json, NeedsInput, Refusal, Request
else:  # started by its path, as an upstream is
    from conformance_offers import form_with, text
    from modern_request import INVALID_PARAMS, Json, NeedsInput, Refusal, Request

ELICITATION, SAMPLING, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
_ACTIONS = ("accept", "decline", "cancel")


def elicitation(message: str, form: Json) -> Json:
    """Return a question to the user."""
    return {"method": ELICITATION, "params": {"mode": "form", "message": message, "requestedSchema": form}}


def sampling(prompt: str, max_tokens: int = 100) -> Json:
    """Return a question to the client's model."""
    said = {"role": "user", "content": text(prompt)}
    return {"method": SAMPLING, "params": {"messages": [said], "maxTokens": max_tokens}}


def roots() -> Json:
    """Return a question for the client's roots."""
    return {"method": ROOTS, "params": {}}


NAME = elicitation("What is your name?", form_with("name"))


def ask(request: Request, questions: dict[str, Json], *, keeps_state: bool = False) -> dict[str, Json]:
    """Return the client's answers to all of these questions; ask for those that are missing.

    With state, what was answered in an earlier round counts, and state must come back; without, none may.
    """
    request.require(*(question["method"].partition("/")[0] for question in questions.values()))
    answers = read_answers(request, questions)
    state = request.unseal()
    if not keeps_state:
        if state is not None:
            raise Refusal(INVALID_PARAMS, "a requestState that was never sent")
        if len(answers) < len(questions):
            raise NeedsInput(questions, None)
        return answers
    answers = {} if state is None else {**state, **answers}
    missing = {key: question for key, question in questions.items() if key not in answers}
    if missing:
        raise NeedsInput(missing, request.seal(answers))
    return answers


def read_answers(request: Request, questions: dict[str, Json]) -> dict[str, Json]:
    """Return the answers to these questions that came with a request; unknown keys are ignored."""
    given = request.params.get("inputResponses", {})
    if not isinstance(given, dict):
        raise Refusal(INVALID_PARAMS, "inputResponses is an object")
    answers = {key: given[key] for key in questions if key in given}
    for key, answer in answers.items():
        if not is_answer(questions[key]["method"], answer):
            raise Refusal(INVALID_PARAMS, f"`{key}` is no answer to {questions[key]['method']}")
    return answers


def is_answer(method: str, answer: Json) -> bool:
    """Tell whether a result has the shape that this question is answered with."""
    if not isinstance(answer, dict) or "jsonrpc" in answer or "resultType" in answer:
        return False
    if method == ELICITATION:
        return answer.get("action") in _ACTIONS and isinstance(answer.get("content", {}), dict)
    if method == SAMPLING:
        return isinstance(answer.get("content"), dict | list) and {"role", "model"} <= answer.keys()
    return isinstance(answer.get("roots"), list)


def words_of(answer: Json) -> str:
    """Return the text that a client's model has answered with."""
    blocks = answer["content"] if isinstance(answer["content"], list) else [answer["content"]]
    return " ".join(str(block.get("text", block)) for block in blocks)
