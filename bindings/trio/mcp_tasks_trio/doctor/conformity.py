"""Whether a value conforms to a JSON Schema that a server gave."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable


def fault_of(value: Any, schema: Any) -> str | None:
    """What is wrong with a value, in one sentence; ``None`` if nothing is. Nothing is fetched."""
    try:
        Draft202012Validator.check_schema(schema)
        error = best_match(Draft202012Validator(schema, registry=Registry()).iter_errors(value))
    except SchemaError as problem:
        return f"the schema itself is wrong: {problem.message}"
    except Unresolvable as problem:
        return f"the schema refers to something that is not in it: {problem}"
    return None if error is None else f"{error.json_path}: {error.message}"
