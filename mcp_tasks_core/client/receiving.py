"""Reads what comes in: finds whose answer it is, and ignores, with a report, what is nobody's.

Source: basic, Responses; progress; logging; cancellation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from mcp_tasks_core.capabilities import is_task_handle
from mcp_tasks_core.client.calls import LISTEN, OpenCall, Succeeded, judge_result, task_id_of
from mcp_tasks_core.client.config import ClientConfig
from mcp_tasks_core.client.driving import Driver
from mcp_tasks_core.client.effects import LogObserved, ProgressObserved, Severity
from mcp_tasks_core.client.events import MessageReceived
from mcp_tasks_core.client.notices import read_log, read_progress
from mcp_tasks_core.client.outcomes import InvalidResponse
from mcp_tasks_core.client.subscriptions import SUBSCRIBED, Unreadable, problem_with_id, read_notice, subscription_id
from mcp_tasks_core.identifiers import JSONObject, JSONValue
from mcp_tasks_core.wire.json import JsonCodec, JsonError
from mcp_tasks_core.wire.jsonrpc import Malformed, Notification, Request, Response, read_message

# How an answer to a request of ours begins when its writer kept the usual order. Digits are bounded as ids are.
_BEGINNING_OF_ANSWER: Final = re.compile(
    r'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*([0-9]{1,18})\s*,\s*"(?:result|error)"'
)

_ID_DIGITS_MAX: Final = 18


def _meant(found: JSONValue) -> JSONValue:
    """The id that was meant by one of another JSON type, such as a string of its digits."""
    if type(found) is str and found.isdecimal() and len(found) <= _ID_DIGITS_MAX:
        return int(found)
    return int(found) if type(found) is float and found.is_integer() else found


class Receiver:
    """The way in.

    Args:
        give_up: called, with a reason, when the peer has sent too much that makes no sense.
    """

    def __init__(self, config: ClientConfig, codec: JsonCodec, driver: Driver, give_up: Callable[[str], None]) -> None:
        self._config = config
        self._codec = codec
        self._driver = driver
        self._give_up = give_up
        self._junk = 0

    def read(self, event: MessageReceived) -> None:
        try:
            value = self._codec.decode(event.payload)
        except JsonError as error:
            self._fail_unreadable(error.partial, error.message)
            return
        message = read_message(value, self._config.limits)
        if isinstance(message, Malformed):
            unreadable = None if message.answer else value
            self._fail_unreadable(unreadable, message.error.message)
            return
        self._junk = 0
        match message:
            case Response():
                self._read_response(message, event)
            case Notification(method, params):
                self._read_notification(method, params, event)
            case Request(_, method, _):
                text = f"the server sent a request, {method!r}, which servers may not do; it was ignored"
                self._driver.report(Severity.WARNING, text)

    def _fail_unreadable(self, value: JSONValue, reason: str) -> None:
        """A message that cannot be read: if it was meant as our answer, the request fails; otherwise it is junk."""
        is_response = type(value) is dict and "method" not in value
        call = self._driver.calls.find(value.get("id")) if isinstance(value, dict) and is_response else None
        if call is None:
            self.count_junk(reason)
            return
        self._driver.settle(call, InvalidResponse(reason=reason, method=call.method))

    def refuse(self, reason: str, beginning: str) -> None:
        """Something that the transport did not accept. Where it begins as an answer does, its request fails at once."""
        answer = _BEGINNING_OF_ANSWER.match(beginning)
        self._fail_unreadable(None if answer is None else {"id": int(answer[1])}, reason)

    def count_junk(self, reason: str) -> None:
        self._junk += 1
        self._driver.report(Severity.WARNING, f"something that is no message was ignored: {reason}")
        if self._junk >= self._config.client_limits.junk_messages_max:
            self._give_up(
                f"{self._junk} messages in a row made no sense; is this an MCP server? The last one: {reason}"
            )

    def _read_response(self, message: Response, event: MessageReceived) -> None:
        driver = self._driver
        wire_id = event.call_id if message.id is None else message.id
        call = driver.calls.find(wire_id)
        if call is None:
            self._read_stray(message)
        elif event.call_id is not None and call.call_id != event.call_id:
            text = f"the answer to request {call.call_id} came on the stream of request {event.call_id}"
            driver.report(Severity.WARNING, f"{text} and was ignored")
        elif message.error is not None:
            driver.answered_with_error(call, message.error)
        else:
            assert message.result is not None
            driver.settle(call, self._judge(call, message.result))

    def _judge(self, call: OpenCall, result: JSONObject) -> Succeeded | InvalidResponse:
        reply = judge_result(call, result, self._config.lenient)
        if call.method == LISTEN and isinstance(reply, Succeeded):
            found = subscription_id(result)
            problem = problem_with_id(found, call.call_id)
            if problem is not None and not (self._config.lenient and found is None):
                return InvalidResponse(reason=f"its result: {problem}", method=LISTEN)
        return reply

    def _read_stray(self, message: Response) -> None:
        """An answer that nobody waits for. One thing in it matters: a task that its caller no longer wants."""
        driver = self._driver
        abandoned = driver.calls.take_abandoned(message.id)
        if abandoned is None:
            text = "was answered before" if driver.calls.was_issued(message.id) else "was never sent"
            about = f"request {message.id!r}, which {text}," if message.id is not None else "a request without an id"
            error = "" if message.error is None else f": {message.error.code} {message.error.message}"
            driver.report(Severity.WARNING, f"an answer to {about} was ignored{error}")
            return
        driver.report(Severity.INFO, f"a late answer to {abandoned.method}, which was given up, was ignored")
        task_id = task_id_of(message.result) if is_task_handle(message.result) and message.result else None
        if abandoned.cancels_late_task and task_id is not None:
            driver.cancel_aside(task_id)

    def _read_notification(self, method: str, params: JSONObject, event: MessageReceived) -> None:
        if method == "notifications/progress":
            self._read_progress(params, event)
        elif method == "notifications/message":
            self._read_log(params, event)
        elif method == "notifications/cancelled":
            self._read_cancelled(params, event)
        elif method in SUBSCRIBED or subscription_id(params) is not None:
            self._read_subscribed(method, params, event)

    def _read_cancelled(self, params: JSONObject, event: MessageReceived) -> None:
        """A server may end a subscription like this, before its result, after it, or in its place.

        Source: cancellation, Cancellation Flow; DECISIONS D22.
        """
        call = self._driver.calls.find(params.get("requestId"))
        if call is None or call.method != LISTEN or event.call_id not in (None, call.call_id):
            return
        self._driver.break_off(call, "the server cancelled the subscription")

    def _read_subscribed(self, method: str, params: JSONObject, event: MessageReceived) -> None:
        """A notification of a subscription. One of none that is open hurts no other."""
        driver = self._driver
        found = subscription_id(params)
        call = driver.calls.find(_meant(found) if event.call_id is None else event.call_id)
        if call is None or call.method != LISTEN:
            driver.report(Severity.INFO, f"{method[:80]} for no subscription that is open was ignored")
            return
        problem = problem_with_id(found, call.call_id)
        notice = read_notice(method, params, self._config.lenient) if problem is None else Unreadable(problem)
        driver.take_notice(call, notice)

    def _read_progress(self, params: JSONObject, event: MessageReceived) -> None:
        driver = self._driver
        notice = read_progress(params)
        if isinstance(notice, str):
            driver.report(Severity.WARNING, f"a progress notification was ignored: {notice}")
            return
        call = driver.calls.find(notice.token)
        if call is None or not call.settings.progress or event.call_id not in (None, call.call_id):
            driver.report(Severity.INFO, "progress for no request in progress was ignored")
        elif call.progress is not None and notice.progress <= call.progress:
            driver.report(Severity.WARNING, f"progress that does not increase was ignored: {notice.progress}")
        elif call.operation_id is not None:
            call.progress = notice.progress
            driver.extend(call)
            driver.effects.append(
                ProgressObserved(
                    operation_id=call.operation_id,
                    progress=notice.progress,
                    total=notice.total,
                    message=notice.message,
                )
            )

    def _read_log(self, params: JSONObject, event: MessageReceived) -> None:
        """On a shared channel nothing tells whose a log message is, unless one request alone asked for logs."""
        driver = self._driver
        message = read_log(params)
        if isinstance(message, str):
            driver.report(Severity.WARNING, f"a log message was ignored: {message}")
            return
        askers = {
            call.operation_id
            for call in driver.calls
            if call.settings.log_level is not None and event.call_id in (None, call.call_id)
        }
        if not askers:
            driver.report(Severity.INFO, "a log message that no request in progress asked for was ignored")
            return
        operation_id = next(iter(askers)) if len(askers) == 1 else None
        driver.effects.append(
            LogObserved(operation_id=operation_id, level=message.level, logger=message.logger, data=message.data)
        )
