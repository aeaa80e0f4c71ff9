"""Values: equality, text, copies, and JSON."""

from __future__ import annotations

import copy
import math
import os
import pickle
import subprocess
import sys
from array import array
from inspect import signature
from typing import Any

import pytest
from rich.pretty import pretty_repr

from fsm_agent._internal import structs as values
from fsm_agent._internal.structs import Vector
from fsm_agent.call import Request
from fsm_agent.clients import HttpClient, Network
from fsm_agent.messages import HostedMCP, Image, Message, Reply, Settings, Text, Usage


class Point(values.Value, frozen=True):
    hidden = ("secret",)

    x: float
    y: float = 0.0
    secret: str = ""
    notes: dict[str, int] = {}  # noqa: RUF012  # msgspec copies it


class Circle(values.Tagged, frozen=True, tag="circle"):
    radius: int


class Square(values.Tagged, frozen=True, tag="square"):
    side: int = 1


class Drawing(values.Value, frozen=True, kw_only=True):
    shapes: Vector[Circle | Square] = Vector()
    title: str | None = None
    any: Any = None


class TestValue:
    def test_a_change_makes_another_value(self):
        one = Point(1.0)
        assert (one.changed(y=2.0), one) == (Point(1.0, 2.0), Point(1.0))
        assert one.changed() == one
        with pytest.raises(TypeError, match="`Point` has no field 'z'"):
            one.changed(z=3)

    def test_nothing_can_be_assigned(self):
        with pytest.raises(AttributeError, match="immutable type: 'Point'"):
            Point(1.0).x = 2.0
        with pytest.raises(AttributeError, match="immutable type: 'Point'"):
            del Point(1.0).x

    def test_the_text_leaves_out_defaults_and_what_is_hidden(self):
        assert repr(Point(1.0)) == "Point(x=1.0)"
        assert repr(Point(1.0, 2.0, "hunter2", {"a": 1})) == "Point(x=1.0, y=2.0, notes={'a': 1})"
        assert repr(Image(data=b"GIF89a" * 1000, media_type="image/gif")) == "Image(media_type='image/gif')"
        assert repr(Reply.of("hi")) == "Reply(message=Message(role='assistant', parts=(Text(text='hi'),)))"

    def test_rich_is_shown_nothing_that_is_hidden(self):
        assert pretty_repr(Point(1.0, 2.0, "hunter2")) == "Point(x=1.0, y=2.0)"
        server = HostedMCP("docs", "https://host/hunter2", authorization="hunter2", headers={"X-Key": "hunter2"})
        asked = Request(messages=(), settings=Settings(hosted_tools=(server,)))
        with HttpClient("openai", "m", api_key="hunter2-hunter2") as client:
            for value in (server, client, Network(proxy="http://me:hunter2@host:3128"), asked):
                assert "hunter2" not in pretty_repr(value) + repr(value)

    def test_no_two_share_a_default_that_can_change(self):
        assert Point(1.0).notes is not Point(1.0).notes

    def test_copies_are_equal(self):
        for value in (Point(1.0, 2.0), Message.of("user", "hi"), Reply.of("hi"), Usage()):
            twins = [copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value)), value.changed()]
            assert all(twin == value and type(twin) is type(value) for twin in twins)

    def test_values_of_two_classes_differ(self):
        class Other(Point, frozen=True):
            pass

        assert Point(1.0) != Other(1.0)
        assert Other(1.0) == Other(1.0)

    def test_a_public_value_can_be_subclassed(self):
        class Marked(Message, frozen=True, kw_only=True):
            mark: str = ""

        marked = Marked(role="user", parts=(Text("hi"),), mark="x")
        assert (marked.text, marked.mark, marked.changed(mark="y").mark) == ("hi", "x", "y")
        assert isinstance(marked, Message)


class TestJson:
    def test_round_trip(self):
        for drawing in (
            *(Drawing(), Drawing(any=[1, {"a": None}]), Drawing(any=math.inf), Drawing(any=[-math.inf, 0.5])),
            Drawing(shapes=Vector([Circle(2), Square()]), title="two"),
        ):
            again = values.from_json(values.to_json(drawing), Drawing)
            assert again == drawing
            assert isinstance(again.shapes, Vector)

    def test_an_older_version_of_a_vector_writes_only_its_own_items(self):
        old = Vector([Square(1)])
        old.push(Square(2))
        assert values.to_json(Drawing(shapes=old)) == '{"shapes":[{"kind":"square"}]}'

    def test_what_is_no_number(self):
        assert values.to_json(Drawing(any=math.nan)).endswith('"any":NaN}')
        assert math.isnan(values.from_json(values.to_json(Drawing(any=math.nan)), Drawing).any)

    def test_half_a_surrogate_pair(self):
        assert (
            values.from_json(values.to_json(Drawing(title="a\ud800b\ud83d\ude00")), Drawing).title
            == "a\ufffdb\U0001f600"
        )

    def test_what_could_not_be_read_again_is_not_written(self):
        for drawing, place in (
            (Drawing(title=5), "title: "),
            (Drawing(shapes=Vector(["x"])), r"shapes\[0\]: "),
            (Drawing(shapes=Vector([Circle("x")])), r"shapes\[0\]\.radius: "),
            (Drawing(any=object()), "object"),
            (Drawing(any=iter([("a", 1)])), "list_iterator"),  # no mapping, though `dict` makes one of it
            (Drawing(any=array("B", b"1")), "array"),  # no JSON in JSON, though its bytes are
        ):
            with pytest.raises(ValueError, match=place):
                values.to_json(drawing)
        circular: dict[str, object] = {}
        circular["again"] = circular
        with pytest.raises(ValueError, match=r"recursion|Stack overflow"):
            values.to_json(circular)

    def test_damage_is_named(self):
        for document, place in (
            ("{", "."),
            ("[]", "."),
            ('{"titel": "x"}', "titel"),
            ('{"shapes": [{"kind": "line"}]}', r"shapes\[0\]\.kind: "),
            ('{"any": ' + "[" * 100_000, "."),
            (b"\xff\xfe", "."),
        ):
            with pytest.raises(ValueError, match=place):
                values.from_json(document, Drawing)

    def test_a_document_that_is_no_json_is_told_so(self):
        with pytest.raises(ValueError, match="JSON"):
            values.from_json(b"\xff", Drawing)

    def test_data_become_values_of_their_kind(self):
        assert values.from_data({"shapes": [{"kind": "square", "side": 3}]}, Drawing).shapes == Vector([Square(3)])


def test_a_value_shows_its_signature():
    for value in (Point, Drawing, Reply, Request):
        assert list(signature(value).parameters) == list(value.__struct_fields__)
    message, usage, *_ = signature(Reply).parameters.values()
    assert (message.annotation, usage.annotation, usage.default) == (Message, Usage, Usage())


# Types that two threads meet for the first time

MEETING = """
from __future__ import annotations

import os, sys, threading
from fsm_agent._internal.structs import Value, decoder_of, from_data, from_json

def used():
    try:
        assert {act} == Outer(Inner(1)), "another value"
    finally:
        is_used.set()

def evaluated():  # in the midst of what is made of Outer
    threading.Thread(target=used, daemon=True).start()
    is_used.wait(0.3)  # it waits for this thread
    return int

class Inner(Value, frozen=True):
    x: evaluated()

class Outer(Value, frozen=True):
    inner: Inner

is_used = threading.Event()
decoder_of(Outer)
assert is_used.wait(30)
"""


@pytest.mark.system
def test_a_type_is_not_used_before_all_is_known_of_it():
    for act in ('from_json(\'{"inner": {"x": 1}}\', Outer)', "from_data({'inner': {'x': 1}}, Outer)"):
        done = subprocess.run([sys.executable, "-c", MEETING.replace("{act}", act)], stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_waits_until_all_is_known_of_a_type():
    """A forked process has no thread that could complete it."""
    act = "forked()"
    forked = """
def forked():
    if (child := os.fork()) == 0:
        os._exit(from_json('{"inner": {"x": 1}}', Outer) != Outer(Inner(1)))
    assert os.waitpid(child, 0)[1] == 0, "the child failed"
    return Outer(Inner(1))

def used"""
    program = MEETING.replace("{act}", act).replace("\ndef used", forked)
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")
