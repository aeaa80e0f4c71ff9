"""Does a long result stay within reach of the model, within bounds of time and space?"""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent import Agent
from fsm_agent.call import Returned
from fsm_agent.errors import UsageError
from fsm_agent.messages import FunctionCall, ResultCached
from fsm_agent.runtime import ResultCache, ResultPipeline
from fsm_agent.testing import function_call

LINES = [f"line {n}" for n in range(1, 301)]
TEXT = "\n".join(LINES) + "\n"


class Now:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


def filled(*texts: str, **options) -> ResultCache:
    cache = ResultCache(**options)
    for text in texts:
        cache.cacher("search", text)
    return cache


def asked(cache: ResultCache, operation: str, ref: str = "ref_0001", **arguments) -> str:
    """What the function returns for what a model wrote."""
    return cache.function.run(json.dumps({"operation": operation, "ref": ref, **arguments}))


class TestKeeping:
    def test_a_summary_stands_for_the_result(self):
        cache = ResultCache()
        pipeline = ResultPipeline(cacher=cache.cacher, inline_threshold=100)
        found = FunctionCall(name="search", arguments_json="{}", id="2.0")
        piped = asyncio.run(pipeline.aapply(found, Returned(text=TEXT), []))
        summary = (
            "[search returned 648 tokens in 300 lines, kept as ref_0001 for 30 minutes. "
            "Use result_cache to read it. It begins:]\n" + "\n".join(LINES[:20]) + "\n"
        )
        assert piped.outcome.text == summary
        assert piped.events == (ResultCached("2.0", "search", 648, (len(summary) + 3) // 4),)
        assert asked(cache, "read") + "\n" == TEXT
        assert "ref_0002" in cache.cacher("search", TEXT)

    def test_what_was_read_is_not_kept_again(self):
        assert ResultCache().cacher("result_cache", TEXT) is None

    @pytest.mark.parametrize("text", ["x" * 1_000_000])
    def test_a_summary_is_short(self, text):
        assert len(ResultCache().cacher("search", text)) < 4_400

    def test_it_may_have_no_preview(self):
        assert ResultCache(preview_lines=0, max_bytes=0).cacher("search", TEXT).endswith("It begins:]\n")

    @pytest.mark.parametrize(
        ("name", "value"), [("ttl_s", 0), ("ttl_s", float("nan")), ("max_bytes", -1), ("max_chars", 999)]
    )
    def test_nonsense_is_named(self, name, value):
        with pytest.raises(UsageError, match=name):
            ResultCache(**{name: value})


class TestBounds:
    def test_a_result_is_kept_for_half_an_hour(self):
        now = Now()
        cache = filled(TEXT, now=now)
        now.s += 1799.9
        cache.cacher("search", "second\n")
        assert asked(cache, "head", lines=1) == "line 1"
        now.s += 0.1
        with pytest.raises(LookupError, match=r"'ref_0001'.*ref_0002"):
            asked(cache, "head")
        now.s += 1800
        assert asked(cache, "stats", "") == "[nothing is kept]"
        with pytest.raises(LookupError, match="'ref_0002'"):
            asked(cache, "stats", "ref_0002")

    def test_the_oldest_goes_when_there_is_no_room(self):
        size = 99 + 8  # the text, and the place of its line
        cache = filled("a" * 98 + "\n", "b" * 98 + "\n", "c" * 98 + "\n", max_bytes=3 * size)
        assert asked(cache, "read", "ref_0001") == "a" * 98
        cache.cacher("search", "é" * 49 + "\n")
        with pytest.raises(LookupError, match="kept: ref_0002, ref_0003, ref_0004"):
            asked(cache, "read", "ref_0001")
        cache.cacher("search", "d" * 99 + "\n")  # one byte more
        with pytest.raises(LookupError, match=r"kept: ref_0004, ref_0005$"):
            asked(cache, "read", "ref_0001")
        cache.cacher("search", "e" * 98 + "\n")
        with pytest.raises(LookupError, match=r"kept: ref_0005, ref_0006$"):
            asked(cache, "read", "ref_0001")

    def test_what_is_larger_than_the_cache_drops_nothing(self):
        cache = filled(TEXT, max_bytes=10_000)
        summary = cache.cacher("search", "x" * 10_000)
        assert summary.startswith(
            "[search returned 2500 tokens in 50 lines, too much to be kept. Ask for less. It begins"
        )
        assert asked(cache, "head", lines=1) == "line 1"

    def test_lines_take_room_too(self):
        assert "kept as" not in ResultCache(max_bytes=8_999).cacher("search", "\n" * 1000)
        assert "kept as" in ResultCache(max_bytes=9_000).cacher("search", "\n" * 1000)

    def test_threads_get_references_of_their_own(self):
        cache, ready, said = ResultCache(max_bytes=30_000), threading.Barrier(8), []

        def keep(n: int) -> None:
            ready.wait(10)
            for _ in range(50):
                said.append(cache.cacher("search", f"{n}\n" * 100))
                asked(cache, "stats", "")

        threads = [threading.Thread(target=keep, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        refs = {summary.partition("kept as ")[2][:8] for summary in said}
        assert refs == {f"ref_{n:04d}" for n in range(1, 401)}
        assert len(asked(cache, "stats", "").splitlines()) == 30_000 // 1000


class TestReading:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ({"start": 2, "end": 4}, LINES[1:4]),
            ({"start": 299}, LINES[298:]),
            ({"end": 2}, LINES[:2]),
            ({"start": 300, "end": 999}, ["line 300", "[line 300 is the last]"]),
        ],
    )
    def test_lines_are_counted_from_1_and_the_last_is_included(self, arguments, expected):
        assert asked(filled(TEXT), "read", **arguments) == "\n".join(expected)

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            ({"start": 0}, "from 0"),
            ({"start": 301}, "from 301"),
            ({"start": 9, "end": 8}, "9 to 8"),
            ({"end": -1}, "1 to -1"),
            ({"ref": "ref_0009"}, "'ref_0009'"),
            ({"ref": ""}, "''"),
        ],
    )
    @pytest.mark.parametrize("operation", ["read", "grep"])
    def test_what_is_not_there_is_named(self, operation, arguments, named):
        with pytest.raises(LookupError, match=named):
            asked(filled(TEXT), operation, **{"ref": "ref_0001", "pattern": "x", **arguments})

    def test_head_and_tail(self):
        cache = filled(TEXT)
        assert asked(cache, "head") == "\n".join(LINES[:20])
        assert asked(cache, "tail") == "\n".join(LINES[-20:])
        assert asked(cache, "head", lines=2) == "line 1\nline 2"
        assert asked(cache, "tail", lines=2) == "line 299\nline 300"
        assert asked(cache, "tail", lines=0) == asked(cache, "head", lines=0) == ""
        assert asked(cache, "tail", lines=999) == asked(cache, "head", lines=999) == TEXT.removesuffix("\n")
        with pytest.raises(ValueError, match=r"lines: .*-1"):
            asked(cache, "head", lines=-1)

    def test_long_lines_are_folded(self):
        cache = filled("a" * 200 + "\n" + "b" * 401 + "\n\nc")
        assert [asked(cache, "read", start=n, end=n) for n in range(1, 7)] == [
            "a" * 200, "b" * 200, "b" * 200, "b", "", "c",
        ]  # fmt: skip
        assert asked(cache, "read", start=2, end=4) == "b" * 401

    def test_a_long_answer_says_where_to_read_on(self):
        cache = filled("".join(f"{n:099d}\n" for n in range(1, 101)), max_chars=1000)
        text, _, hint = asked(cache, "read", start=5, end=90).rpartition("\n")
        assert text.splitlines() == [f"{n:099d}" for n in range(5, 15)]
        assert hint == "[too long for one answer: read on from line 15]"

    @given(st.text(st.sampled_from("ab\n"), min_size=1, max_size=3000).map(lambda text: text * 3))
    def test_reading_on_reads_all(self, text):
        cache, read, place = filled(text, max_chars=1000), "", "1"
        while place:
            said, _, hint = asked(cache, "read", start=int(place)).partition(
                "\n[too long for one answer: read on from "
            )
            read += said
            place = hint.removeprefix("line ").removesuffix("]")
        assert read.replace("\n", "") == text.replace("\n", "")

    @given(st.lists(st.text(st.sampled_from("ab"), max_size=450), min_size=1, max_size=6))
    def test_each_line_is_what_a_plain_split_gives(self, lines):
        folded = [line[i : i + 200] for line in lines for i in range(0, max(1, len(line)), 200)]
        cache = filled("".join(f"{line}\n" for line in lines))
        assert [asked(cache, "read", start=n, end=n) for n in range(1, len(folded) + 1)] == folded
        with pytest.raises(LookupError, match=f"lines 1 to {len(folded)}$"):
            asked(cache, "read", start=len(folded) + 1)


class TestGrep:
    CODE = "import os\n\ndef f():\n    os.exit()\n\ndef g():\n    pass\n# os\n"

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ({"pattern": "os"}, ["1: import os", "4:     os.exit()", "8: # os"]),
            ({"pattern": "os", "start": 2, "end": 7}, ["4:     os.exit()"]),
            ({"pattern": "exit", "lines": 1}, ["3- def f():", "4:     os.exit()", "5- "]),
            ({"pattern": "import", "lines": 9, "end": 2}, ["1: import os", "2- "]),
            ({"pattern": "s\n\nd", "lines": 0}, ["1: import os", "2: ", "3: def f():"]),
            ({"pattern": "OS"}, ["['OS' was not found in lines 1 to 8]"]),
        ],
    )  # fmt: skip
    def test_lines_with_the_pattern(self, arguments, expected):
        assert asked(filled(self.CODE), "grep", **arguments) == "\n".join(expected)

    def test_a_gap_is_shown(self):
        said = asked(filled(TEXT), "grep", pattern="line 10", lines=1).split("\n")
        assert said[:5] == ["9- line 9", "10: line 10", "11- line 11", "--", "99- line 99"]
        assert said[-2:] == ["109: line 109", "110- line 110"]

    def test_a_pattern_is_literal(self):
        assert asked(filled("a.c\nabc\n(a+)+$\n"), "grep", pattern="a.c") == "1: a.c"
        assert asked(filled("a.c\nabc\n(a+)+$\n"), "grep", pattern="(a+)+$") == "3: (a+)+$"
        with pytest.raises(ValueError, match="pattern"):
            asked(filled(TEXT), "grep")

    def test_a_pattern_across_a_fold_is_found(self):
        assert asked(filled("a" * 199 + "needle" + "b" * 300), "grep", pattern="needle") == (
            "1: " + "a" * 199 + "n\n2: eedle" + "b" * 195
        )

    def test_one_that_ends_at_a_fold_marks_no_line_behind_it(self):
        cache = filled("a" * 194 + "needle" + "b" * 300)
        assert asked(cache, "grep", pattern="needle") == "1: " + "a" * 194 + "needle"
        assert asked(cache, "grep", pattern="needleb").count(": ") == 2

    def test_a_long_answer_says_where_to_search_on(self):
        cache, found, start = filled("x\n\n" * 2000, max_chars=1000), [], 1
        for _ in range(20):
            said, _, hint = asked(cache, "grep", pattern="x", start=start).partition(
                "\n[too long for one answer: search on from line "
            )
            found += said.split("\n")
            if not hint:
                break
            start = int(hint.removesuffix("]"))
        assert found == [f"{n}: x" for n in range(1, 4000, 2)]

    @pytest.mark.parametrize(("count", "end"), [(20, None), (21, "[too long for one answer: search on from line 21]")])
    def test_what_fits_exactly_is_not_cut(self, count, end):
        lines = [f"{n}: ".ljust(49, "x") for n in range(1, count + 1)]  # 50 characters each, with its end of line
        cache = filled("".join([f"{line.partition(' ')[2]}\n" for line in lines]), max_chars=1000)
        assert asked(cache, "grep", pattern="x").split("\n") == [*lines[:20], *([end] if end else [])]

    def test_context_without_end_is_cut(self):
        said = asked(filled(TEXT, max_chars=1000), "grep", pattern="line 300", lines=10**9)
        assert said.startswith("1- line 1\n2- line 2\n")
        assert len(said) < 1100

    @pytest.mark.parametrize("pattern", ["a" * 50_000 + "b", "\n" * 10_000])
    def test_no_pattern_takes_for_ever(self, pattern):
        cache = filled("a" * 300_000, "\n" * 300_000)
        for ref in ("ref_0001", "ref_0002"):
            assert len(asked(cache, "grep", ref, pattern=pattern)) < 9_000

    @given(
        st.lists(st.text(st.sampled_from("ab"), max_size=4), max_size=20),
        st.text(st.sampled_from("ab"), min_size=1, max_size=3),
        st.integers(0, 3),
    )
    def test_it_finds_what_a_plain_search_finds(self, lines, pattern, context):
        text = "".join(f"{line}\n" for line in lines)
        if not text:
            return
        hits = {n for n, line in enumerate(lines, 1) if pattern in line}
        near = [n for n in range(1, len(lines) + 1) if any(abs(n - hit) <= context for hit in hits)]
        expected = [f"{n}{':' if n in hits else '-'} {lines[n - 1]}" for n in near]
        said = asked(filled(text), "grep", pattern=pattern, lines=context)
        assert [line for line in said.split("\n") if line != "--"] == expected or (not hits and "not found" in said)


class TestFunction:
    def test_what_the_model_is_told_of_it(self):
        function = ResultCache().function
        assert (function.name, function.repeatable) == ("result_cache", True)
        properties = function.parameters["properties"]
        assert list(properties) == ["operation", "ref", "start", "end", "pattern", "lines"]
        assert properties["operation"]["enum"] == ["read", "grep", "head", "tail", "stats"]
        assert all("description" in said for said in properties.values())
        assert function.parameters["required"] == ["operation"]
        assert "self" not in properties

    def test_stats_tell_of_each_entry_what_it_is_and_how_long_it_stays(self):
        now = Now()
        cache = filled(TEXT, now=now)
        now.s += 60
        cache.cacher("fetch", "x\n")
        first, second = "ref_0001: search, 300 lines, 2592 characters, 1740 s left", "ref_0002: fetch, 1 lines, 2"
        assert asked(cache, "stats", "").split("\n") == [f"{second} characters, 1800 s left", first]
        assert asked(cache, "stats", "ref_0001") == first

    def test_stats_of_many_are_short(self):
        said = asked(filled(*["x\n"] * 500), "stats", "").split("\n")
        assert said[0].startswith("ref_0500: ")
        assert said[-1] == f"[and {500 - len(said) + 1} older ones]"
        assert sum(map(len, said)) < 8_100

    def test_an_agent_reads_in_it_and_is_told_what_is_wrong(self, script):
        again = function_call("result_cache", operation="head", ref="ref_0001", lines=1)
        client = script(again, again, function_call("result_cache", operation="read", ref="ref_0002"), "done")
        Agent(client, functions=[filled(TEXT).function]).call("Read.")
        told = [message.parts[0] for message in client.requests[-1].messages if message.role == "tool"]
        assert [(result.text, result.is_error) for result in told] == [
            ("line 1", False),
            ("line 1", False),  # what it said may be masked by now, so it is said again
            ("LookupError: unknown ref 'ref_0002'; kept: ref_0001", True),
        ]
