"""The command ``fsm-agent chat``: a conversation at the terminal, one turn per line."""

from __future__ import annotations

import contextlib
import importlib
import secrets
import shlex
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from fsm_agent.agents.agent import Agent
from fsm_agent.call.result import CallFailed, CallSuspended
from fsm_agent.cli.options import (
    EMBEDDED,
    Approve,
    BaseUrl,
    Debug,
    Deps,
    Functions,
    JsonLines,
    Model,
    OptionalStore,
    Quiet,
    SettingsAndLimits,
    code_for,
    connected,
    is_embedded,
    load_deps,
    open_if_named,
    settings_of,
    store_option,
)
from fsm_agent.cli.output import (
    FAILED,
    INTERRUPTED,
    Approver,
    LineWriter,
    drive_and_show,
    error_text,
    is_ending,
    reporting,
)
from fsm_agent.cli.run_tables import RunPicture
from fsm_agent.cli.terminal import Screen, error_line, one_line
from fsm_agent.errors import FsmAgentError
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.store.history import read
from fsm_agent.store.runs import Runs
from fsm_agent.store.sql.sqlite import MemoryStore

COMMANDS = {
    "/undo": "take back the last turn",
    "/draw": "draw the states of the last turn",
    "/help": "show these commands",
    "/quit": "end, as Ctrl-D does",
}
_EMBEDDED_SYSTEM = "You are a helpful assistant. Answer in one or two sentences."  # small models ramble without it


class Chat:
    """A conversation with a person."""

    def __init__(
        self, agent: Agent[Any, Any], name: str, screen: Screen, lines: LineWriter, where: str, deps: Any = None
    ) -> None:
        self._agent = agent
        self._conversation = agent.conversation(name)
        self._screen = screen
        self._lines = lines
        self._where = where
        self._deps = deps
        self._after: Dialog | None = None  # the dialog that the next turn continues after /undo
        self._run = ""  # the run of the last turn
        self.has_failed = False

    def converse(self, lines: Iterator[str]) -> None:
        """Handle one line after another.  Errors are reported, and the chat continues."""
        for line in lines:
            try:
                if not self._take(line):
                    return
            except CallSuspended:
                raise
            except FsmAgentError as error:
                self.has_failed = True
                error_line(error_text(error))

    def _take(self, line: str) -> bool:
        """Answer a line, or carry out the command in it.  Return False if it ends the chat."""
        word, _, rest = line.strip().partition(" ")
        match word, rest.strip():
            case "", _:
                pass
            case "/quit", "":
                return False
            case "/undo", "":
                self._undo()
            case "/draw", "":
                self._draw()
            case "/help", "":
                for command, what in COMMANDS.items():
                    self._screen.tell(f"{command:<12} {what}", "")
            case _ if word.startswith("/"):
                self._screen.tell(f"expected a command ({', '.join(COMMANDS)}), got {one_line(line)!r}", "red")
            case _:
                self._turn(line)
        return True

    @property
    def _dialog(self) -> Dialog:
        return self._conversation.read() if self._after is None else self._after

    def _turn(self, task: str) -> None:
        run = f"{self._conversation.name}-{secrets.token_hex(4)}"
        call = self._conversation.prepare(task, run_id=run, after=self._after, deps=self._deps)
        self._run = run
        try:
            drive_and_show(
                lambda sink: self._conversation.run(call, sink),
                self._screen,
                self._lines,
                model=self._agent.client.name,
                command=f"fsm-agent runs answer {shlex.quote(run)} {self._where}" if self._where else "",
            )
        except CallFailed as error:
            self.has_failed = True
            error_line(error_text(error))
        except KeyboardInterrupt:
            call.cancel("interrupted at the terminal")
            with contextlib.suppress(CallFailed):
                self._conversation.run(call)
            if is_ending():
                raise
            self._lines.end("failure", error="interrupted", exit_status=INTERRUPTED)
            stays = "what was called stays in the conversation, and /undo takes it back"
            self._screen.tell(f"interrupted: {stays if call.record.function_calls else 'this turn is left out'}")
        self._after = None

    def tell_how_to_continue(self) -> None:
        """Show the command that continues the conversation."""
        if self._after is not None:
            self._screen.tell("no turn came after the last /undo, so it is not kept")
        self._screen.tell(f"to continue: {shlex.join(['fsm-agent', *sys.argv[1:]])}")

    def _undo(self) -> None:
        dialog = self._dialog
        messages = tuple(dialog)
        places = [index for index, message in enumerate(messages) if message.role == "user"]
        if not places:
            self._screen.tell("nothing to undo")
            return
        self._after = Dialog(messages[: places[-1]], system_args=dialog.system_args)
        self._screen.tell(f"taken back: {one_line(messages[places[-1]].text)}")

    def _draw(self) -> None:
        if not self._run:
            self._screen.tell("nothing to draw: no turn was taken here")
            return
        self._screen.show(RunPicture(read(self._agent.runs.all, self._run)))


def chat_lines(screen: Screen) -> Iterator[str]:
    """Yield the lines that the person types, or the lines of standard input."""
    if not sys.stdin.isatty():
        yield from (line.rstrip("\r\n") for line in sys.stdin)
        return
    with contextlib.suppress(ImportError):
        importlib.import_module("readline")  # gives input() a history and the usual editing keys
    while True:
        screen.pause()
        try:
            line = input("> ")
        except EOFError:
            typer.echo(err=True)
            return
        except KeyboardInterrupt:
            typer.echo(err=True)
            raise
        yield line


def chat(
    name: Annotated[str, typer.Argument(help="The name of the conversation in the store.")] = "chat",
    model: Model = EMBEDDED,
    base_url: BaseUrl = None,
    function: Functions = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="The system prompt.")] = None,
    setting: SettingsAndLimits = None,
    deps: Deps = None,
    store: OptionalStore = None,
    approve: Approve = False,
    as_json: JsonLines = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Talk with a model: each line is a turn. /help shows the commands."""
    lines = LineWriter(as_json)
    with reporting(debug, lines), Screen(quiet=quiet) as screen:
        functions, _ = code_for(model, base_url, function, None, screen, approve=approve)
        settings, limits = settings_of(model, base_url, setting, on_cut="accept")
        with connected(model, base_url, screen) as (client, _), open_if_named(store) as runs:
            agent = Agent(
                client,
                functions=functions,
                name="chat",
                system=_EMBEDDED_SYSTEM if system is None and is_embedded(model, base_url) else system or "",
                limits=limits,
                settings=settings,
                approve=(lambda _: True) if approve else Approver(screen),
                store=Runs(MemoryStore()) if runs is None else runs,
            )
            where = "" if store is None else store_option(store)
            talk = Chat(agent, name, screen, lines, where, load_deps(deps, [agent]))
            try:
                talk.converse(chat_lines(screen))
            finally:
                if store is not None:
                    talk.tell_how_to_continue()
        if talk.has_failed and not sys.stdin.isatty():
            raise typer.Exit(FAILED)
