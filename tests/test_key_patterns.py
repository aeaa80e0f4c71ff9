"""Is what looks like a key found in no time, whatever the text?"""

from __future__ import annotations

import time

import pytest

from fsm_agent.key_patterns import KEY_LIKE
from fsm_agent.providers import failures
from fsm_agent.scrubbing import scrubbed

PARTS = ["-eyJ", "eyJ-", "eyJa.", "sk-", "-sk-", "Bearer ", "org-a", "-org-", "\\neyJ", "ya29.", "-AIza", "projects/"]


@pytest.mark.parametrize("part", PARTS)
def test_a_search_is_linear(part: str) -> None:
    def seconds(size: int) -> float:
        text = part * (size // len(part))
        started_s = time.perf_counter()
        KEY_LIKE.sub("", text)
        return time.perf_counter() - started_s

    seconds(10_000)
    assert seconds(400_000) < 1.5


def test_errors_and_cassettes_know_the_same_keys() -> None:
    for key in ("ghp_abcdefghijkl", "AKIAIOSFODNN7EXAMPLE", "org-Ab3dEfGhIjKlMnOp"):
        assert scrubbed(f"x {key} y", []) == "x *** y"
        assert failures.reported({"error": {"message": f"x {key} y"}}, {}).message == f"x {key[:4]}*** y"
