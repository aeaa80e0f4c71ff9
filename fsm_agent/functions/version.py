"""Order versions of a function, and share agent calls among them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from fsm_agent._internal.field_checks import is_amount, is_finite
from fsm_agent.errors import UsageError, hint

_PIECE = re.compile(r"[0-9]{1,18}|[A-Za-z]+")


def version_order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key by which versions compare: ``""`` < ``1.9`` < ``1.10-rc1`` < ``1.10`` < ``2``."""
    if not version:
        return ()
    pieces = _PIECE.findall(version.removeprefix("v"))
    order = [(2, int(piece), "") if piece[0].isdigit() else (0, 0, piece) for piece in pieces]
    return (*order, (1, 0, version))


def check_shares(name: str, shares: Mapping[str, float], versions: Sequence[str]) -> None:
    """Refuse invalid shares of agent calls among the versions of a function.

    Raises:
        UsageError: A version is unknown, a share is not a number from 0, or their sum is not 1.
    """
    for version, share in shares.items():
        if version not in versions:
            raise UsageError(f"function {name!r} has no version {version!r}{hint(str(version), versions)}")
        if not is_amount(share):
            raise UsageError(f"the share of {name}@{version}: expected a number from 0 to 1, got {share!r:.80}")
    if not math.isclose(total := math.fsum(shares.values()), 1):
        raise UsageError(f"the shares of function {name!r}: expected a sum of 1, got {total!r}")


def chosen_point(name: str, choose: Callable[[], float]) -> float:
    """Return a number from 0 to below 1.

    Raises:
        UsageError: ``choose`` returned something else.
    """
    point = choose()
    if not is_finite(point) or not 0 <= point < 1:
        raise UsageError(f"choose of function {name!r}: expected a number from 0 to below 1, got {point!r:.80}")
    return point


def sharer(shares: Sequence[float], point: float) -> int | None:
    """Return the index of the share that a point falls into, of shares whose sum need not be 1; None: all are 0."""
    left = point * math.fsum(shares)
    chosen = None
    for index, share in enumerate(shares):
        if share > 0:
            chosen = index
            left -= share
            if left < 0:
                break
    return chosen
