"""Is the embedded model there, with its engine?"""

from __future__ import annotations

import pytest

from fsm_agent.clients import client_for
from fsm_agent.errors import ConfigError


def why_not() -> str:
    """Return what is missing, or an empty text."""
    with client_for("local:") as client:
        try:
            client.check_available()
        except ConfigError as error:
            return str(error)
    return ""


needs_model = pytest.mark.skipif(bool(why_not()), reason=why_not())
