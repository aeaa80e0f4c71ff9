"""Does `fsm-agent bench` measure what it says, and say what it measured?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.stub_server import StubServer
from typer.testing import CliRunner

import fsm_agent
from fsm_agent.cli.bench.bench import (
    SIZES,
    Cost,
    RequestTiming,
    Spread,
    Waiting,
    _import_s,
    ask,
    exponent,
    measure,
    measure_waiting,
)
from fsm_agent.cli.bench.screen import Report, as_json, picture
from fsm_agent.cli.bench.works import Order, Work, order_json, turns, works
from fsm_agent.cli.commands import app
from fsm_agent.cli.terminal import Screen
from fsm_agent.errors import CallFailed
from fsm_agent.lifecycle.effects import Settings
from fsm_agent.messages.reply import Reply, Usage
from fsm_agent.testing import Pieces, Script


def run(*arguments: str):
    return CliRunner().invoke(app, ["bench", *arguments], prog_name="fsm-agent", catch_exceptions=False)


def saying(answer: Any, tally: list[Any] | None = None) -> Callable[[], Awaitable[Any]]:
    async def say() -> Any:
        if tally is not None:
            tally.append(answer)
        return answer

    return say


class TestMeasuring:
    def test_both_ways_come_to_the_same_answer(self):
        async def answers(work: Work) -> tuple[Any, Any]:
            return await work.ours(), await work.by_hand()

        for name, work in works().items():
            for _ in range(2):  # the model starts over
                ours, by_hand = asyncio.run(answers(work))
                assert ours == by_hand, name
                assert type(ours) is type(by_hand)
                assert ours

    def test_what_differs_is_not_measured(self):
        work = Work(name="odd", ours=saying("a"), by_hand=saying("b"))
        with pytest.raises(RuntimeError, match="odd: the agent said 'a', and the loop by hand 'b'"):
            measure([work], runs=1)

    def test_batches_take_turns(self):
        order: list[Any] = []
        works = [Work(name=f"{n}", ours=saying(n, order), by_hand=saying(float(n), order)) for n in (1, 2)]
        costs = measure(works, runs=3, batch_s=0)  # so that one piece of work is a batch
        taken = [type(answer) for answer in order[-12:]]
        assert taken == [int, float] * 6
        assert order[-4:] == [1, 1, 2, 2]
        assert [(cost.name, len(cost.ours_s), len(cost.by_hand_s)) for cost in costs] == [("1", 3, 3), ("2", 3, 3)]

    def test_a_cost_is_that_of_one_unit(self):
        async def spend() -> None:
            sum(range(100_000))

        whole, part = measure(
            [Work(name="whole", ours=spend, by_hand=spend), Work(name="part", ours=spend, by_hand=spend, units=1000)],
            runs=3,
        )
        assert min(part.ours_s) < min(whole.ours_s) / 100
        assert min(part.by_hand_s) < min(whole.by_hand_s) / 100

    def test_the_order_of_the_typed_work_is_one(self):
        assert len(Order.model_validate_json(order_json()).items) == 20
        with pytest.raises(ValueError, match="quantity"):
            Order.model_validate_json(order_json("several"))

    def test_no_two_calls_of_a_long_dialog_are_alike(self):
        asked = [arguments for turn in turns(20, 3) for arguments in turn.calls]
        assert len(set(asked)) == len(asked) == 60

    def test_calls_that_wait_hold_something(self):
        held = measure_waiting(count=5)
        assert held.ours > held.by_hand > 100
        assert held.snapshot > 100

    def test_modules_of_the_working_directory_are_not_measured(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "json.py").write_text("raise ImportError('this is not the one')")
        assert _import_s("import json") > 0

    def test_a_file_that_cannot_be_written_is_told_before(self):
        ended = run("--json", "no/such/folder.json")
        assert ended.exit_code == 2
        assert "there is no folder 'no/such'" in ended.stderr
        assert "measuring" not in ended.stderr


class TestNumbers:
    def test_spread(self):
        assert Spread.of([3.0]) == Spread(3, 3, 3)
        assert Spread.of([5.0, 1.0, 2.0, 3.0, 4.0]) == Spread(2, 3, 4)

    def test_ratios_are_of_samples_that_were_taken_beside_each_other(self):
        assert Cost("x", [2.0, 9.0], [1.0, 3.0]).ratios == [2.0, 3.0]

    @pytest.mark.parametrize("power", [0, 1, 2])
    def test_exponent(self, power):
        assert exponent(SIZES, [3.0 * n**power for n in SIZES]) == pytest.approx(power)


class TestAsking:
    def test_each_request_is_timed(self):
        model = Script(Pieces("a ", "b ", "c"), Reply(message=Reply.of("d").message, usage=Usage(output_tokens=7)))
        with model:
            asked = [*ask(model, Settings(temperature=0.5), 2)]
        assert [one.output_tokens for one in asked] == [3, 7]  # as reported; else, the deltas
        assert all(0 < one.first_delta_s <= one.took_s for one in asked if one.first_delta_s is not None)
        assert all(one.first_delta_s is not None for one in asked)
        assert {request.settings.temperature for request in model.requests} == {0.5}

    def test_no_answer_is_no_figure(self):
        with pytest.raises(CallFailed):
            [*ask(Script(*[""] * 4), Settings(), 1)]

    def test_tokens_per_second(self):
        assert RequestTiming(None, 2.0, 30).tokens_per_s == 15


REPORT = Report(
    machine={"at": "2026-11-22T00:00:00+00:00", "machine": "a machine", "system": "s", "python": "p", "httpx": "0.28"},
    runs=3,
    costs=[Cost("one turn", [2e-5, 3e-5, 4e-5], [1e-6, 1e-6, 2e-6])],
    growth=[Cost(f"{n} rounds", [n * 1e-4], [n * n * 1e-6]) for n in SIZES],
    waiting=Waiting(2048.0, 1024.0, 512),
    importing=Cost("import", [0.5], [0.1]),
    model="acme:m",
    timings=[RequestTiming(0.25, 1.5, 30), RequestTiming(None, 1.5, 30)],
)


class TestScreen:
    def test_medians_quartiles_and_units(self, capsys):
        with Screen(quiet=True) as screen:
            screen.show(picture(REPORT))
        lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
        for line in (
            "a machine · s · p · 2026-11-22T00:00:00+00:00",
            "httpx 0.28",
            "one turn 30.0 µs (25.0-35.0) 1.00 µs 20.0 (20.0-25.0)",
            "200 rounds 20.0 ms 40.0 ms 0.50",
            "import 500 ms 100 ms 5.00",
            "50 to 400 rounds n^1.00 n^2.00",
            "a call that waits 2.00 KiB 1.00 KiB 2.00",
            "its snapshot 0.50 KiB",
            "Requests to acme:m",
            "time to first delta 250 ms",
            "time of a request 1.50 s (1.50-1.50)",
            "output tokens per second 20.0 (20.0-20.0)",
        ):
            assert line in lines

    def test_json_has_every_sample(self):
        said = json.loads(json.dumps(as_json(REPORT)))
        assert said["costs"] == [{"name": "one turn", "ours_s": [2e-5, 3e-5, 4e-5], "by_hand_s": [1e-6, 1e-6, 2e-6]}]
        assert said["exponent"] == {"ours": pytest.approx(1), "by_hand": pytest.approx(2)}
        assert said["timings"][1] == {"first_delta_s": None, "took_s": 1.5, "output_tokens": 30}
        assert said["waiting"] == {"ours": 2048.0, "by_hand": 1024.0, "snapshot": 512}


class TestCommand:
    def test_it_measures_and_writes(self, tmp_path):
        file = tmp_path / "costs.json"
        with StubServer(["Mercury is hot."] * 2) as stub:
            model = ("--model", "openai-compatible:stub", "--base-url", stub.base_url, "--requests", "2")
            ended = run("--runs", "1", "--json", str(file), *model)
        assert ended.exit_code == 0, ended.stderr
        said = json.loads(file.read_text())
        assert [cost["name"] for cost in said["costs"]] == [*works()]
        assert [cost["name"] for cost in said["growth"]] == [f"{n} rounds" for n in SIZES]
        assert all(len(cost["ours_s"]) == len(cost["by_hand_s"]) == 1 for cost in said["costs"])
        assert said["machine"]["fsm-agent"] == fsm_agent.__version__
        assert [one["output_tokens"] for one in said["timings"]] == [3, 3]
        for shown in (*works(), "200 rounds", "import", "its snapshot", "Requests to openai-compatible:stub"):
            assert shown in ended.stdout

    def test_a_model_that_cannot_be_asked_is_told_before_anything_is_measured(self):
        ended = run("--model", "openai-compatible:stub")
        assert (ended.exit_code, ended.stdout) == (1, "")
        assert "has no address" in ended.stderr
        assert "measuring" not in ended.stderr

    def test_nothing_less_than_once(self):
        assert run("--runs", "0").exit_code == 2
        assert run("--requests", "0").exit_code == 2
