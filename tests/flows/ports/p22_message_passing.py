"""Temporal, samples-python/message_passing/introduction (2025): a greeting, with queries, a signal and two updates.

Its authors mean: `set_language` changes the language at once if it is known; one that is not is asked of a service,
which may take its time; `approve` releases the greeting, but not before an update that is under way has ended; and
`get_language` reads the state without changing it.  A signal and an update are here two types of one `wait`, which
takes an approval that comes early; a query is `flow.runs.at`, which drives nothing.
"""

from dataclasses import dataclass, replace

from harness import Day, Port, log

from fsm_agent import Context
from fsm_agent.flows import Flow, end, execute, pause, wait

SERVICE = {"french": "Bonjour, monde"}


@dataclass(frozen=True)
class SetLanguage:
    language: str


@dataclass(frozen=True)
class ApproveBy:
    name: str


@dataclass(frozen=True)
class Greeting:
    language: str = "english"
    wanted: str = ""
    known: tuple[tuple[str, str], ...] = (("english", "Hello, world"), ("chinese", "你好"))
    approver: str = ""
    text: str = ""


@wait(SetLanguage, ApproveBy, early=True)
def messages(g: Greeting) -> str:
    return f"{g.language}; known: {[name for name, _ in g.known]}"


lookup_delay = pause("lookup_delay", 3600)  # their service is remote


@execute
def looking_up(g: Greeting, context: Context[str]) -> str:
    log(context, f"look up {g.wanted}")
    return SERVICE.get(g.wanted, "")


def is_known(g: Greeting, a: SetLanguage) -> bool:
    return a.language in dict(g.known)


def is_found(g: Greeting, text: str) -> bool:
    return text != ""


def learn(g: Greeting, text: str) -> Greeting:
    return replace(g, language=g.wanted, known=(*g.known, (g.wanted, text)))


def release(g: Greeting, a: ApproveBy) -> Greeting:
    return replace(g, approver=a.name, text=dict(g.known)[g.language])


FLOW = Flow(
    "message_passing",
    Greeting,
    start=messages,
    rows=[
        messages.done(messages, of=SetLanguage, when=is_known, do=lambda g, a: replace(g, language=a.language)),
        messages.done(lookup_delay, of=SetLanguage, do=lambda g, a: replace(g, wanted=a.language)),
        messages.done(end("released"), of=ApproveBy, do=release),
        lookup_delay.elapsed(looking_up),
        looking_up.done(messages, when=is_found, do=learn),
        looking_up.done(messages),
    ],
)


def check(g, log):
    assert (g.text, g.approver) == ("Bonjour, monde", "ann"), "the approval came before the language was there"
    assert log == ["look up klingon", "look up french"]


PORT = Port(
    FLOW,
    Greeting(),
    [
        Day("messages"),
        Day("messages", {messages: SetLanguage("chinese")}),
        Day("lookup_delay", {messages: SetLanguage("klingon")}),
        Day("messages", after_s=3600),
        Day("lookup_delay", {messages: SetLanguage("french")}, after_s=3600),
        Day("lookup_delay", {messages: ApproveBy("ann")}, after_s=3700),
        Day("released", after_s=7200),
    ],
    check,
    gives={messages: [SetLanguage("chinese"), SetLanguage("french"), ApproveBy("a")], looking_up: ["Bonjour", ""]},
)
