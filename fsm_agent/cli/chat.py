"""The command ``fsm-agent chat``, a conversation at the terminal with one turn per line."""

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
from fsm_agent.cli import loading, options
from fsm_agent.cli.errors import FAILED, INTERRUPTED, error_text, is_ending
from fsm_agent.cli.output import Advice, drive_and_show
from fsm_agent.cli.questions import Approver
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

    def __init__(self, agent: Agent[Any, Any], name: str, screen: Screen, where: str, deps: Any) -> None:
        self._agent = agent
        self._conversation = agent.conversation(name)
        self._screen = screen
        self._where = where
        self._deps = deps
        self._after: Dialog | None = None  # the dialog that the next turn continues after /undo
        self._run = ""  # the run of the last turn
        self.has_failed = False

    def converse(self, lines: Iterator[str]) -> None:
        """Answer each line, or carry out the command in it.  Errors are reported, and the chat continues."""
        commands = {"/undo": self._undo, "/draw": self._draw, "/help": self._help}
        for line in lines:
            word = line.strip()
            if word == "/quit":
                return
            try:
                if word in commands:
                    commands[word]()
                elif word.startswith("/"):
                    self._screen.tell(f"expected a command ({', '.join(COMMANDS)}), got {one_line(line)!r}", "red")
                elif word:
                    self._turn(line)
            except CallSuspended:
                raise
            except FsmAgentError as error:
                self.has_failed = True
                error_line(error_text(error))

    def _turn(self, task: str) -> None:
        run = f"{self._conversation.name}-{secrets.token_hex(4)}"
        call = self._conversation.prepare(task, run_id=run, after=self._after, deps=self._deps)
        self._run = run
        try:
            advice = Advice(command=f"fsm-agent runs answer {shlex.quote(run)} {self._where}" if self._where else "")
            model = self._agent.client.name
            drive_and_show(lambda sink: self._conversation.run(call, sink), self._screen, advice, model=model)
        except CallFailed as error:
            self.has_failed = True
            error_line(error_text(error))
        except KeyboardInterrupt:
            call.cancel("interrupted at the terminal")
            with contextlib.suppress(CallFailed):
                self._conversation.run(call)
            if is_ending():
                raise
            self._screen.end("failure", error="interrupted", exit_status=INTERRUPTED)
            stays = "what was called stays in the conversation, and /undo takes it back"
            self._screen.tell(f"interrupted: {stays if call.record.function_calls else 'this turn is left out'}")
        self._after = None

    def tell_how_to_continue(self) -> None:
        """Show the command that continues the conversation."""
        if self._after is not None:
            self._screen.tell("no turn came after the last /undo, so it is not kept")
        self._screen.tell(f"to continue: {shlex.join(['fsm-agent', *sys.argv[1:]])}")

    def _help(self) -> None:
        for command, what in COMMANDS.items():
            self._screen.tell(f"{command:<12} {what}", "")

    def _undo(self) -> None:
        dialog = self._conversation.read() if self._after is None else self._after
        messages = tuple(dialog)
        places = [index for index, message in enumerate(messages) if message.role == "user"]
        if not places:
            self._screen.tell("nothing to undo")
            return
        self._after = Dialog(messages[: places[-1]], system_args=dialog.system_args)
        self._screen.tell(f"taken back: {one_line(messages[places[-1]].text)}")

    def _draw(self) -> None:
        if self._run:
            self._screen.show(RunPicture(read(self._agent.runs.all, self._run)))
        else:
            self._screen.tell("nothing to draw: no turn was taken here")


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
    model: options.Model = options.EMBEDDED,
    base_url: options.BaseUrl = None,
    function: options.Functions = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="The system prompt.")] = None,
    setting: options.SettingsAndLimits = None,
    deps: options.Deps = None,
    store: options.OptionalStore = None,
    approve: options.Approve = False,
    as_json: options.JsonLines = False,
    quiet: options.Quiet = False,
) -> None:
    """Talk with a model: each line is a turn. /help shows the commands."""
    with Screen(quiet=quiet, as_json=as_json) as screen:
        if options.NAMED_OBJECT.fullmatch(name):
            screen.tell(f"{name} is the name of this conversation; for a chat with that object: fsm-agent serve {name}")
        functions, _ = options.code_for(model, base_url, function, None, screen, approve=approve)
        settings, limits = options.settings_of(model, base_url, setting, on_cut="accept")
        with options.connected(model, base_url, screen) as (client, _), options.open_if_named(store) as runs:
            is_embedded = options.is_embedded(model, base_url)
            agent = Agent(
                client,
                functions=functions,
                name="chat",
                system=(_EMBEDDED_SYSTEM if is_embedded else "") if system is None else system,
                limits=limits,
                settings=settings,
                approve=(lambda _: True) if approve else Approver(screen),
                store=Runs(MemoryStore()) if runs is None else runs,
            )
            where = "" if store is None else options.store_option(store)
            talk = Chat(agent, name, screen, where, loading.load_deps(deps, [agent]))
            try:
                talk.converse(chat_lines(screen))
            finally:
                if store is not None:
                    talk.tell_how_to_continue()
        if talk.has_failed and not sys.stdin.isatty():
            raise typer.Exit(FAILED)
