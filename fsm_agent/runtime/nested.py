"""What a driver knows about nested processes: the owners of effects, and posts for runs inside functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from fsm_agent.call.process import SEPARATOR, AnyEffect, Process
from fsm_agent.errors import OutcomeError
from fsm_agent.runtime.activity import Activity
from fsm_agent.runtime.environment import Environment, PostedOutcome, Recorder


class Owners:
    """The processes that own the effects of the driven process, and the environments that perform the effects."""

    __slots__ = ("_environment", "_known", "_last", "_last_environment", "_last_path", "_process")

    def __init__(self, process: Process, environment: Environment) -> None:
        self._process = process
        self._environment = environment
        # The owner of a path stays the same, so the last one is cached.
        self._last_path = ""
        self._last: Any = None
        self._last_environment = environment
        # The ids of the environments on a path -> these environments (which keeps the ids valid), and the one that
        # performs the effects.
        self._known: dict[tuple[int, ...], tuple[tuple[Environment, ...], Environment]] = {}

    def assign(self, activity: Activity) -> None:
        """Assign an activity to the nested process that owns its effect."""
        path = activity.key.rpartition(SEPARATOR)[0]
        if path != self._last_path:
            owner = self._last = self._process.owner(activity.key)
            self._last_path, self._last_environment = path, self._environment_of(owner.environments)
        activity.assign(self._last, self._last_environment)

    def _environment_of(self, environments: tuple[Environment, ...]) -> Environment:
        """Return the innermost of these environments with the driver's clock.

        Without an approver, it gets the approver of the nearest environment around it.
        """
        # All use one clock, because the driver compares all deadlines with its own.
        around = self._environment
        if not environments:
            return around
        key = tuple(map(id, environments))
        if key not in self._known:
            approve = next((one.approve for one in environments if one.approve), around.approve)
            self._known[key] = environments, environments[0].changed(clock=around.clock, approve=approve)
        return self._known[key][1]


class PostsInside:
    """The posts for runs that functions have begun.  Each stays until its run has taken it."""

    __slots__ = ("_posts", "_recorder")

    def __init__(self, recorder: Recorder | None) -> None:
        self._recorder = recorder
        self._posts: list[PostedOutcome] = []

    def keep(self, post: PostedOutcome, effects: Iterable[AnyEffect]) -> str | None:
        """Keep a post if it is for a run that one of these effects has begun.

        Return the key of that effect, or None if there is no such run.
        """
        if SEPARATOR not in post.key:
            return None
        function = next((effect.key for effect in effects if post.key.startswith(f"{effect.key}{SEPARATOR}")), None)
        if function is not None:
            self._posts.append(post)
        return function

    def of(self, function: str) -> list[PostedOutcome]:
        """Return the posts for runs that the function with this key has begun."""
        return [post for post in self._posts if post.key.startswith(f"{function}{SEPARATOR}")]

    def remove(self, posts: Collection[PostedOutcome]) -> None:
        """Remove posts that runs have taken, or will never take."""
        if posts and self._recorder is not None:
            self._posts = [post for post in self._posts if post not in posts]
            self._recorder.mark_used([post.id for post in posts])

    def refuse(self) -> None:
        """Refuse all remaining posts, because the process rests."""
        for post in self._posts:
            assert self._recorder is not None
            self._recorder.mark_taken(post, OutcomeError(f"no nested run asks {post.key!r} any longer"))
