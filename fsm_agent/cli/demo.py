"""The command ``fsm-agent demo``, with five parts that show what an agent does, using a real model.

The parts are tasks that a model with 135 million parameters performs reliably: a sum through a function after two
example turns, a typed answer by constrained decoding, and a classification by log probabilities.  Other models can run
the demo as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from pydantic import BaseModel, Field
from rich.table import Table
from rich.text import Text

from fsm_agent.agents.agent import Agent
from fsm_agent.agents.classification import Calibration, Classification
from fsm_agent.call.call import AgentCall
from fsm_agent.call.effects import AskApproval
from fsm_agent.call.record import Reason, State
from fsm_agent.call.result import CallFailed
from fsm_agent.cli.errors import FAILED
from fsm_agent.cli.options import EMBEDDED, BaseUrl, Model, connected, is_embedded
from fsm_agent.cli.terminal import Screen, error_line, one_line, shown_call, shown_function, shown_step
from fsm_agent.clients.local.model import SMOLLM2
from fsm_agent.clients.local.server import local_server
from fsm_agent.diagrams.drawing import write
from fsm_agent.diagrams.machine_diagrams import trace_diagram
from fsm_agent.errors import UsageError
from fsm_agent.functions.function import Function, function
from fsm_agent.messages.events import Event, FunctionEnded, FunctionStarted, ReplyCompleted, Stepped, TextDelta
from fsm_agent.messages.reply import Settings, Usage
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.library import Prompts, packaged_prompts
from fsm_agent.prompts.output import Output
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.providers.catalog import split_model
from fsm_agent.store.runs import Runs
from fsm_agent.testing import Script, function_call

INTRODUCTION = (
    "It runs on this machine, on one thread. With 135 million parameters it is very small: it can do what you see"
    " here and little else. --model runs the demo with another model."
)
LABELS = ("positive", "negative")
TEXTS = (  # half of each: the calibration assumes equally frequent labels
    ("I love this phone, it is wonderful.", "positive"),
    ("The food was cold and the waiter was rude.", "negative"),
    ("What a beautiful day at the beach!", "positive"),
    ("This film is boring and far too long.", "negative"),
    ("The staff were kind and the room was spotless.", "positive"),
    ("My order arrived broken and nobody helped me.", "negative"),
)
MAX_WRONG_LABELS = 1
FILE, STORE, RUN = "notes.txt", "runs.db", "tidy"
SETTINGS = Settings(temperature=0, seed=1, max_tokens=64)  # for the embedded model; others use their defaults
_PROMPTS = Prompts("demo", directory=packaged_prompts())


class Person(BaseModel):
    """A person mentioned in a text.  Every string has a maximum length, because a small model might never end it."""

    name: str = Field(max_length=40)
    age: int = Field(ge=0, le=150)
    city: str = Field(max_length=40)


@function
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def read_number(text: str) -> int:
    """Return the number in an answer."""
    return int(Output(int).parse(text))


def eraser(directory: Path) -> Function:
    """Return a function ``erase`` that can only erase files in one directory."""

    @function(needs_approval=True)
    def erase(path: str) -> str:
        """Erase a file."""
        if Path(path).name != path:
            raise ValueError(f"{path!r} is not a file in this directory")
        (directory / path).unlink()
        return f"{path} is erased"

    return erase


erase = eraser(Path())  # for the other processes, in their working directory


class Result(NamedTuple):
    """The result of one part of the demo.  If it has neither an output nor a problem, the part was skipped."""

    output: str = ""
    calls: Sequence[AgentCall] = ()
    problem: str = ""


class Demo:
    """The parts of the demo.

    Args:
        screen: The output.
        agent: The agent that is asked.
        reach: The options and environment variables with which another process can reach the agent's model.
    """

    def __init__(self, screen: Screen, agent: Agent[Any, Any], reach: tuple[Sequence[str], Mapping[str, str]]) -> None:
        self._screen = screen
        self._agent = agent
        self._reach = reach
        self._is_speaking = False

    def play(self) -> dict[str, Result]:
        """Run all parts, and return their results by title."""
        results: dict[str, Result] = {}
        for title, (play, about) in PARTS.items():
            self._screen.line()
            self._screen.line(f"{len(results) + 1}  {title}", "bold")
            self._line(about, "dim")
            results[title] = result = play(self)
            if result.problem:
                self._line(f"not as it should be: {one_line(result.problem)}", "bold red")
        return results

    def add_up(self) -> Result:
        script = Script(
            *(function_call("add", a=40, b=3), "The answer is 43."),
            *(function_call("add", a=310, b=75), "The answer is 385."),
        )

        def check(call: AgentCall) -> str:
            added = [one.arguments for one in call.record.function_calls if one.name == "add" and one.succeeded]
            if not any(sorted(map(str, arguments.values())) == ["17", "25"] for arguments in added):
                return "the model did not call add(a=17, b=25)"
            return "" if "42" in str(call.output) else f"the answer {call.output!r:.80} does not say 42"

        worked = self._worked(script, [add], ["What is 40 + 3?", "Add 310 and 75."])
        return self._ask(_PROMPTS("task"), {"a": 17, "b": 25}, check, after=worked)

    def extract(self) -> Result:
        expected = Person(name="Maria Silva", age=34, city="Lisbon")
        text = "Maria Silva is 34 years old and lives in Lisbon."
        return self._ask(_PROMPTS("extract"), {"text": text}, lambda call: _differs(call.output, expected))

    def recover(self) -> Result:
        result = self._ask(_PROMPTS("count"), {}, lambda call: _differs(call.output, 7))
        if not result.problem and not result.calls[0].record.parse_errors:
            self._line("The first answer was a number: the exception branch (ParseException) was not needed.", "dim")
        return result

    def classify(self) -> Result:
        prompt = _PROMPTS("sentiment")
        self._show_request(prompt, {"text": TEXTS[0][0]})
        calls, found = list[AgentCall](), list[Classification[str]]()
        agent = self._agent.changed(settings=self._agent.settings.changed(max_tokens=None))
        for text, _ in TEXTS:
            try:
                found.append(agent.classify(text, LABELS, prompt=prompt))
            except UsageError as error:
                return self._left_out(str(error))
            except CallFailed as error:
                if error.reason is Reason.MODEL_FAILED:
                    raise
                return Result(calls=calls, problem=f"{error.reason}: {error}")
            calls += [result.call for result in found[-1].results]
            if not found[-1].is_calibrated:
                return self._left_out("the model gives no log probabilities.", calls)
        calibrated = [*map(Calibration.of_prior(found).applied, found)]
        for (text, _), one in zip(TEXTS, calibrated, strict=True):
            self._line(f"{one.label} ({one.p:.2f}): {text}", "green")
        right = sum([one.label == label for (_, label), one in zip(TEXTS, calibrated, strict=True)])
        output = f"{right} of {len(TEXTS)} labels right"
        return Result(output, calls, "" if right >= len(TEXTS) - MAX_WRONG_LABELS else f"only {output}")

    def approve_elsewhere(self) -> Result:
        """Suspend a call in this process, approve it in a second process, and continue it in a third.

        The other processes run ``fsm-agent runs answer`` and ``runs resume``, as a user would, and share only a store.
        """
        with tempfile.TemporaryDirectory(prefix="fsm-agent-demo-") as name, closing(Runs(Path(name, STORE))) as runs:
            return self._approve_in(Path(name), runs)

    def _approve_in(self, folder: Path, runs: Runs) -> Result:
        agent, prompt = replace(self._agent, store=runs), _PROMPTS("erase").extend(functions=[eraser(folder)])
        examples = ("draft.txt", "old.txt")  # these are really erased; only the model's part is scripted
        script = Script(
            *[part for path in examples for part in (function_call("erase", path=path), f"{path} is gone.")]
        )
        for path in (*examples, FILE):
            (folder / path).write_text("Buy milk.")

        def check(call: AgentCall) -> str:
            return "" if _approvals(call) else f"the model did not ask for erase(path={FILE!r})"

        worked = self._worked(script, [], [prompt(path=path) for path in examples])
        result = self._ask(prompt, {"path": FILE}, check, agent=agent, run_id=RUN, after=worked)
        if problem := result.problem:
            return result
        asks = _approvals(result.calls[0])
        self._line(f"to be approved: {', '.join([shown_call(ask.call) for ask in asks])}")
        self._line(f"{_state_of(folder)}, and the call is a run of {runs.store.get(RUN).n} entries in {STORE}")
        for ask in asks:
            problem = problem or self._run_elsewhere(folder, "answer", RUN, ask.key, "--approve")
        code = ("--prompt", prompt.path, "--function", f"{__name__}:erase", *self._reach[0])
        problem = problem or self._run_elsewhere(folder, "resume", RUN, hidden=code)
        ended = agent.runs.replay(RUN, prompt=prompt)
        used = f"{ended.record.rounds} of {ended.record.limits.rounds} rounds, {ended.record.turn} requests"
        self._line(f"{_state_of(folder)}; one call in several processes: {used}")
        if not problem and (folder / FILE).exists():
            problem = _state_of(folder)
        return Result(str(ended.output), [ended], problem)

    def _run_elsewhere(self, folder: Path, *words: str, hidden: Sequence[str] = ()) -> str:
        """Run ``fsm-agent runs …`` in another process, show its output, and return what went wrong, or ""."""
        command = ["runs", *words, "--store", STORE]
        path = os.pathsep.join([os.path.abspath(entry) for entry in sys.path])  # may be relative; the folder differs
        plainly = {"PYTHONIOENCODING": "utf-8", "FORCE_COLOR": "", "TTY_COMPATIBLE": "0", "PYTHONPATH": path}
        last = ""
        with subprocess.Popen(
            [sys.executable, "-m", "fsm_agent", *command, *hidden],
            cwd=folder,
            env={**os.environ, **self._reach[1], **plainly},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        ) as process:
            try:
                more = " …" if hidden else ""
                self._line(f"process {process.pid}, which runs: fsm-agent {' '.join(command)}{more}")
                for line in process.stdout or ():
                    last = one_line(line)
                    self._line(f"| {last}", "cyan")
            except BaseException:  # such as Ctrl-C, which need not reach the other process
                process.kill()
                raise
        return f"the other process ended with status {process.returncode}: {last}" if process.returncode else ""

    def _worked(self, script: Script, functions: Sequence[Function], tasks: Sequence[Any]) -> Dialog:
        """Return a dialog with example turns, in which functions really run and only the model's part is scripted."""
        teacher, dialog = Agent(script, functions=functions, approve=lambda _: True), self._agent.init_dialog()
        for task in tasks:
            dialog = teacher.call(dialog.put(task)).dialog
        return dialog

    def _ask(
        self,
        prompt: Prompt,
        values: Mapping[str, Any],
        check: Callable[[AgentCall], str],
        *,
        agent: Agent[Any, Any] | None = None,
        run_id: str | None = None,
        after: Dialog | None = None,
    ) -> Result:
        """Ask the model, and show the events.  ``check`` returns what is wrong with the model's answer, or ""."""
        agent = agent or self._agent
        self._show_request(prompt, values)
        call = agent.prepare((after or agent.init_dialog()).put(prompt(**values)), run_id=run_id)
        try:
            for event in agent.stream(call):
                self._show(event)
                self._screen.resume()
        except CallFailed as error:
            if error.reason is Reason.MODEL_FAILED:
                raise
        ending = call.record.ending if call.state is State.FAILED else None
        return Result(str(call.output), [call], f"{ending.reason}: {ending.detail}" if ending else check(call))

    def _show_request(self, prompt: Prompt, values: Mapping[str, Any]) -> None:
        for n, line in enumerate(prompt.render(**values).text.splitlines()):
            self._line(line if n else f"asked: {line}")

    def _show(self, event: Event) -> None:
        self._screen.status.take(event)
        match event:
            case TextDelta():
                lead = "" if self._is_speaking else "   model: "
                self._screen.write(lead + event.text.replace("\n", "\n   "), "green")
                self._is_speaking = True
            case ReplyCompleted():
                self._screen.end_line()
                self._is_speaking = False
            case Stepped():
                self._is_speaking = False  # also after an incomplete reply
                self._line(shown_step(event), "cyan")
            case FunctionStarted() | FunctionEnded():
                self._line(f"function: {shown_function(event)}", "yellow")

    def _left_out(self, why: str, calls: Sequence[AgentCall] = ()) -> Result:
        self._line(one_line(f"Left out: {why}"), "dim")
        return Result(calls=calls)

    def _line(self, text: str, style: str = "") -> None:
        self._screen.prose(text, style, indent=3)


PARTS: dict[str, tuple[Callable[[Demo], Result], str]] = {
    "A sum, through a function": (
        Demo.add_up,
        "After two worked examples, the model calls add(), gets the result, and answers with it.",
    ),
    "A typed answer, held to a schema": (
        Demo.extract,
        "The answer must be a Person(name, age, city); the schema lets the model write nothing else.",
    ),
    "A parse error, recovered": (
        Demo.recover,
        "The answer should be a number, but the model is free to answer in a sentence, and often does. It is then"
        " told what was wrong and asked again, held to the schema. The failed answer leaves the dialog.",
    ),
    "A classification, by log probabilities": (
        Demo.classify,
        f"The model labels {len(TEXTS)} texts; this is the first. It does not write the label: the framework reads"
        " how likely each label is as the next token, compared with how likely that label is on average.",
    ),
    "An approval, in another process": (
        Demo.approve_elsewhere,
        "erase() needs approval, and this process has no approver: the call is suspended and waits in a store. A"
        " second process approves it, and a third continues the call with what is left of each budget.",
    ),
}


def _differs(answer: object, expected: object) -> str:
    return "" if answer == expected else f"the answer {answer!r} is not {expected!r}"


def _approvals(call: AgentCall) -> list[AskApproval]:
    return [effect for effect in call.effects if isinstance(effect, AskApproval)]


def _state_of(folder: Path) -> str:
    return f"{FILE} is still there" if (folder / FILE).exists() else f"{FILE} is gone"


def demo(
    model: Model = EMBEDDED,
    base_url: BaseUrl = None,
    output: Annotated[Path | None, typer.Option(help="The file for the picture: .svg, .png, .dot or .mmd.")] = None,
) -> None:
    """Show a real model at work: functions, types, a parse error, log probabilities and an approval."""
    with Screen() as screen, connected(model, base_url, screen) as (client, name):
        screen.line(f"The model is {name}.", "bold")
        if name == SMOLLM2.name:
            screen.prose(INTRODUCTION, "dim")
        settings = SETTINGS if is_embedded(model, base_url) else Settings()
        agent = Agent(client, name="demo", system=_PROMPTS("system").template, settings=settings)
        results = Demo(screen, agent, _reach(model, base_url)).play()
        screen.line()
        screen.show(_summary(results))
        screen.line()
        calls = [result.calls[0] for result in results.values() if len(result.calls) == 1]
        drawn = trace_diagram([step for call in calls for step in call.record.trace], title="fsm-agent demo")
        screen.prose("The states that these calls went through:")
        screen.line(str(write(drawn, output or _new_file())))
    if problems := [result.problem for result in results.values() if result.problem]:
        error_line(f"{len(problems)} of {len(results)} parts failed: {'; '.join(problems)}")
        raise typer.Exit(FAILED)


def _new_file() -> str:
    """Return a file for the picture, in SVG or, if `dot` is missing, in Mermaid, which https://mermaid.live draws."""
    descriptor, name = tempfile.mkstemp(prefix="fsm-agent-demo-", suffix=".svg" if shutil.which("dot") else ".mmd")
    os.close(descriptor)
    return name


def _reach(model: str, base_url: str | None) -> tuple[Sequence[str], Mapping[str, str]]:
    """Return how another process can reach this model.  The embedded model is reached through its running server."""
    if not is_embedded(model, base_url):
        return ("--model", model, *(("--base-url", base_url) if base_url else ())), {}
    server = local_server(split_model(model)[1] or None)
    settings = [f"temperature={SETTINGS.temperature}", f"seed={SETTINGS.seed}", f"max_tokens={SETTINGS.max_tokens}"]
    options = ("--model", f"llamacpp:{server.model}", "--base-url", server.base_url)
    return (*options, *[word for one in settings for word in ("--set", one)]), {"LLAMA_API_KEY": server.api_key}


def _summary(results: Mapping[str, Result]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("", "part", "output"):
        table.add_column(heading, overflow="fold")
    for heading in ("rounds", "tokens", "time"):
        table.add_column(heading, overflow="fold", justify="right")
    for title, (output, calls, problem) in results.items():
        verdict = Text("failed", "bold red") if problem else Text("ok" if output else "left out", "green")
        records = [call.record for call in calls]
        rounds, usage = sum([record.rounds for record in records]), sum([record.usage for record in records], Usage())
        duration_s = sum([record.trace[-1].at_s - record.trace[0].at_s for record in records if record.trace])
        figures = (str(rounds), f"{usage.total_tokens:,}", f"{duration_s:.1f} s")
        table.add_row(verdict, title, Text(one_line(output or "-")), *figures)
    return table
