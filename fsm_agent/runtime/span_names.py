"""The names of all span attributes and metrics.

Names with the prefix ``gen_ai.`` or ``error.`` are OpenTelemetry's, from `opentelemetry-semantic-conventions` 0.66b2
(schema 1.44.0): ``opentelemetry/semconv/_incubating/attributes/gen_ai_attributes.py``, ``metrics/gen_ai_metrics.py``.
They are literals here because that package deprecates them.  They are moving to
https://github.com/open-telemetry/semantic-conventions-genai, which had no release as of November 2026.  Names with the
prefix ``fsm_agent.`` belong to this package.
"""

from typing import Final

# Operations
OPERATION: Final = "gen_ai.operation.name"  # one of the next four
CHAT: Final = "chat"
INVOKE_AGENT: Final = "invoke_agent"
INVOKE_WORKFLOW: Final = "invoke_workflow"
EXECUTE_TOOL: Final = "execute_tool"
AGENT: Final = "gen_ai.agent.name"
WORKFLOW: Final = "gen_ai.workflow.name"
CONVERSATION: Final = "gen_ai.conversation.id"
ERROR: Final = "error.type"

# Requests to models
PROVIDER: Final = "gen_ai.provider.name"
MODEL: Final = "gen_ai.request.model"
STREAM: Final = "gen_ai.request.stream"
TEMPERATURE: Final = "gen_ai.request.temperature"
TOP_P: Final = "gen_ai.request.top_p"
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"

# Functions
TOOL: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL: Final = "gen_ai.tool.call.id"

# Content, recorded on request only
SYSTEM: Final = "gen_ai.system_instructions"
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"

# Metrics
DURATION: Final = "gen_ai.client.operation.duration"
TOKENS: Final = "gen_ai.client.token.usage"
TOKEN_TYPE: Final = "gen_ai.token.type"

# Names of this package
CALL_ID: Final = "fsm_agent.call.id"
RUN_ID: Final = "fsm_agent.run.id"
PATH: Final = "fsm_agent.path"  # of a nested process
STATE: Final = "fsm_agent.state"
KEY: Final = "fsm_agent.key"  # of an effect
ATTEMPT: Final = "fsm_agent.attempt"  # above 1
ATTEMPTS: Final = "fsm_agent.attempts"  # above 1
VERDICT: Final = "fsm_agent.verdict"  # the kind of an answer: "approved", "modified", "denied", "returned"
QUESTION: Final = "fsm_agent.question"  # the event of a question that stays open; its kind
STEP: Final = "fsm_agent.step"  # of a flow, such as "review#3"
TRIGGER: Final = "fsm_agent.trigger"  # of the transition by which a flow has left a state
PURPOSE: Final = "fsm_agent.purpose"  # of a request: "summary"
RETRIES: Final = "fsm_agent.retries"  # the metric
RETRY: Final = "fsm_agent.retry"  # what was tried again: "model", "answer" or "function"
ROUNDS: Final = "fsm_agent.rounds"
REASON: Final = "fsm_agent.reason"  # why a call ended
TO: Final = "fsm_agent.to"  # the state after the step of an effect
SERVED_BY: Final = "fsm_agent.served_by"  # the client that answered, if there are several
# Tokens used by a call and everything inside it.  These are not OpenTelemetry's names, because sums over spans would
# then count the tokens twice.
ALL_INPUT_TOKENS: Final = "fsm_agent.usage.input_tokens"
ALL_OUTPUT_TOKENS: Final = "fsm_agent.usage.output_tokens"
