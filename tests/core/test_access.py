"""Owners, and the two rules of access."""

from __future__ import annotations

import pytest

from mcp_tasks_core.access import LOCAL_OWNER, Access, AccessRule, Owner
from mcp_tasks_core.errors import LocalProtocolError


@pytest.mark.spec("A2")
def test_equal_subjects_of_two_tenants_are_two_owners() -> None:
    assert Owner("a", "s") != Owner("b", "s")
    assert Owner("a", "s") != Owner("s", "a")
    assert Owner("a", "s") == Owner("a", "s")
    assert len({Owner("a", "s"), Owner("a", "s"), Owner("b", "s")}) == 2


@pytest.mark.spec("A2")
@pytest.mark.parametrize(("tenant", "subject"), [("", "s"), ("t", ""), (None, "s"), ("t", None), (1, "s"), ("t", b"s")])
def test_an_owner_without_a_tenant_or_a_subject_is_refused(tenant: object, subject: object) -> None:
    with pytest.raises(LocalProtocolError, match="is a string of 1 character or more"):
        Owner(tenant, subject)  # type: ignore[arg-type]


def test_an_owner_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        LOCAL_OWNER.subject = "other"  # type: ignore[misc]


@pytest.mark.spec("D47")
def test_the_owner_of_a_local_server_is_the_same_in_every_process() -> None:
    assert Owner("local", "local") == LOCAL_OWNER


@pytest.mark.spec("A3")
def test_no_rule_admits_everybody() -> None:
    assert {rule.name for rule in AccessRule} == {"OWNER", "ASK"}
    assert {access.name for access in Access} == {"READ", "ANSWER", "CANCEL"}
