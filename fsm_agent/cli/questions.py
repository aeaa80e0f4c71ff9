"""Asks the person at a terminal for approvals, and for answers to open questions, with forms."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from fsm_agent.call.outcomes import Outcome
from fsm_agent.call.question_forms import Field, FormError, outcome_from_form, question_form
from fsm_agent.cli.run_tables import OPTIONS, option_for, question_line, rest_of
from fsm_agent.cli.terminal import MAX_SHOWN, Screen, one_line, whole_call
from fsm_agent.errors import UsageError
from fsm_agent.messages.events import Question
from fsm_agent.messages.message import FunctionCall
from fsm_agent.store.store import Run

_WITH_REASON = {"denied": "why not", "function_failed": "what went wrong", "cancelled": "why"}
_TRUTH = {"y": "true", "yes": "true", "n": "false", "no": "false"}


def is_at_terminal() -> bool:
    """Return whether a person can be asked."""
    return sys.stdin.isatty()


class Approver:
    """An approver that asks the person at the terminal."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __call__(self, call: FunctionCall) -> bool | None:
        """Return the verdict, or None if no person is at the terminal."""
        if not is_at_terminal():
            return None
        request = whole_call(call)
        if len(request) > MAX_SHOWN:
            self._screen.pause()
            typer.echo(request, err=True)
            request = f"{call.name} with all of these {len(request):,} characters"
        while True:
            match self._screen.ask(f"May the model call {request}? [y/N]: ").strip().lower():
                case "y" | "yes":
                    return True
                case "" | "n" | "no":
                    return False
                case _:
                    typer.echo("Please answer y or n.", err=True)


def question_of(run: Run, named: str | None, screen: Screen) -> Question:
    """Return the open question that has this key or is asked by this state of a flow.

    If no name is given, return the only question, or let a person choose.
    """
    asked = {question.key: question for question in run.waits}
    if named is None and len(asked) > 1 and is_at_terminal():
        for question in run.waits:
            screen.tell(question_line(question))
        named = _choose(screen, "question", [*asked])
    found = [key for key in asked if named in (None, key, key.partition(":")[2].partition("#")[0])]
    if len(found) != 1:
        what = "none" if named is None else repr(named)
        nothing = "has ended" if run.is_ended else f"asks nothing: {rest_of(run)}"
        state = f"asks {', '.join(map(repr, asked))}" if asked else nothing
        raise UsageError(f"expected the key of an open question, got {what}; the run {run.id!r} {state}")
    return asked[found[0]]


def fill_in(question: Question, screen: Screen, *, only: str = "") -> Outcome:
    """Show a question as a form, and return the answer of the person at the terminal.

    Args:
        question: The question.
        screen: The terminal.
        only: The only kind of outcome that is accepted.  By default, the person chooses the kind.
    """
    form = question_form(question)
    screen.tell(question_line(question), "bold")
    kinds = {_word(kind): kind for kind in OPTIONS if kind in ([only] if only else form.answers)}
    kind = kinds[_choose(screen, "answer", [*kinds])]
    typed, fields = {"kind": kind}, tuple[Field, ...]()
    if kind == "returned":
        by_name = {choice.name: choice.fields for choice in form.choices}
        name = _choose(screen, "type", [*by_name])
        typed, fields = {**typed, "type": name}, by_name[name]
    elif kind == "modified":
        fields = form.choices[0].fields
    elif kind in _WITH_REASON:
        typed["reason"] = screen.ask(f"{_WITH_REASON[kind]} (may be empty): ")
    wrong = fields
    while True:
        typed.update([(field.name, _ask_for(screen, field)) for field in wrong])
        try:
            return outcome_from_form(question, typed)
        except FormError as error:
            wrong = tuple(field for field in fields if field.name in error.errors) or fields
            if not wrong:
                raise
            labels = {field.name: f"{field.label}: " for field in fields}
            for name, problem in error.errors.items():
                screen.tell(one_line(labels.get(name, "") + problem), "red")


def how_to_answer(question: Question) -> str:
    """Return the options of ``runs answer`` that answer a question."""
    return " or ".join([option_for(question, kind) for kind in OPTIONS if kind in question_form(question).answers])


def _word(kind: str) -> str:
    """Return what a person types for a kind of answer: the option of ``runs answer`` without dashes."""
    return OPTIONS[kind].split(" ")[0].removeprefix("--")


def _choose(screen: Screen, what: str, words: Sequence[str]) -> str:
    """Let a person choose one of the words, or abbreviate it.  A single word is returned without asking."""
    if len(words) == 1:
        return words[0]
    while True:
        given = screen.ask(f"{what} ({one_line(', '.join(words))}): ").strip()
        found = [word for word in words if given and word.lower().startswith(given.lower())]
        if given in words:
            return given
        if len(found) == 1:
            return found[0]
        screen.tell(f"expected one of {', '.join(words)}, got {one_line(given)!r}", "red")


def _ask_for(screen: Screen, field: Field) -> str:
    """Return the text for a field.  An empty line keeps its current value."""
    words = {word: text for text, word in field.choices}
    about = ", ".join(words) or (field.kind if field.kind in ("integer", "number") else "")
    about = "y or n" if field.kind == "boolean" else about
    notes = "; ".join(filter(None, [field.hint, about, "" if field.is_needed or field.value else "may be empty"]))
    kept = f" [{one_line(dict(field.choices).get(field.value, field.value))}]" if field.value else ""
    text = screen.ask(f"{field.label or 'answer'}{f' ({one_line(notes)})' if notes else ''}{kept}: ").rstrip("\r\n")
    if not text.strip():
        return field.value
    if field.kind == "boolean":
        return _TRUTH.get(text.strip().lower(), text)
    return words.get(text.strip(), text)
