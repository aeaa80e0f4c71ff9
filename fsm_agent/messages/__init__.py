"""Messages with their parts, replies, events, transcripts, and the tools that providers run.

All of it is data, frozen and without behaviour that could fail.  Nothing here knows its origin or its purpose.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.messages.event import ArgumentsDelta as ArgumentsDelta
    from fsm_agent.messages.event import ContextShortened as ContextShortened
    from fsm_agent.messages.event import Delta as Delta
    from fsm_agent.messages.event import Done as Done
    from fsm_agent.messages.event import Event as Event
    from fsm_agent.messages.event import FunctionCallCompleted as FunctionCallCompleted
    from fsm_agent.messages.event import FunctionCallStarted as FunctionCallStarted
    from fsm_agent.messages.event import FunctionEnded as FunctionEnded
    from fsm_agent.messages.event import FunctionProgress as FunctionProgress
    from fsm_agent.messages.event import FunctionStarted as FunctionStarted
    from fsm_agent.messages.event import HistoryChanged as HistoryChanged
    from fsm_agent.messages.event import Inside as Inside
    from fsm_agent.messages.event import LoopDetected as LoopDetected
    from fsm_agent.messages.event import ObservationsMasked as ObservationsMasked
    from fsm_agent.messages.event import PartialOutput as PartialOutput
    from fsm_agent.messages.event import ReasoningDelta as ReasoningDelta
    from fsm_agent.messages.event import ReplyCompleted as ReplyCompleted
    from fsm_agent.messages.event import RequestStarted as RequestStarted
    from fsm_agent.messages.event import ResultCached as ResultCached
    from fsm_agent.messages.event import ResultChanged as ResultChanged
    from fsm_agent.messages.event import ResultExtracted as ResultExtracted
    from fsm_agent.messages.event import ResultProcessed as ResultProcessed
    from fsm_agent.messages.event import Stepped as Stepped
    from fsm_agent.messages.event import Summarized as Summarized
    from fsm_agent.messages.event import Suspended as Suspended
    from fsm_agent.messages.event import TextDelta as TextDelta
    from fsm_agent.messages.event import UsageReported as UsageReported
    from fsm_agent.messages.event import Where as Where
    from fsm_agent.messages.event_json import event_data as event_data
    from fsm_agent.messages.event_json import event_envelope as event_envelope
    from fsm_agent.messages.event_schemas import event_schema as event_schema
    from fsm_agent.messages.hosted_tool import CodeExecution as CodeExecution
    from fsm_agent.messages.hosted_tool import ComputerUse as ComputerUse
    from fsm_agent.messages.hosted_tool import HostedMCP as HostedMCP
    from fsm_agent.messages.hosted_tool import UserLocation as UserLocation
    from fsm_agent.messages.hosted_tool import WebSearch as WebSearch
    from fsm_agent.messages.message import Attachment as Attachment
    from fsm_agent.messages.message import Citation as Citation
    from fsm_agent.messages.message import Document as Document
    from fsm_agent.messages.message import FunctionCall as FunctionCall
    from fsm_agent.messages.message import FunctionResult as FunctionResult
    from fsm_agent.messages.message import Image as Image
    from fsm_agent.messages.message import Message as Message
    from fsm_agent.messages.message import Opaque as Opaque
    from fsm_agent.messages.message import Part as Part
    from fsm_agent.messages.message import Reasoning as Reasoning
    from fsm_agent.messages.message import Text as Text
    from fsm_agent.messages.payload import Payload as Payload
    from fsm_agent.messages.question import Question as Question
    from fsm_agent.messages.reply import Reply as Reply
    from fsm_agent.messages.reply import TokenLogprob as TokenLogprob
    from fsm_agent.messages.reply import Usage as Usage
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "event": (
                "ArgumentsDelta ContextShortened Delta Done Event FunctionCallCompleted FunctionCallStarted "
                "FunctionEnded FunctionProgress FunctionStarted HistoryChanged Inside LoopDetected ObservationsMasked "
                "PartialOutput ReasoningDelta ReplyCompleted RequestStarted ResultCached ResultChanged "
                "ResultExtracted ResultProcessed Stepped Summarized Suspended TextDelta UsageReported Where"
            ),
            "event_json": "event_data event_envelope",
            "event_schemas": "event_schema",
            "hosted_tool": "CodeExecution ComputerUse HostedMCP UserLocation WebSearch",
            "message": (
                "Attachment Citation Document FunctionCall FunctionResult Image Message Opaque Part Reasoning Text"
            ),
            "payload": "Payload",
            "question": "Question",
            "reply": "Reply TokenLogprob Usage",
        },
    )
