"""Which scenarios of the official suite gate, and what each may end with.

The suite's own exit status does not gate: of some scenarios it takes no notice, others it skips in silence, and a
server may warn as it likes. So the results of every scenario named here are read and judged one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

REVISION: Final = "2026-07-28"


@attrs.frozen(kw_only=True)
class Scenario:
    """One scenario that gates.

    Args:
        warnings_gate: a check that warns counts as one that fails.
        may_skip: ids of checks that may be skipped, and how often.
        only_skips: the scenario is a stub of the suite's, in which nothing is sent.
        options: what the suite has to be told beside its name.
    """

    name: str
    warnings_gate: bool = False
    may_skip: Mapping[str, int] = attrs.field(factory=dict)
    only_skips: bool = False
    options: tuple[str, ...] = ()


REQUIRED: Final = (
    Scenario(name="server-stateless", warnings_gate=True),
    *(
        Scenario(name=name)
        for name in (
            "completion-complete",
            "tools-list",
            "tools-call-simple-text",
            "tools-call-image",
            "tools-call-audio",
            "tools-call-embedded-resource",
            "tools-call-mixed-content",
            "tools-call-error",
            "tools-call-with-progress",
            "server-sse-multiple-streams",
            "resources-list",
            "resources-read-text",
            "resources-read-binary",
            "resources-templates-read",
            "sep-2164-resource-not-found",
            "prompts-list",
            "prompts-get-simple",
            "prompts-get-with-args",
            "prompts-get-embedded-resource",
            "prompts-get-with-image",
            "dns-rebinding-protection",
            "caching",
            "input-required-result-basic-elicitation",
            "input-required-result-basic-sampling",
            "input-required-result-basic-list-roots",
            "input-required-result-request-state",
            "input-required-result-multiple-input-requests",
            "input-required-result-multi-round",
            "input-required-result-missing-input-response",
            "input-required-result-non-tool-request",
            "input-required-result-result-type",
            "input-required-result-unsupported-methods",
            "input-required-result-tampered-state",
            "input-required-result-capability-check",
            "input-required-result-ignore-extra-params",
            "input-required-result-validate-input",
        )
    ),
)
"""What the suite requires of a server of this revision; run all at once."""

# An extension's scenario is skipped, with exit status 0, where a revision is named: so none is.
TASKS: Final = (
    *(
        Scenario(name=name, warnings_gate=True)
        for name in (
            "tasks-lifecycle",
            "tasks-capability-negotiation",
            "tasks-wire-fields",
            "tasks-request-state-removal",
            "tasks-mrtr-input",
            "tasks-request-headers",
            "tasks-dispatch-and-envelope",
            "tasks-required-task-error",
            "tasks-mrtr-composition",
        )
    ),
    Scenario(
        name="tasks-status-notifications",
        warnings_gate=True,
        may_skip={"tasks-status-notifications": 1},
        only_skips=True,
    ),
)

# Older than this revision, so that it has to be named: otherwise the suite would speak the one before.
HEADERS_AND_SCHEMAS: Final = (
    Scenario(name="http-header-validation", warnings_gate=True),
    Scenario(name="http-custom-header-server-validation", warnings_gate=True),
    Scenario(name="json-schema-2020-12", options=("--spec-version", REVISION)),
)

ALONE: Final = (*TASKS, *HEADERS_AND_SCHEMAS)
"""What the suite takes no account of in a run of all: each is run on its own."""

# Two of its checks are of methods that this revision does not have; all share one id.
STANDARD_HEADER_SKIPS: Final = {"sep-2243-client-includes-standard-headers": 2}

# The suite judges a client by its warnings and its exit status, too.
CLIENT: Final = tuple(
    Scenario(
        name=name,
        warnings_gate=True,
        may_skip=STANDARD_HEADER_SKIPS if name == "http-standard-headers" else {},
        options=("--spec-version", REVISION),
    )
    for name in (
        "request-metadata",
        "tools_call",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "sep-2322-client-request-state",
        "json-schema-ref-no-deref",
        "json-schema-2020-12-preservation",
    )
)
