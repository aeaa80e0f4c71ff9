"""Is each kind of question answered from its form, and is a mistake shown next to its field?"""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
from support.inspected_runs import desk, fill, forecaster, letters, said, shop
from support.inspector_pages import Markup, Pages
from support.kept_runs import OWN_CLOCK

from fsm_agent import Agent, CallFailed, Function
from fsm_agent.call import Returned
from fsm_agent.flows import Flow, FlowSuspended, end, wait
from fsm_agent.store import MemoryStore, Runs, SqliteStore
from fsm_agent.testing import Script, function_call
from fsm_agent.web import inspector_app


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "runs.db"
    fill(SqliteStore(path, clock=OWN_CLOCK)).close()
    return path


@pytest.fixture
def runs(filled: Path, tmp_path: Path) -> Any:
    with closing(Runs(copyfile(filled, tmp_path / "runs.db"))) as copied:
        yield copied


@pytest.fixture
def pages(runs: Runs) -> Pages:
    return Pages(inspector_app(runs, user=lambda scope: "ann"))


def posted(runs: Runs, run: str) -> Any:
    """The only post of a run, as an outcome in JSON without its time."""
    (post,) = runs.store.load(run).signals
    assert post.by == "ann"
    outcome = json.loads(post.body)["outcome"]
    assert outcome.pop("at_s") > 0
    return post.key, outcome


class TestApprovals:
    def test_approve(self, pages, runs):
        assert pages.do("answer", "order-22", key="ask:4.0", kind="approved").status_code == 303
        assert posted(runs, "order-22") == ("ask:4.0", {"kind": "approved"})
        page = pages.page("/run", id="order-22")
        assert "ann has answered" in " ".join(page.text.split())
        assert not page.all("button", value="approved")
        again = pages.do("answer", "order-22", key="ask:4.0", kind="denied")
        assert again.status_code == 409
        assert "ann" in again.text

    def test_deny_with_a_reason(self, pages, runs):
        pages.do("answer", "order-22", key="ask:4.0", kind="denied", reason=" not before Monday ")
        assert posted(runs, "order-22") == ("ask:4.0", {"kind": "denied", "reason": "not before Monday"})

    def test_arguments_as_they_were_are_an_approval(self, pages, runs):
        names = pages.fields("order-22", "ask:4.0")
        given = {names["order"]: "A-17", names["amount"]: "19.5", names["reason"]: "The parcel was lost"}
        pages.do("answer", "order-22", key="ask:4.0", kind="approved", **given)
        assert posted(runs, "order-22")[1] == {"kind": "approved"}

    def test_other_arguments_are_a_modification(self, pages, runs):
        names = pages.fields("order-22", "ask:4.0")
        given = {names["order"]: "A-17", names["amount"]: "10", names["reason"]: "half"}
        pages.do("answer", "order-22", key="ask:4.0", kind="approved", **given)
        outcome = posted(runs, "order-22")[1]
        assert json.loads(outcome["arguments_json"]) == {"order": "A-17", "amount": 10, "reason": "half"}
        agent = shop(runs, said("It is paid."))
        assert agent.runs.resume("order-22").function_calls[-1].result == "10.00 EUR for A-17 are on their way"

    def test_wrong_arguments_are_told_beside_their_field(self, pages, runs):
        names = pages.fields("order-22", "ask:4.0")
        typed = {names["order"]: "", names["amount"]: "much", names["reason"]: "<b>why</b>"}
        answer = pages.do("answer", "order-22", key="ask:4.0", kind="approved", **typed)
        assert answer.status_code == 422
        page = Markup(answer.text)
        page.assert_harmless()
        (amount,) = page.all("input", name=names["amount"])
        assert (amount["value"], amount["aria-invalid"]) == ("much", "true")
        assert page.all("input", name=names["reason"])[0]["value"] == "<b>why</b>"  # nothing that was typed is lost
        assert "number: " in page.text
        assert not runs.store.load("order-22").signals

    def test_of_an_agent_inside(self, pages, runs):
        pages.do("answer", "desk-3", key="run:1.0/ask:3.0", kind="approved")
        assert posted(runs, "desk-3")[0] == "run:1.0/ask:3.0"


class TestAnswersOfFlows:
    def test_each_type_has_its_fields(self, pages):
        page = pages.page("/run", id="letter-9")
        assert [one["value"] for one in page.all("input", name="type")] == ["Approve", "Change"]
        assert set(pages.fields("letter-9", "answer:review#1")) == {"by", "wish", "how_often", "is_urgent"}

    def test_one_of_several_types(self, pages, runs):
        names = pages.fields("letter-9", "answer:review#1")
        wish = {names["wish"]: "shorter", names["how_often"]: "3", names["is_urgent"]: "true"}
        pages.do("answer", "letter-9", key="answer:review#1", kind="returned", type="Change", **wish)
        assert json.loads(posted(runs, "letter-9")[1]["text"]) == [
            "Change",
            {"wish": "shorter", "how_often": 3, "is_urgent": True},
        ]
        with pytest.raises(FlowSuspended):
            letters(runs).runs.resume("letter-9")
        assert letters(runs).runs.at("letter-9").data.wish == "shorter"

    def test_and_the_next_with_a_number(self, pages, runs):
        names = pages.fields("letter-9", "answer:review#1")
        pages.do("answer", "letter-9", key="answer:review#1", kind="returned", type="Approve", **{names["by"]: "ann"})
        with pytest.raises(FlowSuspended):
            letters(runs).runs.resume("letter-9")
        key = runs.only_question("letter-9")
        (name,) = pages.fields("letter-9", key).values()
        for wrong in ("", "many", "1.5", "true"):
            answer = pages.do("answer", "letter-9", key=key, kind="returned", **{name: wrong})
            assert answer.status_code == 422, wrong
        pages.do("answer", "letter-9", key=key, kind="returned", **{name: "2"})
        assert letters(runs).runs.resume("letter-9").state == "sent"
        entries = [json.loads(line) for line in [*runs.export("letter-9")][1:]]
        assert [entry["by"] for entry in entries if entry["key"].startswith("answer:")] == ["ann"] * 2

    def test_what_is_missing_is_told(self, pages):
        answer = pages.do("answer", "letter-9", key="answer:review#1", kind="returned", type="Change")
        assert answer.status_code == 422
        assert "expected a value" in answer.text
        nothing = pages.do("answer", "letter-9", key="answer:review#1", kind="returned", type="Refuse")
        assert nothing.status_code == 422
        assert "expected the type" in nothing.text


class TestDoubtAndStuck:
    @pytest.mark.parametrize(
        ("fields", "right"),
        [
            ({"kind": "returned", "v": "it is paid"}, {"kind": "returned", "text": "it is paid"}),
            ({"kind": "function_failed", "reason": "no money"}, {"kind": "function_failed", "text": "no money"}),
            ({"kind": "run_again"}, {"kind": "run_again"}),
        ],
    )
    def test_doubt(self, pages, runs, fields, right):
        assert pages.do("answer", "rent-11", key="reconcile:1.0", **fields).status_code == 303
        assert posted(runs, "rent-11") == ("reconcile:1.0", right)

    def test_stuck(self, pages, runs):
        pages.do("answer", "note-1", key="stuck", kind="run_again")
        assert [post.key for post in runs.store.load("note-1").signals][-1] == "stuck"

    def test_a_stuck_run_is_cancelled(self, pages, runs):
        assert pages.do("answer", "note-1", key="stuck", kind="cancelled", reason="old").status_code == 303

    def test_an_answer_of_another_kind_is_refused(self, pages, runs):
        for key, run, kind in (("ask:4.0", "order-22", "run_again"), ("reconcile:1.0", "rent-11", "approved")):
            answer = pages.do("answer", run, key=key, kind=kind)
            assert answer.status_code == 422
            assert "expected " in answer.text
            assert not runs.store.load(run).signals

    def test_a_question_that_is_gone_is_told(self, pages):
        answer = pages.do("answer", "order-22", key="ask:9.9", kind="approved")
        assert answer.status_code == 409
        assert "no longer asks" in answer.text
        assert pages.do("answer", "order-17", key="ask:4.0", kind="approved").status_code == 409


class TestOtherActs:
    def test_cancel(self, pages, runs):
        pages.do("cancel", "desk-3", reason="a duplicate")
        with pytest.raises(CallFailed, match="a duplicate"):
            desk(runs).runs.resume("desk-3")

    def test_retry(self, pages, runs):
        assert pages.do("retry", "degrees-paris").status_code == 303
        assert forecaster(runs, "12").runs.resume("degrees-paris").output == 12
        answer = pages.do("retry", "order-17")
        assert answer.status_code == 409
        assert "has not failed" in answer.text or "Completed" in answer.text

    def test_fork_without_code(self, pages, runs):
        answer = pages.do("fork", "order-17", at="4", name="order-17b")
        assert answer.headers["location"] == "/run?id=order-17b"
        header = json.loads(next(iter(runs.export("order-17b"))))
        assert (header["forked"], header["forked_by"]) == (["order-17", 4], "ann")
        assert "after entry 4" in pages.page("/run", id="order-17b").text

    def test_fork_with_code_asks_what_was_asked(self, runs):
        pages = Pages(inspector_app(runs, agents=[shop(runs)]))
        pages.do("fork", "order-17", at="4", name="order-17c")
        assert [question.key for question in runs.store.get("order-17c").waits] == ["ask:4.0"]

    @pytest.mark.parametrize("fields", [{"at": "99", "name": "f"}, {"at": "x", "name": "f"}, {"at": "1", "name": ""},
                                        {"at": "1", "name": "desk-3"}, {"name": "f"},
                                        {"at": "9" * 5000, "name": "f"}])  # fmt: skip
    def test_a_fork_of_nothing_is_told(self, pages, runs, fields):
        assert pages.do("fork", "order-17", **fields).status_code == 409
        assert len(runs.store.list()) == 11

    def test_delete_takes_the_name(self, pages, runs):
        assert pages.do("delete", "degrees-rome", confirm="degrees").status_code == 409
        assert runs.store.get("degrees-rome")
        assert pages.do("delete", "degrees-rome", confirm="degrees-rome").headers["location"] == "/"
        assert pages.get("/run", id="degrees-rome").status_code == 404

    def test_a_turn_of_a_conversation_stays(self, pages, runs):
        name = "customer-17:1-call-1"
        answer = pages.do("delete", name, confirm=name)
        assert answer.status_code == 409
        assert "customer-17" in answer.text
        assert runs.store.get(name)

    def test_a_run_that_is_not_there(self, pages):
        for act in ("answer", "cancel", "retry", "delete", "fork"):
            data = {"form": pages.form_token("order-17"), "id": "nobody", "confirm": "nobody", "at": "1", "name": "x"}
            answer = pages.request("POST", f"/do/{act}", data=data, headers={"origin": pages.origin})
            assert answer.status_code == 404


def test_a_function_without_a_callable_is_answered_as_text():
    runs = Runs(MemoryStore())
    outside = Function(name="measure", parameters={"type": "object", "properties": {}})
    agent = Agent(Script(function_call("measure"), "12 m."), functions=[outside], name="clerk", store=runs)
    with pytest.raises(Exception, match="measure"):
        agent.call("How high is it?", run_id="r")
    Pages(inspector_app(runs)).do("answer", "r", key=runs.only_question("r"), kind="returned", v='12 "m"')
    assert agent.runs.resume("r").function_calls[0].result == '12 "m"'


@dataclass(frozen=True)
class Accept:
    pass


@dataclass(frozen=True)
class Refuse:
    reason: str


@dataclass(frozen=True)
class Amend:
    wish: str
    times: int = 1


class TestTypesAsButtons:
    """Types with a field at most are buttons, so that a click on one answers."""

    @staticmethod
    def asking(*types: Any) -> Runs:
        runs = Runs(MemoryStore())

        @wait(*types)
        def pay(data: str) -> str:
            return f"Shall {data} be paid?"

        rows = [pay.done(end("over"), of=kind) for kind in types]
        with pytest.raises(FlowSuspended):
            Flow("f", str, start=pay, rows=rows, store=runs).call("it", run_id="r")
        return runs

    @pytest.mark.parametrize(
        ("fields", "right"),
        [({"type": "Accept"}, ["Accept", {}]), ({"type": "Refuse", "v1.0": "no"}, ["Refuse", {"reason": "no"}])],
    )
    def test_each_button_answers(self, fields, right):
        runs = self.asking(Accept, Refuse)
        pages = Pages(inspector_app(runs, user=lambda scope: "ann"))
        page = pages.page("/run", id="r")
        assert [button["value"] for button in page.all("button", name="type")] == ["Accept", "Refuse"]
        assert not page.all("input", type="radio")
        (kind,) = page.all("input", name="kind", type="hidden")
        key = runs.only_question("r")
        assert pages.do("answer", "r", key=key, kind=kind["value"], **fields).status_code == 303
        assert json.loads(posted(runs, "r")[1]["text"]) == right

    def test_what_is_missing_is_told_beside_its_field(self):
        runs = self.asking(Accept, Refuse)
        pages = Pages(inspector_app(runs))
        answer = pages.do("answer", "r", key=runs.only_question("r"), kind="returned", type="Refuse")
        assert answer.status_code == 422
        assert Markup(answer.text).all("input", name="v1.0", aria_invalid="true")

    def test_a_type_with_more_fields_is_chosen_first(self):
        page = Pages(inspector_app(self.asking(Accept, Amend))).page("/run", id="r")
        assert [one["value"] for one in page.all("input", name="type", type="radio")] == ["Accept", "Amend"]


def test_enter_in_a_field_presses_no_button_where_there_are_several(pages, runs):
    """A browser presses the first button, or none if that is disabled."""
    pressed = {}
    for run in ("order-22", "rent-11", "letter-9"):
        html = pages.get("/run", id=run).text
        form = html.partition('<form class="ask')[2].partition("</form>")[0]
        pressed[run] = re.search(r"<button[^>]*>", form)[0]  # type: ignore[index]
    assert all("disabled" in button for button in pressed.values()), pressed
    with pytest.raises(FlowSuspended):
        letters(runs).runs.resume("letter-9", {"answer:review#1": Returned(text='["Approve", {"by": "ann"}]')})
    only = pages.get("/run", id="letter-9").text.partition('<form class="ask')[2].partition("</form>")[0]
    assert "disabled" not in re.search(r"<button[^>]*>", only)[0]  # type: ignore[index]


# Forms by schema
