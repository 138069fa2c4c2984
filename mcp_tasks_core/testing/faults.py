"""What a scripted store does wrong, for tests of everything that stands on a store."""

from __future__ import annotations

import enum


class StoreFault(enum.Enum):
    """One departure from a store that does at once what it is asked.

    ``made`` says whether the call was carried out, ``told`` which answer comes back.
    """

    FAIL = "not made, and told so"
    FULL = "not made, told that the store is full"
    CONFLICT = "not made, told that another writer was first"
    UNCERTAIN_LOST = "not made, and told that nobody knows"
    UNCERTAIN_MADE = "made, and told that nobody knows"
    LATE = "made at once; the answer is held until it is released"
    SLOW = "made and answered only when it is released"
    SLOW_UNCERTAIN = "made when it is released, and told that nobody knows"
    BLIND = "a read that finds nothing, though the row is there"
    DROPPED_LOST = "not made, and never answered"
    DROPPED_MADE = "made, and never answered"

    @property
    def is_made(self) -> bool:
        return self in (StoreFault.UNCERTAIN_MADE, StoreFault.LATE, StoreFault.DROPPED_MADE)
