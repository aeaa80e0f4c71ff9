"""Passes: plain functions that choose and shorten the messages that a request includes.

A pass takes messages, or messages and the call's record, and returns the messages to show.  It must be pure and must
not split a round.  The dialog itself stays whole.  `fsm_agent.context.fitting` applies a call's passes in order.

A round is a message from the model with the results of its function calls, and with the user messages right before it.
Providers refuse incomplete rounds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import pairwise
from math import isnan
from operator import is_
from typing import Any, TypeAlias, TypeVar

import pydantic_core

from fsm_agent._internal.structs import Value, is_whole
from fsm_agent.call.record import CallRecord
from fsm_agent.context.tokens import estimated_tokens
from fsm_agent.errors import UsageError
from fsm_agent.functions.context import Context, one_or_two_parameters
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import is_plain
from fsm_agent.messages.message import (
    Attachment,
    Document,
    FunctionCall,
    FunctionResult,
    Message,
    Part,
    Text,
    unpaired,
)

AnyPass: TypeAlias = (
    Callable[[Sequence[Message]], Sequence[Message]] | Callable[[Sequence[Message], CallRecord], Sequence[Message]]
)

S = TypeVar("S")
T = TypeVar("T")

_OURS = "fsm_agent.context."

LEFT_OUT = "\n[… {count} characters left out …]\n"

CHARACTERS = 4_000  # how many `shorten` leaves by default

MIN_CHARACTERS = 50  # room for the note on omitted characters, with text on both sides

REPEATED = "[The same as the earlier result of {name} that begins: {start}]"

_STARTS = 60  # characters of the earlier result in `REPEATED`

MASKED = (
    "[Masked — {name} result from iteration {round}, {tokens} tokens. "
    "Use result_cache tool if available, or re-invoke tool.]"
)

_ARGUMENTS = 80  # characters of the arguments in a line of `compress`

_LINE = 200  # characters of the result in a line of `compress`


class Memo:
    """Remembers what passes have made of each message in one call, so that no pass repeats its work.

    Attributes:
        masked: How many results `mask` has replaced.
        saved_tokens: How many tokens were saved by replacing these results.
    """

    def __init__(self) -> None:
        self.masked = self.saved_tokens = 0
        self._made: dict[int, tuple[Any, Any, Any]] = {}

    def made(self, source: S, make: Callable[[S], T], about: Any = None) -> T:
        """Return the earlier result for the same object if ``about`` has not changed; otherwise make a new result."""
        known = self._made.get(id(source))
        if known is None or known[0] is not source or known[1] != about:
            known = self._made[id(source)] = source, about, make(source)
        made: T = known[2]
        return made


class Pass(Value, frozen=True):
    """A ready-made pass with its options, such as ``keep_last(8)``."""

    apply: Callable[..., Sequence[Message]]  # of the messages, the record or None, a memo, and the options
    options: tuple[Any, ...] = ()

    def __call__(self, messages: Sequence[Message], record: CallRecord | None = None) -> Sequence[Message]:
        """Return the messages to show.  If there is no record, the newest user message counts as the task."""
        return self.apply(messages, record, Memo(), *self.options)

    def __repr__(self) -> str:
        shown = [getattr(option, "__name__", None) or repr(option) for option in self.options]
        return f"{self.apply.__name__.lstrip('_')}({', '.join(shown)})"


def name_of(one: AnyPass) -> str:
    """Return the name of a pass, for display."""
    return repr(one) if isinstance(one, Value) else getattr(one, "__name__", type(one).__name__)


def check_pass(one: Any, owner: str = "context") -> None:
    """Reject a value that is not callable with messages, or with messages and the record."""
    if not is_plain(one):
        raise UsageError(f"{owner}: expected plain functions of messages, such as keep_last(8), got {one!r:.80}")
    if not isinstance(one, Value) and str(getattr(one, "__module__", "")).startswith(_OURS):
        raise UsageError(f"{owner}: expected a pass, got {one.__name__}, which makes one; pass {one.__name__}(…)")
    takes_record(one)


def takes_record(one: AnyPass) -> bool:
    """Return whether a pass takes the call's record as a second argument."""
    if isinstance(one, Value):
        return True
    try:
        found = one_or_two_parameters(one)
    except (TypeError, ValueError):  # written in C, without a signature
        return False
    if found is None:
        right = "a function of (messages) or of (messages, record)"
        raise UsageError(f"the pass {name_of(one)}: expected {right}, got {one!r:.200}")
    placed, needed = found
    return len(placed) > 1 and (len(needed) == 2 or placed[1].name == "record")


def applied(one: AnyPass, messages: Sequence[Message], record: CallRecord | None, memo: Memo) -> Sequence[Message]:
    """Apply a pass to messages, and return the messages to show.

    Raises:
        UsageError: If the pass raised an exception, did not return messages, split a round, or lost the system prompt
            or the task.
    """
    try:
        if isinstance(one, Pass):
            return one.apply(messages, record, memo, *one.options)
        run: Callable[..., Any] = one
        shown = run(list(messages), record) if takes_record(one) else run(list(messages))
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"the pass {name_of(one)} raised {type(error).__name__}: {error}") from error
    problem = _problem_with(shown, messages, record)
    if problem:
        raise UsageError(f"the pass {name_of(one)} {problem}")
    return shown  # type: ignore[no-any-return]


def passes_of(passes: Any, owner: str) -> tuple[AnyPass, ...]:
    """Return a pass or a list of passes as a tuple."""
    listed = tuple(passes) if isinstance(passes, list | tuple) else (passes,)
    for one in listed:
        check_pass(one, owner)
    return listed


def apply_passes(passes: Iterable[AnyPass], messages: Sequence[Message]) -> Sequence[Message]:
    """Apply passes outside a call, from left to right, and return the messages to show."""
    for one in passes:
        messages = applied(one, messages, None, Memo())
    return messages


def _problem_with(shown: Any, messages: Sequence[Message], record: CallRecord | None) -> str:
    if not isinstance(shown, Sequence) or isinstance(shown, str) or not all(type(m) is Message for m in shown):
        return f"returned {shown!r:.80}, not a list of messages"
    if messages and not shown:
        return "left no message"
    if (flaw := unpaired(shown)) is not None and unpaired(messages) is None:
        return f"left {flaw}"
    systems = system_messages(messages)
    if list(shown[:systems]) != list(messages[:systems]):
        return "lost the system prompt, which every request begins with"
    if record is not None and (task := task_of(record)) is not None and task in messages and task not in shown:
        return f"lost the task, {task.text!r:.80}, which every request has"
    is_summarized = record is not None and record.summary is not None and record.summary.covers
    if is_summarized and (place := summary_at(messages)) >= 0 and messages[place] not in shown:
        return "lost the summary of the dialog, which every request has"
    return ""


# Windows


def keep_last(rounds: int) -> Pass:
    """Return a pass that shows only the newest rounds, the system prompt, the first user message and the task.

    A round is a message from the model with the results of its calls.  The window moves in steps: when there are more
    than ``rounds`` rounds, it shows about half that number and then grows again.  Most requests therefore extend the
    previous request, and the provider's cache stays valid.

    Args:
        rounds: The maximum number of rounds to show; 1 or more.

    Raises:
        UsageError: If ``rounds`` is not a whole number of at least 1.

    Examples:
        >>> agent = Agent(Script("Hello, Ada.", "You?"), context=[keep_last(1)])
        >>> first = agent.call("I am Ada.")
        >>> agent.call("Who am I?", after=first).output
        'You?'
    """
    check_size("keep_last", "rounds", rounds)
    return Pass(_keep_last, (rounds,))


def _keep_last(messages: Sequence[Message], record: CallRecord | None, memo: Memo, rounds: int) -> Sequence[Message]:
    first = _newest_rounds(messages, rounds)
    if not first:
        return messages
    kept = sorted(index for index in pinned(messages, record) if index < first)
    return [*[messages[index] for index in kept], *messages[first:]]


def window_of(one: AnyPass) -> int:
    """Return the number of rounds that a `keep_last` shows, or 0 for any other pass."""
    return one.options[0] if isinstance(one, Pass) and one.apply is _keep_last else 0


def _newest_rounds(messages: Sequence[Message], most: int) -> int:
    """Return the index at which a window of ``most`` rounds begins, or 0 if all rounds fit."""
    starts = round_starts(messages)
    cut = dropped(len(starts), most)
    return starts[cut] if cut else 0


def dropped(count: int, most: int) -> int:
    """Return how many of ``count`` rounds a window of ``most`` leaves out: a multiple of half the window."""
    step = max(1, most // 2)
    return 0 if count <= most else -(-(count - most) // step) * step


def relevant(rounds: int, score: Callable[[str, Message], float]) -> Pass:
    """Return a pass that shows only the most relevant rounds, the newest one, and what every request must contain.

    A round is as relevant as its most relevant message.

    Args:
        rounds: How many relevant rounds to show in addition to the newest one.
        score: A pure function that takes the task's text and a message, and returns a higher number for a more relevant
            message.

    Raises:
        UsageError: If an argument is wrong.

    Examples:
        >>> def score(task, message):
        ...     return float(task.split()[0] in message.text)
        >>> Agent(Script("Hi."), context=[relevant(4, score)]).call("Hello").output
        'Hi.'
    """
    check_size("relevant", "rounds", rounds)
    if not callable(score):
        raise UsageError(f"score of relevant: expected a function that takes a string and a message, got {score!r:.80}")
    return Pass(_relevant, (rounds, score))


def _relevant(
    messages: Sequence[Message],
    record: CallRecord | None,
    memo: Memo,
    rounds: int,
    score: Callable[[str, Message], float],
) -> Sequence[Message]:
    starts = round_starts(messages)
    if len(starts) <= rounds + 1:
        return messages
    kept = pinned(messages, record)
    task = (record and task_of(record)) or next((m for m in reversed(messages) if m.role == "user"), None)
    query = "" if task is None else task.text

    def value_of(message: Message) -> float:
        return memo.made(message, lambda message: _score(score, query, message), query)

    groups = [range(start, end) for start, end in zip(starts, [*starts[1:], len(messages)], strict=True)]
    best = sorted(groups[-2::-1], key=lambda group: max([value_of(messages[i]) for i in group]), reverse=True)
    for group in (*best[:rounds], groups[-1]):
        kept |= {*group}
    return [messages[index] for index in sorted(kept)]


def _score(score: Callable[[str, Message], float], query: str, message: Message) -> float:
    value = score(query, message)
    if not isinstance(value, int | float) or isnan(value):
        raise UsageError(f"the return value of score of relevant: expected a number, got {value!r:.80}")
    return value


# Shortening


def shorten(characters: int = CHARACTERS) -> Pass:
    """Return a pass that shows only the head and the tail of long results, attached text files and long arguments.

    A note between the head and the tail says how many characters have been left out.  In a `Budget`, the pass also
    shortens refused answers when the model is asked again.

    Args:
        characters: The maximum number of characters to show of each item, including the note; 50 or more.

    Raises:
        UsageError: If ``characters`` is not a whole number of at least 50.

    Examples:
        >>> Agent(Script("Hi."), context=[shorten(characters=2_000)]).call("Hello").output
        'Hi.'
    """
    check_size("shorten", "characters", characters, MIN_CHARACTERS)
    return Pass(_shorten, (characters,))


def _shorten(messages: Sequence[Message], record: CallRecord | None, memo: Memo, characters: int) -> Sequence[Message]:
    def short(message: Message) -> Message:
        parts = tuple([_short_part(part, characters) for part in message.parts])
        return message if all(map(is_, parts, message.parts)) else message.changed(parts=parts)

    shown = [memo.made(message, short) for message in messages]
    return messages if all(map(is_, shown, messages)) else shown


def _short_part(part: Part, characters: int) -> Part:
    if isinstance(part, FunctionResult):
        files = tuple([_short_file(file, characters) for file in part.attachments])
        if len(part.text) > characters or not all(map(is_, files, part.attachments)):
            return part.changed(text=truncated(part.text, characters), attachments=files)
    if isinstance(part, FunctionCall) and len(part.arguments_json) > characters:
        return part.changed(arguments_json=short_arguments(part.arguments_json, characters))
    return part


def _short_file(file: Attachment, characters: int) -> Attachment:
    text = file.text if isinstance(file, Document) else None
    if text is None or len(text) <= characters:
        return file
    return file.changed(data=truncated(text, characters).encode("utf-8", "replace"))


def shorten_answers(one: AnyPass, branch: Sequence[Message], memo: Memo) -> Sequence[Message]:
    """Return an exception branch as a pass shows it.  Only `shorten` changes it, by shortening refused answers."""
    if not isinstance(one, Pass) or one.apply is not _shorten:
        return branch
    (characters,) = one.options

    def short(message: Message) -> Message:
        if message.role == "user":  # says what is wrong
            return message
        cut = [_short_part(part, characters) for part in message.parts]
        parts = tuple(
            [part.changed(text=truncated(part.text, characters)) if isinstance(part, Text) else part for part in cut]
        )
        return message.changed(parts=parts)

    return [memo.made(message, short) for message in branch]


def short_arguments(arguments_json: str, characters: int) -> str:
    """Shorten the long strings in arguments until their JSON has at most ``characters`` characters.

    Arguments that are long but contain no long strings are shown as a single string.
    """
    try:
        arguments = pydantic_core.from_json(arguments_json)
    except ValueError:  # not JSON: no wire reads it
        return truncated(arguments_json, characters)

    return (
        _longest_json(lambda most: _short_texts(arguments, most), characters)
        or _longest_json(lambda most: {"…": truncated(arguments_json, most)}, characters)
        or _as_json({"…": f"{len(arguments_json)} characters left out"})
    )


def _longest_json(shown: Callable[[int], Any], characters: int) -> str:
    """Return as JSON the value that ``shown`` makes for the largest number that fits into ``characters``, or ``""``."""
    most = largest(MIN_CHARACTERS, characters, lambda most: len(_as_json(shown(most))) <= characters)
    return _as_json(shown(most)) if most else ""


def largest(least: int, most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number from ``least`` to ``most`` that fits, or 0 if none fits.  ``fits`` is monotonic."""
    count = bisect_left(range(least, most + 1), True, key=lambda number: not fits(number))
    return least + count - 1 if count else 0


def _as_json(value: Any) -> str:
    return pydantic_core.to_json(value).decode()


def _short_texts(value: Any, characters: int) -> Any:
    if isinstance(value, str):
        return truncated(value, characters)
    if isinstance(value, dict):
        return {name: _short_texts(item, characters) for name, item in value.items()}
    return [_short_texts(item, characters) for item in value] if isinstance(value, list) else value


def truncated(text: str, characters: int) -> str:
    """Return text in at most ``characters`` characters, either whole or as its head and tail around a note."""
    check_size("truncated", "characters", characters, MIN_CHARACTERS)
    if len(text) <= characters:
        return text
    left_out = len(text) - characters + len(LEFT_OUT.format(count=len(text)))
    room = characters - len(LEFT_OUT.format(count=left_out))
    head, tail = room - room // 2, len(text) - room // 2
    if "\ud800" <= text[head - 1] <= "\udbff":  # do not cut a surrogate pair in two
        head -= 1
    if "\udc00" <= text[tail] <= "\udfff":
        tail += 1
    return text[:head] + LEFT_OUT.format(count=tail - head) + text[tail:]


def once() -> Pass:
    """Return a pass that shows repeated results of a function only once, and replaces each repetition with a note.

    Results that are shorter than the note or have attachments are not replaced.

    Examples:
        >>> Agent(Script("Hi."), context=[once()]).call("Hello").output
        'Hi.'
    """
    return Pass(_once)


def _once(messages: Sequence[Message], record: CallRecord | None, memo: Memo) -> Sequence[Message]:
    seen = set[tuple[str, str, bool]]()

    def noted(result: Part) -> Part:
        if not isinstance(result, FunctionResult):
            return result
        text = REPEATED.format(name=result.name, start=result.text[:_STARTS])
        if result.attachments or len(text) >= len(result.text):
            return result
        mark = (result.name, result.text, result.is_error)
        if mark not in seen:
            seen.add(mark)
            return result
        return result.changed(text=text)

    def shown(message: Message) -> Message:
        parts = tuple([noted(part) for part in message.parts])
        if all(map(is_, parts, message.parts)):
            return message
        return memo.made(message, lambda message: message.changed(parts=parts), parts)

    return list(map(shown, messages))


def mask(keep_rounds: int = 2, min_tokens: int = 500) -> Pass:
    """Return a pass that replaces old, long function results with a note.  Errors are always shown.

    A result is masked once its round is no longer among the newest ``keep_rounds``, or once a function with
    `Context.release` or a model with `context_release` has released it.  Results from before the call are not masked.

    Args:
        keep_rounds: How many of the newest rounds of function calls are shown unchanged; 1 or more.
        min_tokens: Results of up to this many tokens, not counting attachments, are always shown.

    Raises:
        UsageError: If an argument is wrong.

    Examples:
        >>> Agent(Script("Hi."), context=[mask(keep_rounds=2)]).call("Hello").output
        'Hi.'
    """
    check_size("mask", "keep_rounds", keep_rounds)
    check_size("mask", "min_tokens", min_tokens, least=0)
    return Pass(_mask, (keep_rounds, min_tokens))


def _mask(
    messages: Sequence[Message], record: CallRecord | None, memo: Memo, keep_rounds: int, min_tokens: int
) -> Sequence[Message]:
    released = frozenset(record.released) if record is not None else frozenset[int]()
    calls: Iterable[Any] = (
        [call for message in messages for call in message.function_calls] if record is None else record.function_calls
    )
    numbers = {id: number for number, id in enumerate(dict.fromkeys([_round_of(call.id) for call in calls]), 1)}
    oldest_kept = len(numbers) + 1 - keep_rounds  # the round that is requested now is one more

    def hidden(part: Part) -> int:
        """Return the number of the round whose result is masked, or 0 to show the result."""
        if not isinstance(part, FunctionResult) or part.is_error or estimated_tokens(part.text) <= min_tokens:
            return 0
        number = numbers.get(_round_of(part.id), 0)
        return number if number < oldest_kept or number in released else 0

    def masked(message: Message) -> Message:
        parts = list(message.parts)
        for place, part in enumerate(parts):
            if isinstance(part, FunctionResult) and (number := hidden(part)):
                tokens = estimated_tokens(part.text)
                note = MASKED.format(name=part.name, round=number, tokens=tokens)
                memo.masked += 1
                memo.saved_tokens += tokens - estimated_tokens(note)
                parts[place] = part.changed(text=note, attachments=())
        return message.changed(parts=tuple(parts))

    def shown(message: Message) -> Message:
        rounds = list(map(hidden, message.parts)) if message.role == "tool" else []
        return memo.made(message, masked, rounds) if any(rounds) else message

    return list(map(shown, messages))


def _round_of(id: str) -> str:
    """Return, as text, the number of the message that asked for a call."""
    return id.partition(".")[0]


def compress(keep: int = 8) -> Pass:
    """Return a pass that shows each function call in older rounds as one line: ``name(arguments) → result``.

    A line contains the first 80 characters of the arguments and the first line of the result.  The text of the model's
    message is kept.  Like `keep_last`, this pass moves its window in steps.

    Args:
        keep: How many of the newest rounds are shown unchanged; 1 or more.

    Raises:
        UsageError: If ``keep`` is not a whole number of at least 1.

    Examples:
        >>> Agent(Script("Hi."), context=[compress(keep=4)]).call("Hello").output
        'Hi.'
    """
    check_size("compress", "keep", keep)
    return Pass(_compress, (keep,))


def _compress(messages: Sequence[Message], record: CallRecord | None, memo: Memo, keep: int) -> Sequence[Message]:
    end = _newest_rounds(messages, keep)
    if not end:
        return messages
    messages, shown = list(messages), list[Message]()
    index = 0
    while index < end:
        message = messages[index]
        index += 1
        if not message.function_calls:
            shown.append(message)
            continue
        results = index
        while index < len(messages) and messages[index].role == "tool":
            index += 1
        told = messages[results:index]
        shown += memo.made(message, partial(_as_lines, results=told), told)
    return [*shown, *messages[end:]]


def _as_lines(message: Message, results: Sequence[Message]) -> list[Message]:
    texts = {part.id: part.text for m in results for part in m.parts if isinstance(part, FunctionResult)}
    lines = [
        f"{call.name}({call.arguments_json[:_ARGUMENTS]}) → {texts.get(call.id, '').partition(chr(10))[0][:_LINE]}"
        for call in message.function_calls
    ]
    said = tuple([part for part in message.parts if not isinstance(part, FunctionCall)])
    own = [message.changed(parts=said)] if message.text else []
    return [*own, Message.of("user", EARLIER + "\n".join(lines))]


def check_size(owner: str, name: str, value: Any, least: int = 1) -> None:
    """Reject a value that is not a whole number of at least ``least``."""
    if not is_whole(value, least):
        raise UsageError(f"{name} of {owner}: expected a whole number from {least} on, got {value!r:.80}")


CONTEXT_RELEASE = (
    "Free space in your context. From now on, long results of functions in these rounds are shown to you only as "
    "short notes. Do this once you have taken what you need from the results. Each message in which you called "
    "functions is a round. The first one for the present task is round 1."
)


@cache
def context_release() -> Function:
    """Return a function that lets the model release results that it no longer needs; see `mask`.

    Examples:
        >>> context_release().name
        'context_release'
    """

    def release(context: Context, rounds: list[int]) -> str:
        context.release(rounds)
        return "Released."

    return Function.of(release, name="context_release", description=CONTEXT_RELEASE)


EARLIER = "[Earlier calls of functions, shortened]\n"  # the beginning of a user message that a pass made
SUMMARY_OPENED, SUMMARY_CLOSED = "<history_summary>\n", "\n</history_summary>"  # around the text of a summary


def system_messages(messages: Sequence[Message]) -> int:
    """Return the number of system messages at the beginning."""
    count = 0
    for message in messages:
        if message.role != "system":
            break
        count += 1
    return count


def round_starts(messages: Sequence[Message], start: int = 0) -> list[int]:
    """Return the index at which each round begins, from ``start`` on.

    User messages that the model has not answered yet belong to no round.
    """
    starts: list[int] = []
    opened: int | None = None  # the first of the messages before the next one of the model
    for index in range(start, len(messages)):
        role = messages[index].role
        if role == "assistant":
            starts.append(index if opened is None else opened)
            opened = None
        elif role != "tool" and opened is None:
            opened = index
    return starts


def summary_at(messages: Sequence[Message]) -> int:
    """Return the index of the message that summarizes earlier messages, or -1 if there is none.

    A summary comes right after the system prompt, or after the task that follows the prompt.  Elsewhere, text that is
    marked like a summary counts as ordinary text.
    """
    systems = system_messages(messages)
    for index in range(max(0, systems - 1), min(systems + 2, len(messages))):
        message = messages[index]
        if message.role in ("user", "system") and message.text.startswith(SUMMARY_OPENED):
            return index if message.text.endswith(SUMMARY_CLOSED) else -1
    return -1


def turns(messages: Sequence[Message]) -> list[range]:
    """Return the indexes of each turn, which is a question and everything up to the next question.

    A user message that arrives while the model is still calling functions belongs to the same turn.  The system prompt
    and a summary do not belong to any turn.
    """
    start, is_answered = max(system_messages(messages), summary_at(messages) + 1), False
    starts = [start]
    for index in range(start, len(messages)):
        message = messages[index]
        if message.role == "user" and is_answered:
            starts.append(index)
        if message.role != "system":
            is_answered = message.role == "assistant"  # the results of its calls, if any, follow
    return [range(*ends) for ends in pairwise([*starts, len(messages)]) if ends[0] < ends[1]]


def questions_cut_off(messages: Sequence[Message], cut: int) -> list[Message]:
    """Return the questions before the index ``cut`` whose turns continue after that index."""
    turn = next((turn for turn in turns(messages) if turn.start < cut < turn.stop), range(0))
    return [messages[index] for index in turn if index < cut and messages[index].role == "user"]


def whole_turns(messages: Sequence[Message], part: Sequence[Message]) -> Sequence[Message]:
    """Return a part of the messages, in which no question is separated from its answer.

    For each turn that has replies in the part, missing questions and answers are added.  Other answered questions are
    dropped.
    """
    places, numbered = set[int](), iter(enumerate(messages))
    for wanted in part:
        place = next((index for index, message in numbered if message is wanted), None)
        if place is None:
            return part
        places.add(place)
    before = set(places)
    for turn in turns(messages):
        replies = [index for index in turn if messages[index].role == "assistant"]
        asked = {index for index in turn if messages[index].role == "user"}
        if not places.isdisjoint(replies):
            answer = replies[-1:] if not messages[replies[-1]].function_calls else []
            places |= {*asked, *answer}
        elif replies:
            places -= asked
    return part if places == before else [messages[index] for index in sorted(places)]


def task_of(record: CallRecord) -> Message | None:
    """Return the call's task, which is the newest user message that it began with."""
    return next((m for m in record.dialog[record.seeded_with - 1 :: -1] if m.role == "user"), None)


def pinned(messages: Sequence[Message], record: CallRecord | None) -> set[int]:
    """Return the indexes of the messages that every request contains.

    They are the system prompt, the task, and the summary or, if there is none, the first user message.
    """
    found = set(range(system_messages(messages)))
    users = [index for index, message in enumerate(messages) if message.role == "user"]
    if users:
        # A pass may show text as a user's message, and a user may write the same text.  The record tells them apart.
        own = [index for index in users if not messages[index].text.startswith(EARLIER)] or users
        first, task = own[0], own[-1]
        if (summary := summary_at(messages)) >= 0:  # it also replaces the first message
            found |= set(range(summary + 1))
            first = task
        if record is not None and (wanted := task_of(record)) is not None:
            task = next((index for index in users if messages[index] is wanted), task)
        found |= {first, task}
    return found
