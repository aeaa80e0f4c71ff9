"""n8n, the common template "enrich, score and route leads" (2024: Webhook, HTTP Request, Merge, If, Switch, Slack).

Its authors mean: a lead that comes in is looked up in two services at once, whose results a Merge node joins; a score
sends it to sales, to a sequence of mails, or nowhere, and in the end every branch writes one line to the sheet.
Their Merge waits for both inputs, and an enrichment with "continue on fail" gives an empty item: here a `Default`.
"""

from dataclasses import dataclass, replace
from enum import Enum

from harness import Day, Port, agent, log

from fsm_agent import Context
from fsm_agent.flows import Flow, call, end, execute, gather, wait
from fsm_agent.functions import Default


@dataclass(frozen=True)
class Lead:
    mail: str = ""
    size: int = 0
    news: str = ""
    sent_to: str = "no one"


class Fit(Enum):
    HOT = "hot"
    WARM = "warm"
    COLD = "cold"


@wait(str)
def webhook(lead: Lead) -> str:
    return "POST /lead"


@execute
def looking_up(lead: Lead) -> int:
    return 500


@execute(on_error=Default(""))
def searching(lead: Lead) -> str:
    raise TimeoutError("the search of news is down")


enriching = gather("enriching", looking_up, searching)


@call(agent("scorer", Fit))
def scoring(lead: Lead) -> str:
    return f"How well does {lead.mail} fit? size {lead.size}, news {lead.news!r}"


@execute
def telling_sales(lead: Lead, context: Context[str]) -> str:
    return log(context, f"sales: {lead.mail}") and "sales"


@execute
def mailing(lead: Lead, context: Context[str]) -> str:
    return log(context, f"mail: {lead.mail}") and "mails"


@execute
def writing_down(lead: Lead, context: Context[str]) -> None:
    log(context, f"sheet: {lead.mail} {lead.sent_to}")


def keep_enriched(lead: Lead, found: tuple[int, str]) -> Lead:
    return replace(lead, size=found[0], news=found[1])


def keep_receiver(lead: Lead, name: str) -> Lead:
    return replace(lead, sent_to=name)


FLOW = Flow(
    "lead_routing",
    Lead,
    start=webhook,
    rows=[
        webhook.done(enriching, do=lambda lead, mail: replace(lead, mail=mail)),
        enriching.done(scoring, do=keep_enriched),
        scoring.done(telling_sales, of=Fit.HOT),
        scoring.done(mailing, of=Fit.WARM),
        scoring.done(writing_down, of=Fit.COLD),
        telling_sales.done(writing_down, do=keep_receiver),
        mailing.done(writing_down, do=keep_receiver),
        writing_down.done(end("routed")),
    ],
)


def scored(request):
    assert "size 500, news ''" in request.messages[-1].text, "what is down leaves its field empty"
    return '"hot"'


def check(lead, log):
    assert lead == Lead("ann@example.com", 500, "", "sales")
    assert log == ["sales: ann@example.com", "sheet: ann@example.com sales"]


PORT = Port(
    FLOW,
    Lead(),
    [Day("webhook"), Day("routed", {webhook: "ann@example.com"}, {scoring: [scored]})],
    check,
    gives={
        webhook: ["m"],
        enriching: [(1, "n")],
        scoring: [*Fit],
        telling_sales: ["sales"],
        mailing: ["mails"],
        writing_down: [None],
    },
)
