"""The methods of agents that classify."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from fsm_agent._internal.lazy_import import deferred
from fsm_agent._internal.with_options_shown import with_options_shown

if TYPE_CHECKING:
    from typing import Unpack

    from fsm_agent.agents.agent import Agent
    from fsm_agent.agents.classification import asking, prompt
    from fsm_agent.agents.classification.classification import Classification, Unsure
    from fsm_agent.agents.options import ClassifyOptions
    from fsm_agent.call.result import CallResult
    from fsm_agent.messages.message import ChatDict, Message
    from fsm_agent.messages.payload import Payload

    What: TypeAlias = str | Payload | Message | Sequence[Message | ChatDict] | CallResult[Any]
else:
    asking = deferred("fsm_agent.agents.classification.asking")
    prompt = deferred("fsm_agent.agents.classification.prompt")

Label = TypeVar("Label")

_CLASSIFY, _CHOICE = (f"fsm_agent.agents.options:{name}" for name in ("ClassifyOptions", "ChoiceOptions"))


class Classifying:
    """The methods with which an agent chooses among classes.

    Each makes an agent call that asks for one word, with the log probabilities of its first token.  A parser finds the
    class, so an answer that names none is asked for again, like any other that cannot be parsed.  The agent's functions
    are not offered.  Every option of a call may be given, too.
    """

    @property
    @abstractmethod
    def _classifier(self) -> Agent[Any, str]:
        """The agent that is asked."""

    @overload
    def classify(
        self,
        what: What,
        classes: Iterable[Label],
        *,
        otherwise: Classifying | None = ...,
        **options: Unpack[ClassifyOptions],
    ) -> Classification[Label]: ...
    @overload
    def classify(
        self,
        what: What,
        classes: Iterable[Label],
        *,
        threshold: float,
        otherwise: Classifying,
        **options: Unpack[ClassifyOptions],
    ) -> Classification[Label]: ...
    @overload
    def classify(
        self, what: What, classes: Iterable[Label], *, threshold: float, **options: Unpack[ClassifyOptions]
    ) -> Classification[Label | Unsure]: ...
    @with_options_shown(_CHOICE)
    def classify(self, what: What, classes: Iterable[Any], **options: Any) -> Classification[Any]:
        """Return the class of a text or a dialog, and the probability of each class.

        Args:
            what: A text, a `Payload`, or a dialog, which the question follows.
            classes: Texts, members of an `Enum`, or the class of one.
            options: ``prompt``: the question, which may say ``{{ text }}`` and ``{{ classes }}``; ``calibration``, see
                `Calibration.of_prior`; ``threshold``: with a lower probability the label is ``"unsure"``, or the agent
                ``otherwise`` is asked; ``votes``: how often to ask a model that reports no log probabilities;
                ``on_missing="error"``: ask again if a class is not among the alternatives; and those of `Agent.call`.

        Raises:
            CallFailed: The model named none of the classes, or the request failed.
            UsageError: An argument is wrong.
        """
        return asking.perform(asking.planned(self._classifier, what, classes, options))

    @overload
    async def aclassify(
        self,
        what: What,
        classes: Iterable[Label],
        *,
        otherwise: Classifying | None = ...,
        **options: Unpack[ClassifyOptions],
    ) -> Classification[Label]: ...
    @overload
    async def aclassify(
        self,
        what: What,
        classes: Iterable[Label],
        *,
        threshold: float,
        otherwise: Classifying,
        **options: Unpack[ClassifyOptions],
    ) -> Classification[Label]: ...
    @overload
    async def aclassify(
        self, what: What, classes: Iterable[Label], *, threshold: float, **options: Unpack[ClassifyOptions]
    ) -> Classification[Label | Unsure]: ...
    @with_options_shown(_CHOICE)
    async def aclassify(self, what: What, classes: Iterable[Any], **options: Any) -> Classification[Any]:
        """`classify` for asyncio."""
        return await asking.aperform(asking.planned(self._classifier, what, classes, options))

    @with_options_shown(_CLASSIFY)
    def binary_classify(self, what: What, **options: Unpack[ClassifyOptions]) -> float:
        """Return how likely the answer is True: to the question of a dialog, or of a ``prompt``."""
        plan = asking.planned(self._classifier, what, (True, False), options, prompt.BINARY_QUESTION)
        return asking.perform(plan).probabilities[True]

    @with_options_shown(_CLASSIFY)
    async def abinary_classify(self, what: What, **options: Unpack[ClassifyOptions]) -> float:
        """`binary_classify` for asyncio."""
        plan = asking.planned(self._classifier, what, (True, False), options, prompt.BINARY_QUESTION)
        return (await asking.aperform(plan)).probabilities[True]
