"""What ``--answer KEY=JSON`` gives: answers to questions that a server is expected to ask."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from mcp_tasks_core.answers import check_answer
from mcp_tasks_core.capabilities import ROOTS, SAMPLING
from mcp_tasks_core.identifiers import JSONObject, JSONValue
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.wire.json import JsonError, StrictJson
from mcp_tasks_core.wire.requested_schema import choices_of
from mcp_tasks_trio.display import printable
from mcp_tasks_trio.exit_codes import WrongUsage

# Members of a whole answer: to an elicitation, to sampling, to roots. Without any of them it is a form's content.
_WHOLE = ("action", "role", "roots")


def parse_object(text: str, what: str) -> JSONObject:
    """The JSON object that stands on the command line.

    Raises:
        WrongUsage: it is none.
    """
    try:
        value = StrictJson(Limits()).decode(text.encode("utf-8"))
    except (JsonError, UnicodeEncodeError) as error:
        raise WrongUsage(f"{what} is no JSON: {getattr(error, 'message', error)}") from None
    if not isinstance(value, dict):
        raise WrongUsage(f"""{what} is a JSON object, such as '{{"name": "Ada"}}', and not {text[:60]!r}""")
    return value


class GivenAnswers:
    """The answers by key.

    Args:
        texts: each KEY=JSON.

    Raises:
        WrongUsage: one is not of this form, or a key stands twice.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._answers: dict[str, JSONObject] = {}
        self._used: set[str] = set()
        for text in texts:
            key, equals, value = text.partition("=")
            if not equals or not key:
                raise WrongUsage(
                    f"""--answer is KEY=JSON, such as 'quarter={{"quarter": "Q1"}}', and not {text[:60]}"""
                )
            if key in self._answers:
                raise WrongUsage(f"--answer {key}=... is given twice")
            answer = parse_object(value, f"--answer {key}=...")
            is_whole = any(member in answer for member in _WHOLE)
            self._answers[key] = answer if is_whole else {"action": "accept", "content": answer}

    @property
    def capabilities(self) -> JSONObject:
        """What can be answered beside elicitation, as a client declares it."""
        kinds = {"role": "sampling", "roots": "roots"}
        return {
            name: {} for member, name in kinds.items() if any(member in answer for answer in self._answers.values())
        }

    def find(self, key: str, request: JSONObject) -> JSONObject | None:
        """The answer to a question, if it was given.

        Raises:
            WrongUsage: it does not fit the question.
        """
        answer = self._answers.get(key)
        if answer is None:
            return None
        self._used.add(key)
        problem = check_answer(request, answer)
        if problem is not None:
            raise WrongUsage(f"--answer {key}=... does not fit the question: {problem}")
        return answer

    @property
    def unused(self) -> list[str]:
        """Keys that nobody asked for."""
        return [key for key in self._answers if key not in self._used]


def example_for(key: str, request: JSONObject) -> str:
    """An ``--answer`` that would fit a question, for a message that says what is missing."""
    params = request.get("params", {})
    answer: JSONObject
    if request["method"] == ROOTS:
        answer = {"roots": [{"uri": "file:///a/directory"}]}
    elif request["method"] == SAMPLING:
        answer = {"role": "assistant", "content": {"type": "text", "text": "..."}, "model": "..."}
    elif params.get("mode") == "url":
        answer = {"action": "accept"}
    else:
        schema = params["requestedSchema"]
        wanted = schema.get("required") or list(schema["properties"])[:1]
        answer = {name: _example_value(schema["properties"][name]) for name in wanted}
    return "--answer " + shlex.quote(printable(f"{key}={json.dumps(answer, ensure_ascii=False)}"))


def _example_value(schema: JSONObject) -> JSONValue:
    if "default" in schema:
        default: JSONValue = schema["default"]
        return default
    choices = choices_of(schema)
    if choices is not None:
        return choices[:1] if schema["type"] == "array" else choices[0]
    examples: JSONObject = {"string": "...", "boolean": True}
    return examples.get(schema["type"], schema.get("minimum", 1))
