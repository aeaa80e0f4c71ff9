"""Suspend a call in one process, approve it in a second, and continue it in a third, with a real model.

The other processes are ``fsm-agent runs answer`` and ``fsm-agent runs resume``, as a user would run them; what they
share is a store.  All work in a directory that is made for this, and removed afterwards.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fsm_agent.agents.agent import Agent
from fsm_agent.call.call import AgentCall
from fsm_agent.call.effects import AskApproval
from fsm_agent.call.outcomes import Denied
from fsm_agent.call.snapshots import snapshot
from fsm_agent.cli.demo.items import DemoItem, Finding, PartStarted, Remark, streamed
from fsm_agent.cli.terminal import shown_call
from fsm_agent.functions.function import Function, function
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.testing import Script, function_call

TITLE = "An approval, in another process"
ABOUT = (
    "erase() needs approval, and this process has no approver: the call is suspended and waits in a store. A second"
    " process approves it, and a third continues the call with what is left of each budget."
)
FILE = "notes.txt"
STORE = "runs.db"
RUN = "tidy"
EXAMPLES = ("draft.txt", "old.txt")  # files erased in the model's examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The way in which another process reaches the same model."""

    options: tuple[str, ...]  # of ``fsm-agent runs resume``
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # a key, perhaps


def eraser(directory: Path) -> Function:
    """Return the function ``erase`` for one directory, which cannot reach outside of it."""

    @function(needs_approval=True)
    def erase(path: str) -> str:
        """Erase a file."""
        if Path(path).name != path:
            raise ValueError(f"{path!r} is not a file in this directory")
        (directory / path).unlink()
        return f"{path} is erased"

    return erase


erase = eraser(Path())  # for the other process: of its working directory


def approved_elsewhere(agent: Agent, prompt: Prompt, reach: Reach | None) -> Iterator[DemoItem]:
    """Play this part of the demo.

    Args:
        agent: The agent of the call.
        prompt: The task to erase the file ``path``; `fsm-agent` finds it by its path.
        reach: How another process reaches the model; None: it cannot, and the part is left out.

    Raises:
        CallFailed: The request to the model failed.
    """
    yield PartStarted(title=TITLE, about=ABOUT, request=prompt.render(path=FILE).text)
    if reach is None:
        yield Finding(title=TITLE, note="Left out: no other process can ask this model.")
        return
    with tempfile.TemporaryDirectory(prefix="fsm-agent-demo-") as name:
        directory = Path(name)
        (directory / FILE).write_text("Buy milk.")
        kept = replace(agent, store=directory / STORE)
        try:
            yield from _play(kept, prompt.extend(functions=[eraser(directory)]), directory, reach)
        finally:
            kept.runs.all.close()


def _play(agent: Agent, prompt: Prompt, directory: Path, reach: Reach) -> Iterator[DemoItem]:
    dialog = worked_turns(agent.init_dialog(), prompt, directory)
    seed = agent.prepare(dialog.put(prompt(path=FILE)), run_id=RUN)
    yield Remark(f"process {os.getpid()}, this one:")
    problem = yield from streamed(agent, seed)
    asks = _asks(seed)
    if not problem and not asks:
        problem = f"the model did not ask for erase(path={FILE!r})"
    if problem:
        yield Finding(title=TITLE, output=seed.output, calls=(seed,), problem=problem)
        return
    requests = ", ".join([shown_call(ask.call) for ask in asks])
    yield Remark(f"to be approved: {requests}")
    n = agent.runs.all.store.get(RUN).n
    yield Remark(f"{_state_of(directory)}, and the call is a run of {n} entries in {STORE}")
    yield Remark(_try_denial(agent.restore(snapshot(seed), prompt)))
    for ask in asks:
        problem = problem or (yield from _run_elsewhere(("answer", RUN, ask.key, "--approve"), (), directory, reach))
    code = ("--prompt", prompt.path, "--function", f"{__name__}:erase", *reach.options)
    problem = problem or (yield from _run_elsewhere(("resume", RUN), code, directory, reach))
    ended = agent.runs.replay(RUN, prompt=prompt)
    r, files = ended.record, _state_of(directory)
    used = f"{r.rounds} of {r.limits.rounds} rounds, {r.turn} requests, {r.usage.total_tokens:,} tokens"
    yield Remark(f"{files}; one call in several processes: {used}")
    if not problem and (directory / FILE).exists():
        problem = files
    yield Finding(title=TITLE, output=ended.output, calls=(ended,), problem=problem)


def worked_turns(dialog: Dialog, prompt: Prompt, directory: Path) -> Dialog:
    """Return ``dialog`` with two files erased as it should go, which they really are; the model's part is scripted."""
    script = Script(
        *[reply for name in EXAMPLES for reply in (function_call("erase", path=name), f"The file {name} is erased.")]
    )
    agent = Agent(script, approve=lambda _: True)
    for name in EXAMPLES:
        (directory / name).touch()
        dialog = agent.call(dialog.put(prompt(path=name))).dialog
    return dialog


def _asks(waiting: AgentCall) -> list[AskApproval]:
    return [effect for effect in waiting.effects if isinstance(effect, AskApproval)]


def _state_of(directory: Path) -> str:
    return f"{FILE} is still there" if (directory / FILE).exists() else f"{FILE} is gone"


def _try_denial(copy: AgentCall) -> str:
    """Return the effect of a denial, tried on a copy of the call."""
    for ask in _asks(copy):
        copy.advance(ask.key, Denied("not today"))
    step, result = copy.step, copy.record.dialog[-1].parts[-1]
    text = getattr(result, "text", "")
    return f"a copy of it, denied: {step.source} → {step.to} ({step.trigger}), and the model is told {text!r}"


def _run_elsewhere(
    command: tuple[str, ...], options: tuple[str, ...], directory: Path, reach: Reach
) -> Generator[DemoItem, None, str]:
    """Yield the output of ``fsm-agent runs …`` in another process; return the problem, if any."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fsm_agent", "runs", *command, "--store", STORE, *options],
        cwd=directory,
        env=_environment(reach),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    last = ""
    with process:
        assert process.stdout is not None
        try:
            more = " …" if options else ""
            yield Remark(f"process {process.pid}, which runs: fsm-agent runs {' '.join(command)} --store {STORE}{more}")
            for line in process.stdout:
                last = line.strip()
                yield Remark(last, is_quoted=True)
        except BaseException:
            process.kill()
            raise
    return f"the other process ended with status {process.returncode}: {last}" if process.returncode else ""


def _environment(reach: Reach) -> dict[str, str]:
    """Return the environment of another process that imports the same package, and writes no terminal codes."""
    path = os.pathsep.join([os.path.abspath(entry) for entry in sys.path])  # may be relative; the directory differs
    speech = {"PYTHONIOENCODING": "utf-8", "FORCE_COLOR": "", "TTY_COMPATIBLE": "0"}
    return {**os.environ, **reach.environment, **speech, "PYTHONPATH": path}
