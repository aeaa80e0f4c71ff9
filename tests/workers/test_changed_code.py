"""What happens to a run whose code has changed, or cannot continue it?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from support import shop_agent as shop
from support.workers import create, modes, rows, run

from fsm_agent import Agent, Prompt, function
from fsm_agent.call import Approved, Cancelled, Returned, RunAgain
from fsm_agent.errors import ReplayError
from fsm_agent.flows import Flow, FlowSuspended, end, wait
from fsm_agent.store import Runs, Suspension
from fsm_agent.testing import Script
from fsm_agent.workers import Worker


@dataclass(frozen=True)
class Order:
    is_right: bool = False


def orders(store, name="review"):
    """A flow that waits for a person in a state of this name."""

    def shown(o: Order) -> str:
        return "Is it right?"

    shown.__name__ = name
    review = wait(bool)(shown)
    rows = [review.done(end("over"), do=lambda o, is_right: Order(is_right))]
    return Flow("orders", Order, start=review, rows=rows, store=store)


class TestStuck:
    """A deployment that cannot go on with a run, and one that can."""

    @pytest.fixture
    def stuck(self, store):
        """Return a waiting run that code without its present state has tried to drive, as it was before."""
        with pytest.raises(FlowSuspended):
            orders(store).call(Order(), run_id="one")
        before = rows(store)["one"]
        Runs(store).answer("one", {"": Approved()})  # wakes it, and answers nothing
        assert Worker([orders(store, "approval")], store).run(once=True) == 1
        return before

    @pytest.mark.parametrize("is_answered", [False, True])
    def test_the_same_code_leaves_it_alone_and_good_code_takes_it_up(self, store, stuck, is_answered):
        if is_answered:  # meanwhile
            Runs(store).answer("one", {stuck.waits[0].key: Returned(text="true")}, by="ann")
        assert Worker([orders(store, "approval")], store).run(once=True) == 0
        assert Worker([orders(store)], store).run(once=True) == 1
        row = rows(store)["one"]
        if is_answered:
            assert (row.state, row.is_ended) == ("over", True)
            assert orders(store).call(Order(), run_id="one").output == Order(is_right=True)
        else:
            assert (row.state, row.waits, row.due_s) == (stuck.state, stuck.waits, None)

    def test_the_log_tells_it_in_one_line(self, stuck, caplog):
        """The run, the state that is gone, and the question that a person may answer; the code at fault is no trace."""
        (record,) = [record for record in caplog.get_records("setup") if record.levelname == "WARNING"]
        assert record.exc_info is None
        assert "\n" not in record.getMessage()
        assert all(name in record.getMessage() for name in ("one", "'orders'", "'review'", "'stuck'"))

    def test_other_bad_code_tries_it_once(self, store, stuck):
        other = Worker([orders(store, "checking")], store)
        assert other.run(once=True) == 1
        other._looks_at_s = 0.0
        assert other.run(once=True) == 0
        assert [question.key for question in rows(store)["one"].waits] == [stuck.waits[0].key, "stuck"]

    def test_it_is_found_behind_stuck_runs_that_stay_so_and_others_that_ask(self, store, stuck, monkeypatch):
        monkeypatch.setattr("fsm_agent.workers.worker.STUCK_AT_A_TIME", 2)
        for name in ("two", "three", "four", "five"):
            with pytest.raises(FlowSuspended):
                orders(store, "checking").call(Order(), run_id=name)
            Runs(store).answer(name, {"": Approved()})
        assert Worker([orders(store, "approval")], store).run(once=True) == 4
        for name in ("six", "seven", "eight"):
            with pytest.raises(FlowSuspended):
                orders(store).call(Order(), run_id=name)
        assert Worker([orders(store)], store).run(once=True) == 5
        assert rows(store)["one"].state == stuck.state

    def test_it_is_tried_again_when_its_deps_can_be_made_or_it_has_no_holder(self, store, stuck):
        """What hindered the first look has passed."""
        away = [True]

        def deps(name, extra, user):
            if away:
                raise OSError("the database is away")
            return

        worker = Worker([orders(store)], store, deps=deps)
        assert worker.run(once=True) == 0
        away.clear()
        assert worker.run(once=True) == 0, "each look reads all stuck runs, so the next one is made later"
        worker._looks_at_s = 0.0
        lease = store.claim("another", for_s=60, run="one")
        assert worker.run(once=True) == 0
        worker.runs.claims.give_back(lease, store.load("one"))
        held = store.claim("another", for_s=60, run="one")
        store.append(held, held.n, (), Suspension(state="Stuck", questions=store.get("one").waits, wakes_on="stuck"))
        worker._looks_at_s = 0.0
        assert worker.run(once=True) == 1
        assert rows(store)["one"].state == stuck.state

    @pytest.mark.parametrize("can_be_driven", [True, False])
    def test_one_that_is_cancelled_while_it_is_looked_for_stays_so(self, store, stuck, can_be_driven):
        """Also if it cannot be driven."""
        bad, runs = Worker([orders(store, "approval")], store), Runs(store)
        claim = runs.claims.claim

        def claims(run):
            runs.cancel(run)
            assert bad.run(once=True) == 1
            return claim(run)

        runs.claims.claim = claims
        worker = Worker([orders(store)], runs)
        if can_be_driven:
            assert worker.release_stuck()
        else:
            worker._give_up(worker._claim_stuck(), OSError("the deps are away"))
        row = rows(store)["one"]
        assert (row.is_ended, row.is_failed, row.due_s, row.holder) == (True, True, None, None)

    def test_an_answer_to_the_question_about_it_counts_for_the_same_code(self, store, stuck):
        bad = Worker([orders(store, "approval")], store)
        Runs(store).answer("one", {"stuck": RunAgain()})
        assert bad.run(once=True) == 1
        assert [question.key for question in rows(store)["one"].waits] == [stuck.waits[0].key, "stuck"]
        Runs(store).answer("one", {"stuck": Cancelled(reason="never mind")})
        assert bad.run(once=True) == 1
        assert rows(store)["one"].is_ended
        assert rows(store)["one"].waits == ()


@function
def weigh(item: str) -> float:
    """Weigh an item."""
    return 1.5


def other_shop(functions=(shop.price, shop.refund, weigh), **options) -> Agent:
    """The shop under other code."""
    return Agent(Script(*[shop.turn] * 50), functions=[*functions], name="shop", **options)


def left_before_its_function(store) -> None:
    """Begin a run whose holder dies when the model has just asked for a function."""

    class Dies:
        def on_stepped(self, event):
            if event.trigger == "functions_asked":
                raise LookupError("dies")

    create(store, shop.shop(), "one")
    Worker([shop.shop(hooks=[Dies()])], store).advance()
    Runs(store).requeue("one")
    assert rows(store)["one"].n == 2


class TestChangedCode:
    """A run that waits for a person, answered when the code is another."""

    @pytest.fixture(autouse=True)
    def waiting(self, store):
        agent = shop.shop()
        create(store, agent, "one")
        Worker([agent], store).run(once=True)
        Runs(store).answer("one", {"ask:3.0": Approved()}, by="ann")

    def test_report_goes_on(self, store, caplog):
        assert Worker([other_shop()], store).run(once=True) == 1
        assert rows(store)["one"].state == "Completed"
        assert "prompt" in caplog.text

    def test_rest_asks_first_and_asks_once(self, store):
        worker = Worker([other_shop()], store, on_change="rest")
        assert worker.run(once=True) == 1
        row = rows(store)["one"]
        assert (row.state, [question.key for question in row.waits]) == ("Stuck", ["stuck"])
        assert worker.run(once=True) == 0
        Runs(store).answer("one", {"stuck": RunAgain()}, by="ann")
        assert worker.run(once=True) == 1
        assert rows(store)["one"].state == "Completed"

    def test_rest_takes_a_run_that_rested_under_the_code_that_a_person_has_accepted(self, store):
        create(store, shop.shop(), "two")
        Worker([shop.shop()], store).run(once=True)  # of it "one" ends
        worker = Worker([other_shop()], store, on_change="rest")
        create(store, shop.shop(), "three")
        assert worker.run(once=True) == 1  # "three", which was begun by other code
        Runs(store).answer("three", {"stuck": RunAgain()})
        assert worker.run(once=True) == 1
        assert rows(store)["three"].state == "ToolInterrupt"
        Runs(store).answer("three", {"ask:3.0": Approved()})
        assert worker.run(once=True) == 1
        assert rows(store)["three"].state == "Completed"

    def test_rest_leaves_it_to_the_code_that_it_had(self, store):
        assert Worker([other_shop()], store, on_change="rest").run(once=True) == 1
        assert Worker([shop.shop()], store, on_change="rest").run(once=True) == 1
        assert rows(store)["one"].state == "Completed"

    @pytest.mark.parametrize("functions", [[shop.price], [shop.price, shop.refund]])
    def test_the_same_code_is_no_change(self, store, functions):
        """And a function that is missing is asked about under each policy."""
        worker = Worker([other_shop(functions)], store, on_change="rest")
        assert worker.run(once=True) == 1
        assert rows(store)["one"].state == ("Completed" if len(functions) == 2 else "Stuck")

    @modes
    def test_stop_ends_the_worker_and_leaves_the_run_to_others(self, store, mode):
        worker = Worker([other_shop([shop.price])], store, on_change="stop")
        with pytest.raises(ReplayError, match="refund"):
            run(worker, mode)
        row = rows(store)["one"]
        assert (row.state, row.holder, row.waits) == ("ToolInterrupt", None, ())
        for _ in range(9):  # however many workers have other code, the run is not stuck for that
            with pytest.raises(ReplayError, match="refund"):
                worker.drive("one")
        assert Worker([shop.shop()], store).drive("one") is True
        assert rows(store)["one"].state == "Completed"

    def test_stop_at_any_change(self, store):
        with pytest.raises(ReplayError, match="fingerprint"):
            Worker([other_shop()], store, on_change="stop").run(once=True)


class TestVersionsSideBySide:
    """Each worker takes the runs that its own code began."""

    def test_each_leaves_those_of_the_other_alone(self, store):
        create(store, shop.shop(), "old")
        create(store, other_shop(), "new")
        old = Worker([shop.shop()], store, only_known=True)
        new = Worker([other_shop()], store, only_known=True)
        assert new.run(once=True) == 1
        assert rows(store)["old"].n == 0
        assert new.run(once=True) == 0
        assert asyncio.run(old.arun(tasks=2, once=True)) == 1
        Runs(store).answer("old", {"ask:3.0": Approved()})
        assert (new.run(once=True), old.run(once=True)) == (0, 1)
        Runs(store).answer("new", {"ask:3.0": Approved()})
        assert (old.run(once=True), new.run(once=True)) == (0, 1)
        assert {row.state for row in rows(store).values()} == {"Completed"}

    def test_a_prompt_of_the_task_and_flows_are_known(self, store):
        prompt = Prompt("How many {{ things }}?", path="shop/count", output=int)
        agent = Agent(Script("7", "8"), name="counter")
        create(store, agent, "one", task=prompt(things="kettles"))
        assert Worker([agent], store, only_known=True).run(once=True) == 0
        assert Worker([agent], store, prompts=[prompt], only_known=True).run(once=True) == 1
        with pytest.raises(FlowSuspended):
            orders(store).call(Order(), run_id="flow")
        Runs(store).answer("flow", {"": Approved()})  # wakes it, and answers nothing
        assert Worker([orders(store, "approval")], store, only_known=True).run(once=True) == 0
        assert Worker([orders(store)], store, only_known=True).run(once=True) == 1

    def test_a_version_with_another_system_prompt_answers_under_that_of_the_run(self, store):
        asked = Script("Hi.", "Hi again.")
        old, new = (Agent(asked, name="desk", system=text, store=store) for text in ("Be terse.", "Be kind."))
        create(store, old, "one")
        old.conversation("ada").runs.submit("Hello", run_id="turn")
        assert Worker([new], store, only_known=True).run(once=True) == 2
        assert [request.messages[0].text for request in asked.requests] == ["Be terse."] * 2

    def test_a_stuck_run_of_other_code_is_left_alone(self, store):
        left_before_its_function(store)
        Worker([other_shop([shop.refund])], store).run(once=True)
        assert rows(store)["one"].state == "Stuck"
        assert Worker([other_shop()], store, only_known=True).run(once=True) == 0
        assert Worker([shop.shop()], store, only_known=True).run(once=True) == 1
        assert rows(store)["one"].state == "ToolInterrupt"


class TestMissingCode:
    def test_a_function_that_was_about_to_run_is_named(self, store, caplog):
        left_before_its_function(store)
        without = Worker([other_shop([shop.refund])], store)
        assert without.run(once=True) == 1
        (question,) = rows(store)["one"].waits
        assert "price" in question.about
        assert Worker([shop.shop()], store).run(once=True) == 1
        assert rows(store)["one"].state == "ToolInterrupt"

    def test_a_person_may_go_on_without_it(self, store):
        left_before_its_function(store)
        without = Worker([other_shop([shop.refund])], store)
        without.run(once=True)
        Runs(store).answer("one", {"stuck": RunAgain()})
        assert without.run(once=True) == 1
        assert rows(store)["one"].state == "ToolInterrupt"
