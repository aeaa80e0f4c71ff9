"""Does the likeliest label come out, whatever the model likes to say in general?"""

from __future__ import annotations

import math

import pytest

from fsm_agent.cli.demo.calibration import calibrated, label_scores
from fsm_agent.messages.message import Message
from fsm_agent.messages.reply import Reply, TokenLogprob


def reply(*alternatives, token="The", logprob=-0.5):
    return Reply(message=Message.of("assistant", token), logprobs=(TokenLogprob(token, logprob, tuple(alternatives)),))


class TestLabelScores:
    def test_a_label_gets_its_likeliest_beginning(self):
        said = reply((" Pos", -2.0), ("positive", -3.0), ("NEG", -1.0), ("negation", -0.1), token="The")
        assert label_scores(said, ("positive", "negative")) == {"positive": -2.0, "negative": -1.0}

    def test_the_token_that_was_said_counts_too(self):
        assert label_scores(reply(("no", -4.0), token=" Yes", logprob=-0.1), ("yes", "no")) == {"yes": -0.1, "no": -4.0}

    def test_a_label_that_is_not_there_gets_the_smallest(self):
        assert label_scores(reply(("yes", -1.0), ("maybe", -7.0)), ("yes", "no"))["no"] == -7.0

    def test_an_empty_token_begins_no_label(self):
        assert label_scores(reply(("", -0.1), (" ", -0.2), ("yes", -1.0), ("x", -9.0)), ("yes", "no")) == {
            "yes": -1.0,
            "no": -9.0,
        }


class TestCalibrated:
    def test_a_general_liking_is_taken_out(self):
        scores = [{"a": math.log(p), "b": math.log(q)} for p, q in [(0.8, 0.1), (0.6, 0.3)]]
        assert [label for label, _ in calibrated(scores)] == ["a", "b"]

    def test_the_probability_is_of_the_odds(self):
        scores = [{"a": math.log(p), "b": math.log(q)} for p, q in [(0.8, 0.1), (0.6, 0.3)]]
        ((label, probability), _) = calibrated(scores)
        odds_a, odds_b = 0.8 / 0.7, 0.1 / 0.2
        assert (label, probability) == ("a", pytest.approx(odds_a / (odds_a + odds_b)))

    def test_one_text_alone_tells_nothing(self):
        ((_, probability),) = calibrated([{"a": -1.0, "b": -5.0}])
        assert probability == pytest.approx(0.5)
