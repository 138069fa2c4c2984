"""Tools that need answers before they can give a result: multi round-trip requests in all their forms."""

from __future__ import annotations

from typing import Any, Final

from mcp_tasks_trio import ToolContext
from tests.conformance.fixture_app import app

NAME_FORM: Final = {"name": {"type": "string"}}
GO_ON_FORM: Final = {"ok": {"type": "boolean"}}


def elicitation(message: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def sampling(words: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": {"type": "text", "text": words}}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 100}}


ROOTS: Final[dict[str, Any]] = {"method": "roots/list"}


@app.tool()
async def test_input_required_result_elicitation(context: ToolContext) -> str:
    """Greet whoever says their name."""
    answer = await context.elicit("user_name", "What is your name?", NAME_FORM)
    return f"Hello, {answer.content['name']}!" if answer.content else "Hello, whoever you are!"


@app.tool()
async def test_input_required_result_sampling(context: ToolContext) -> str:
    """Say what the client's model says of a capital."""
    message = await context.sample("capital", "What is the capital of France?", max_tokens=100)
    return f"The model says: {message['content']}"


@app.tool()
async def test_input_required_result_list_roots(context: ToolContext) -> str:
    """Count the client's roots."""
    return f"The client has {len(await context.list_roots())} roots."


@app.tool()
async def test_input_required_result_request_state(context: ToolContext) -> str:
    """Ask one question, and keep what is known in the state that the client brings back."""
    answer = await context.elicit("confirm", "Shall it go on?", GO_ON_FORM)
    return f"state-ok: the state came back, and the person chose {answer.action}."


@app.tool()
async def test_input_required_result_multiple_inputs(context: ToolContext) -> str:
    """Ask three questions of three kinds at once."""
    answers = await context.ask(
        {
            "user_name": elicitation("What is your name?", name={"type": "string"}),
            "greeting": sampling("Write a greeting."),
            "client_roots": ROOTS,
        }
    )
    return f"Answered: {', '.join(sorted(answers))}."


@app.tool()
async def test_input_required_result_multi_round(context: ToolContext) -> str:
    """Ask a second question once the first one was answered."""
    name = await context.elicit("name", "Step 1: what is your name?", NAME_FORM)
    color = await context.elicit("color", "Step 2: which color do you like?", {"color": {"type": "string"}})
    return f"{(name.content or {}).get('name')} likes {(color.content or {}).get('color')}."


@app.tool()
async def test_input_required_result_tampered_state(context: ToolContext) -> str:
    """Ask one question, with a state that nobody but the server can make."""
    answer = await context.elicit("confirm", "Shall it go on?", GO_ON_FORM)
    return f"state-ok: nobody has touched the state, and the person chose {answer.action}."


@app.tool()
async def test_input_required_result_capabilities(context: ToolContext) -> str:
    """Ask whatever this client said that it can answer."""
    questions = {
        "user_name": elicitation("What is your name?", name={"type": "string"}),
        "greeting": sampling("Write a greeting."),
        "client_roots": ROOTS,
    }
    wanted = {key: request for key, request in questions.items() if context.declares(request)}
    answers = await context.ask(wanted)
    return f"Answered: {', '.join(sorted(answers)) or 'nothing, for nothing could be asked'}."
