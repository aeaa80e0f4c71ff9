"""Dialogs, and named collections of dialogs and their forks.

Only the actions in `fsm_agent.call.transition_table` change the dialog of a running call, for instance to remove failed
answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import msgspec

from fsm_agent._internal.structs import Vector, from_json, is_whole, schema_of, to_json
from fsm_agent._internal.text import hint, plain
from fsm_agent.errors import SnapshotError, UsageError
from fsm_agent.messages.convert import messages_of, overview
from fsm_agent.messages.message import ChatDict, HistorySummary, Message, Part
from fsm_agent.prompts.prompt import Prompt, Task, task_message
from fsm_agent.validation import require

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

Messages: TypeAlias = Iterable[Message | ChatDict]


class _Document(msgspec.Struct, omit_defaults=True):
    """A dialog in JSON.  Older documents also name a prompt, which is ignored."""

    messages: Vector[Message]
    is_system_own: bool = False  # the dialog has a system message that no agent put there
    governed_by: str = ""


class Dialog(Sequence[Message]):
    """The ordered messages of a conversation, as an immutable value.

    Methods that add messages return a new dialog.  Dialogs share their messages, so a fork is cheap at any length.

    Args:
        messages: Messages, or dictionaries in the format of OpenAI's chat completions, from oldest to newest.
        top_prompt: The prompt for the latest user turn.  The next agent call uses the prompt's parser, functions and
            handlers, or the agent's own if there is no prompt.  The prompt is not saved.
        system_args: The values for the agent's system prompt, which is the first message.  They are empty if the system
            prompt has no variables, and None if no agent added the first message.  They are not saved.
        governed_by: The path of handoffs that led to the agent that now has the dialog, or "" if there were none.
        summary: A summary that replaces the oldest messages in requests.  It is not saved.

    Examples:
        >>> dialog = Dialog().put("I am Ada.")
        >>> len(dialog.messages), len(dialog.put("Who am I?").messages), len(dialog.messages)
        (1, 2, 1)
        >>> Dialog.from_json(dialog.to_json()) == dialog
        True
    """

    __slots__ = ("governed_by", "messages", "summary", "system_args", "top_prompt")

    governed_by: str

    messages: Vector[Message]
    top_prompt: Prompt | None
    system_args: Mapping[str, Any] | None

    def __init__(
        self,
        messages: Messages = (),
        *,
        top_prompt: Prompt | None = None,
        system_args: Mapping[str, Any] | None = None,
        governed_by: str = "",
        summary: HistorySummary | None = None,
    ) -> None:
        held: Vector[Any] = messages if isinstance(messages, Vector) else Vector(messages_of(messages))
        require("top_prompt", top_prompt, top_prompt is None or isinstance(top_prompt, Prompt), "a Prompt")
        self.messages = held
        self.top_prompt = top_prompt
        self.system_args = system_args
        self.governed_by = governed_by
        self.summary = summary

    def append(self, *messages: Message | ChatDict) -> Dialog:
        """Return this dialog with ``messages`` added at the end."""
        return self._with(self.messages.extend(messages_of(messages, self.messages)), self.top_prompt)

    def _with(self, messages: Iterable[Message], top_prompt: Prompt | None) -> Dialog:
        return Dialog(
            messages,
            top_prompt=top_prompt,
            system_args=self.system_args,
            governed_by=self.governed_by,
            summary=self.summary,
        )

    def put(self, turn: str | Prompt | Task, /, *parts: Part) -> Dialog:
        """Return this dialog with a user turn added.

        Args:
            turn: Literal text, or a prompt with values for its variables: ``put(order(letter="…"))``.  A prompt becomes
                the `top_prompt`.
            parts: Images and other parts that follow the text.

        Raises:
            PromptError: If a value for one of the prompt's variables is missing.
            UsageError: If the turn is empty.
        """
        if isinstance(turn, str):
            return self._with(self.messages.push(task_message(turn, *parts)), None)
        require("the turn of a dialog", turn, isinstance(turn, Prompt | Task), "a string or a Prompt")
        prompt = turn.prompt if isinstance(turn, Task) else turn
        rendered = turn.render()
        message = task_message(rendered.text, *rendered.parts[1:], *parts)
        return self._with(self.messages.push(message), prompt)

    def fork(self, last_n: int | None = None, first_k: int = 1) -> Dialog:
        """Return an independent dialog that continues from here.

        Args:
            last_n: How many of the newest messages to keep; by default, all.  A function result is never kept without
                the message that requested it.
            first_k: How many of the oldest messages to keep as well; usually 1, for the system prompt.

        Raises:
            UsageError: If ``last_n`` or ``first_k`` is not a whole number.
        """
        require("last_n", last_n, last_n is None or is_whole(last_n), "a whole number, or None for all")
        require("first_k", first_k, is_whole(first_k), "a whole number")
        if last_n is None:
            return self._with(self.messages, self.top_prompt)
        first, start = max(0, first_k), max(0, len(self) - max(0, last_n))
        while 0 < start < len(self) and self[start].role == "tool":
            start -= 1
        if start <= first:
            return self._with(self.messages, self.top_prompt)
        while first and self[first].role == "tool":  # leave out an incomplete round
            first -= 1
        forked = self._with([*self.messages[:first], *self.messages[start:]], self.top_prompt)
        forked.summary = None  # it covers other messages
        return forked

    @property
    def tail(self) -> Message | None:
        """The newest message, or None in an empty dialog."""
        return self.messages[-1] if self.messages else None

    @property
    def system(self) -> str:
        """The text of the system prompt, or "" if there is none."""
        return self[0].text if len(self) and self[0].role == "system" else ""

    def overview(self) -> str:
        """Return one line per message, with its number, role and the beginning of its content."""
        return overview(self.messages)

    def to_json(self) -> str:
        """Return the messages as JSON, without the prompt.

        Raises:
            SnapshotError: If a message holds a value that cannot be restored from JSON.
        """
        is_own = bool(self.system) and self.system_args is None
        try:
            return to_json(_Document(self.messages, is_own, self.governed_by))
        except ValueError as error:
            raise SnapshotError(f"expected a dialog that can be read again: {str(error)[:500]}") from error

    @classmethod
    def from_json(cls, document: str | bytes) -> Dialog:
        """Return a dialog that was saved with `to_json`.

        The next answer is governed by the agent that you call with this dialog.

        Raises:
            SnapshotError: If the document is damaged.
        """
        try:
            read: _Document = from_json(document, _Document)
        except ValueError as error:
            raise SnapshotError(f"expected the JSON of a dialog: {error}") from error
        return cls(read.messages, system_args=None if read.is_system_own else {}, governed_by=read.governed_by)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        """Return the schema for pydantic fields that hold dialogs."""
        return schema_of(cls, cls.from_json, cls.to_json)

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        return self.messages[index]

    def __eq__(self, other: object) -> bool:
        return self.messages == other.messages if isinstance(other, Dialog) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.messages)

    def __repr__(self) -> str:
        return f"Dialog({list(self.messages)!r})"


class _TreeDocument(msgspec.Struct, omit_defaults=True):
    dialogs: dict[str, msgspec.Raw]
    forks: dict[str, str] = {}


class Dialogs(Mapping[str, Dialog]):
    """Dialogs by name, as an immutable value.

    A fork records only the name of its origin, so changing or removing one does not affect the other.

    Args:
        dialogs: The dialogs, by name.
        forks: The name of each fork's origin, keyed by the fork's name.  The origin may have been removed.

    Raises:
        UsageError: If a name is not a printable, non-empty string, a fork does not exist, or forks form a cycle.

    Examples:
        >>> dialogs = Dialogs({"main": Dialog().put("I am Ada.")})
        >>> list(dialogs)
        ['main']
    """

    __slots__ = ("_dialogs", "forks")

    forks: Mapping[str, str]

    def __init__(self, dialogs: Mapping[str, Dialog] | None = None, *, forks: Mapping[str, str] | None = None) -> None:
        held, origins = dict(dialogs or {}), dict(forks or {})
        for name in held:
            is_name = isinstance(name, str) and name != "" and name.isprintable()
            require("the name of a dialog", name, is_name, "a string such as 'main'")
        for name in origins:
            right = f"the name of a dialog ({', '.join(map(repr, held)) or 'none'})"
            require("the name of a fork", name, name in held, right)
        if (looped := _looped(origins)) is not None:
            raise UsageError(f"the dialog {looped!r} is a fork of itself; rename a fork")
        self._dialogs = held
        self.forks = origins

    def put(self, name: str, dialog: Dialog) -> Dialogs:
        """Return these dialogs with this one added, replacing any dialog with the same name."""
        return Dialogs({**self._dialogs, name: dialog}, forks=self.forks)

    def fork(self, name: str, new: str, last_n: int | None = None, first_k: int = 1) -> Dialogs:
        """Return these dialogs with a fork of one of them.

        Args:
            name: The name of the dialog to fork.
            new: The name of the fork.
            last_n: See `Dialog.fork`.
            first_k: See `Dialog.fork`.

        Raises:
            UsageError: If no dialog has this name, or the new name is taken.
        """
        if new in self._dialogs:
            raise UsageError(f"the name of a fork: expected a new name, got {new!r}, which exists")
        dialog = self._named(name).fork(last_n, first_k)
        return Dialogs({**self._dialogs, new: dialog}, forks={**self.forks, new: name})

    def without(self, name: str) -> Dialogs:
        """Return these dialogs without the one with this name.

        Its forks are kept, and still record that name as their origin.

        Raises:
            UsageError: If no dialog has this name.
        """
        self._named(name)
        others = {other: dialog for other, dialog in self._dialogs.items() if other != name}
        return Dialogs(others, forks={fork: origin for fork, origin in self.forks.items() if fork != name})

    def overview(self) -> str:
        """Return the names and message counts as a tree, with each fork below its origin."""
        lines, below = list[str](), dict[str, list[str]]()
        for name in reversed(self._dialogs):
            origin = self.forks.get(name, "")
            below.setdefault(origin if origin in self._dialogs else "", []).append(name)
        waiting = [(name, 0) for name in below.get("", ())]
        while waiting:
            name, depth = waiting.pop()
            origin = self.forks.get(name, "")
            gone = f", from {origin}, which is gone" if origin and origin not in self._dialogs else ""
            lines.append(plain(f"{'  ' * depth}{name}: {len(self._dialogs[name])} message(s){gone}"))
            waiting += [(fork, depth + 1) for fork in below.get(name, ())]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the dialogs as JSON; see `Dialog.to_json`.

        Raises:
            SnapshotError: If a message holds a value that cannot be restored from JSON.
        """
        held = {name: msgspec.Raw(dialog.to_json().encode()) for name, dialog in self._dialogs.items()}
        return to_json(_TreeDocument(held, dict(self.forks)))

    @classmethod
    def from_json(cls, document: str | bytes) -> Dialogs:
        """Return dialogs that were saved with `to_json`.

        Raises:
            SnapshotError: If the document is damaged.
        """
        try:
            read: _TreeDocument = from_json(document, _TreeDocument)
            held = {name: Dialog.from_json(bytes(dialog)) for name, dialog in read.dialogs.items()}
            return cls(held, forks=read.forks)
        except ValueError as error:
            raise SnapshotError(f"expected the JSON of dialogs: {error}") from error

    def _named(self, name: str) -> Dialog:
        if name not in self._dialogs:
            raise UsageError(f"expected the name of a dialog, got {name!r}{hint(name, self._dialogs)}")
        return self._dialogs[name]

    def __getitem__(self, name: str) -> Dialog:
        return self._dialogs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dialogs)

    def __len__(self) -> int:
        return len(self._dialogs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dialogs):
            return NotImplemented
        return (self._dialogs, self.forks) == (other._dialogs, other.forks)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Dialogs({', '.join([f'{name}={len(dialog)} message(s)' for name, dialog in self.items()])})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self._dialogs, self.forks)


def _looped(origins: Mapping[str, str]) -> str | None:
    sound = set[str]()
    for name in origins:
        way, at = dict[str, None](), name
        while at in origins and at not in sound:
            if at in way:
                return at
            way[at] = None
            at = origins[at]
        sound.update(way)
    return None


def _made(dialogs: Mapping[str, Dialog], forks: Mapping[str, str]) -> Dialogs:
    return Dialogs(dialogs, forks=forks)
