"""One tool call with progress and quiet spells, through nginx: what was sent when, and what reached the client when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio

from mcp_tasks_http import HttpLimits
from mcp_tasks_trio import Application, ClientError, ServerEngine, ToolContext, connect_http, serving_http
from tests.nginx.moments import EARLY_SECONDS, Chronicle, Moment
from tests.nginx.proxying import NginxNotServing, nginx_before

RESULT = "went through"


class Passage(Chronicle):
    """What happened to one call."""

    def __init__(self, quiet_seconds: Sequence[float], note: Callable[[Moment], None]) -> None:
        super().__init__(note)
        self.quiet_seconds = quiet_seconds

    def application(self) -> Application:
        """A server whose tool reports progress, is quiet, and so on, and then gives its result."""
        app = Application("behind-nginx", version="1")
        spells = self.quiet_seconds

        @app.tool()
        async def travel(context: ToolContext) -> str:
            for number, seconds in enumerate(spells, 1):
                self.happened(f"sent {number}")
                await context.progress(number, total=len(spells))
                await anyio.sleep(seconds)
            self.happened("ended")
            return RESULT

        return app

    def faults(self) -> list[str]:
        """What is wrong with what happened: progress that was held back, or spells that were not quiet for long."""
        numbers = range(1, len(self.quiet_seconds) + 1)
        expected = [f"{what} {number}" for number in numbers for what in ("sent", "received")] + ["ended", RESULT]
        happened = [moment.what for moment in self.moments]
        if happened != expected:
            return [f"the order was {', '.join(happened)}; without delay it is {', '.join(expected)}"]
        received = [moment.at for moment in self.moments[1:-2:2]]
        next_sent = [moment.at for moment in self.moments[2::2]]
        return [
            f"after progress {number} it was quiet for {after - before:.2f} seconds, not for {seconds:g}"
            for number, seconds, before, after in zip(numbers, self.quiet_seconds, received, next_sent, strict=True)
            if after - before < seconds - EARLY_SECONDS
        ]


async def pass_through(
    quiet_seconds: Sequence[float],
    *,
    directives: Sequence[str] = (),
    comment_interval_ms: int | None = None,
    note: Callable[[Moment], None] = lambda moment: None,
) -> Passage:
    """Call the tool once through nginx.

    Args:
        quiet_seconds: the spells after each progress notification.
        directives: of nginx, beside its defaults.
        comment_interval_ms: of the server; its default where it is ``None``.
        note: called with everything that happens.

    Raises:
        ClientError: the call came to no result.
        NginxNotServing: there is no nginx, or it does not start.
    """
    passage = Passage(quiet_seconds, note)
    limits = HttpLimits() if comment_interval_ms is None else HttpLimits(comment_interval_ms=comment_interval_ms)
    engine = ServerEngine(passage.application())

    def received(progress: Any) -> None:
        passage.happened(f"received {progress.progress:g}")

    failure: ClientError | NginxNotServing | None = None
    async with engine.running(), serving_http(engine, port=0, limits=limits) as listener:
        assert listener.port is not None
        try:
            with nginx_before(listener.port, directives) as url:
                async with connect_http(url) as client:
                    passage.begin()
                    result = await client.call_tool("travel", on_progress=received)
                    passage.happened(result.text)
        except (ClientError, NginxNotServing) as error:
            failure = error  # raised outside of the server's task groups, which would wrap it
    if failure is not None:
        raise failure
    return passage
