"""How long the stateful tests run: briefly by default, long with ``--hypothesis-profile=deep``."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("deep", deadline=None, print_blob=True)
