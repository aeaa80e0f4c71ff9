"""The methods of agents that classify."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from fsm_agent._internal.lazy_import import deferred
from fsm_agent._internal.with_options_shown import with_options_shown
from fsm_agent.agents.options import CONCURRENCY

if TYPE_CHECKING:
    from enum import Enum
    from typing import Unpack

    from fsm_agent.agents import many
    from fsm_agent.agents.agent import Agent
    from fsm_agent.agents.classification import asking, calibration, classification, prompt
    from fsm_agent.agents.classification.calibration import Calibration
    from fsm_agent.agents.classification.classification import Classification, MultiClassification, Unsure
    from fsm_agent.agents.options import ClassifyOptions
    from fsm_agent.lifecycle.call_result import CallResult
    from fsm_agent.messages.message import ChatDict, Message
    from fsm_agent.messages.payload import Payload

    What: TypeAlias = str | Payload | Message | Sequence[Message | ChatDict] | CallResult[Any]
    Choice = TypeVar("Choice", bound=Enum)
else:
    many = deferred("fsm_agent.agents.many")
    asking, calibration = (deferred(f"fsm_agent.agents.classification.{name}") for name in ("asking", "calibration"))
    classification = deferred("fsm_agent.agents.classification.classification")
    prompt = deferred("fsm_agent.agents.classification.prompt")

Label = TypeVar("Label")

_CLASSIFY, _CHOICE = (f"fsm_agent.agents.options:{name}" for name in ("ClassifyOptions", "ChoiceOptions"))
CONTENT_FREE = ("N/A", "", "[MASK]")  # https://arxiv.org/abs/2102.09690


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
                `calibrate`; ``threshold``: with a lower probability the label is ``"unsure"``, or the agent
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

    @overload
    def choose(
        self,
        classes: type[Choice],
        what: What,
        *,
        otherwise: Classifying | None = ...,
        **options: Unpack[ClassifyOptions],
    ) -> Classification[Choice]: ...
    @overload
    def choose(
        self,
        classes: type[Choice],
        what: What,
        *,
        threshold: float,
        otherwise: Classifying,
        **options: Unpack[ClassifyOptions],
    ) -> Classification[Choice]: ...
    @overload
    def choose(
        self, classes: type[Choice], what: What, *, threshold: float, **options: Unpack[ClassifyOptions]
    ) -> Classification[Choice | Unsure]: ...
    @with_options_shown(_CHOICE)
    def choose(self, classes: type[Choice], what: What, **options: Any) -> Classification[Any]:
        """`classify` for the members of an `Enum`: the label is one of them."""
        return asking.perform(asking.planned(self._classifier, what, classes, options))

    @overload
    async def achoose(
        self,
        classes: type[Choice],
        what: What,
        *,
        otherwise: Classifying | None = ...,
        **options: Unpack[ClassifyOptions],
    ) -> Classification[Choice]: ...
    @overload
    async def achoose(
        self,
        classes: type[Choice],
        what: What,
        *,
        threshold: float,
        otherwise: Classifying,
        **options: Unpack[ClassifyOptions],
    ) -> Classification[Choice]: ...
    @overload
    async def achoose(
        self, classes: type[Choice], what: What, *, threshold: float, **options: Unpack[ClassifyOptions]
    ) -> Classification[Choice | Unsure]: ...
    @with_options_shown(_CHOICE)
    async def achoose(self, classes: type[Choice], what: What, **options: Any) -> Classification[Any]:
        """`choose` for asyncio."""
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

    @with_options_shown(_CLASSIFY)
    def multi_classify(
        self, what: What, classes: Iterable[Label], *, threshold: float = 0.5, **options: Unpack[ClassifyOptions]
    ) -> MultiClassification[Label]:
        """Return the classes that apply, any number of them: each is a question of its own, and all run at once.

        Args:
            what: A text, a `Payload`, or a dialog, which the questions follow.
            classes: Texts, members of an `Enum`, or the class of one.
            threshold: The least probability with which a class applies.
            options: Those of `classify`; a ``prompt`` may say ``{{ label }}``.
        """
        plans = asking.planned_each(self._classifier, what, classes, options)
        found = many.map_tasks(asking.perform, plans.values(), CONCURRENCY, False, True).outputs
        return classification.multiple(plans, found, threshold)

    @with_options_shown(_CLASSIFY)
    async def amulti_classify(
        self, what: What, classes: Iterable[Label], *, threshold: float = 0.5, **options: Unpack[ClassifyOptions]
    ) -> MultiClassification[Label]:
        """`multi_classify` for asyncio."""
        plans = asking.planned_each(self._classifier, what, classes, options)
        found = (await many.amap_tasks(asking.aperform, plans.values(), CONCURRENCY, False, True)).outputs
        return classification.multiple(plans, found, threshold)

    @with_options_shown(_CLASSIFY)
    def calibrate(
        self,
        classes: Iterable[Label],
        texts: Iterable[What] = CONTENT_FREE,
        labels: Iterable[Label] | None = None,
        *,
        concurrency: int = 8,
        **options: Unpack[ClassifyOptions],
    ) -> Calibration:
        """Return the correction of this agent's preferences for some of the classes.

        Args:
            classes: Those that will be given to `classify`.
            texts: Texts like those that will be classified, whose classes are about equally frequent; by default texts
                without content, which are worse for more than two classes.
            labels: The right class of each text: the correction is then fitted to them.
            concurrency: How many texts are asked about at a time.
            options: Those that will be given to `classify`, above all its ``prompt``.
        """
        plans = asking.planned_all(self._classifier, texts, classes, options)
        found = many.map_tasks(asking.perform, plans, concurrency, False, True).outputs
        return calibration.of(found, labels)

    @with_options_shown(_CLASSIFY)
    async def acalibrate(
        self,
        classes: Iterable[Label],
        texts: Iterable[What] = CONTENT_FREE,
        labels: Iterable[Label] | None = None,
        *,
        concurrency: int = 8,
        **options: Unpack[ClassifyOptions],
    ) -> Calibration:
        """`calibrate` for asyncio."""
        plans = asking.planned_all(self._classifier, texts, classes, options)
        found = (await many.amap_tasks(asking.aperform, plans, concurrency, False, True)).outputs
        return calibration.of(found, labels)
