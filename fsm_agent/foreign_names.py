"""The names of other libraries for what is imported from this one, and for attributes, with ours.

Of arguments and of the methods of an agent, `mistakes` has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fsm_agent.mistakes import AGENT_METHODS, AGENT_WORDS, remedy

T = TypeVar("T")

_CLASS_MODEL = "model = 'provider:model', or a client"

_CHECKED = "output=… with a validator, or Prompt(…, parser=…)"
_KEPT = "Agent(…, store='runs.db')"
_HOOKS = "Agent(…, hooks=[…])"
_MODEL = "a name, Agent('provider:model'), or client_for('provider:model', …)"

_FLOW = "fsm_agent.flows.Flow"

IMPORT_WORDS = {
    **dict.fromkeys(("RunContext", "ToolContext", "ToolRuntime", "RunContextWrapper", "AgentContext"), "Context"),
    **dict.fromkeys(("tool", "function_tool", "ai_function", "register_tool"), "function, as in @function"),
    **dict.fromkeys(("Tool", "FunctionTool", "StructuredTool", "BaseTool", "ToolDefinition"), "Function"),
    **dict.fromkeys(("ToolCall", "ToolCallPart", "ToolUse"), "FunctionCall"),
    **dict.fromkeys(("ToolResult", "ToolReturn", "ToolReturnPart", "ToolMessage"), "fsm_agent.messages.FunctionResult"),
    **dict.fromkeys(("ToolNode", "ToolSet", "FunctionToolset", "Toolkit", "Tools"), "Toolset"),
    **dict.fromkeys(("ModelRetry", "ToolException", "RetryError", "ToolRetryError"), "Retry"),
    **dict.fromkeys(("UsageLimits", "RunConfig", "RunnableConfig"), "Limits"),
    **dict.fromkeys(("UsageLimitExceeded", "MaxTurnsExceeded", "GraphRecursionError"), "CallFailed, and its reason"),
    **dict.fromkeys(("UnexpectedModelBehavior", "AgentRunError", "AgentCallError", "AgentError"), "CallFailed"),
    **dict.fromkeys(("ModelHTTPError", "ModelAPIError", "APIError", "APIStatusError"), "ProviderError"),
    **dict.fromkeys(("UserError", "AgentsException"), "UsageError"),
    **dict.fromkeys(("Runner", "AgentRunner", "AgentExecutor", "run_sync"), "a method, Agent(…).call(…)"),
    **dict.fromkeys(("create_agent", "create_react_agent", "create_tool_calling_agent"), "Agent"),
    **dict.fromkeys(("AssistantAgent", "ConversableAgent", "ReActAgent", "CodeAgent", "ToolCallingAgent"), "Agent"),
    **dict.fromkeys(("RunResult", "AgentRunResult", "AgentResult", "RunResultStreaming"), "CallResult"),
    **dict.fromkeys(("Crew", "Team", "Swarm", "AgentGroup"), "AgentBase, with an agent_group"),
    **dict.fromkeys(("HumanMessage", "UserMessage", "UserPromptPart"), "Message.of('user', …)"),
    **dict.fromkeys(("SystemMessage", "SystemPromptPart", "DeveloperMessage"), "Message.of('system', …)"),
    **dict.fromkeys(("AIMessage", "AssistantMessage", "TextPart"), "Message.of('assistant', …)"),
    **dict.fromkeys(("ModelMessage", "ModelRequest", "ModelResponse", "BaseMessage", "ChatMessage"), "Message"),
    **dict.fromkeys(("ModelMessagesTypeAdapter", "MessageHistory", "ChatHistory", "Dialogue", "Thread"), "Dialog"),
    **dict.fromkeys(("PromptTemplate", "ChatPromptTemplate", "Template", "SystemPrompt"), "Prompt"),
    **dict.fromkeys(("ImageUrl", "ImageContent", "BinaryImage"), "Image.of(…)"),
    **dict.fromkeys(("BinaryContent", "DocumentUrl", "FileContent"), "Document.of(…), or Image.of(…)"),
    **dict.fromkeys(("ModelSettings", "GenerationConfig", "ChatOptions"), "Settings"),
    **dict.fromkeys(("OpenAI", "ChatOpenAI", "AsyncOpenAI", "OpenAIModel", "OpenAIChatModel", "LLM", "Model"), _MODEL),
    **dict.fromkeys(("Anthropic", "ChatAnthropic", "AnthropicModel", "init_chat_model", "infer_model"), _MODEL),
    **dict.fromkeys(("LiteLLM", "LitellmModel", "OpenAIProvider", "OllamaModel", "GoogleModel"), _MODEL),
    **dict.fromkeys(("FallbackModel", "ModelFallback"), "FallbackClient"),
    **dict.fromkeys(("MCPServerStdio", "MCPStdioTool"), "MCPServer.stdio(…)"),
    **dict.fromkeys(
        ("MCPServerHTTP", "MCPServerSSE", "MCPServerStreamableHTTP", "MCPServerStreamableHttp"), "MCPServer.http(…)"
    ),
    **dict.fromkeys(("ToolOutput", "NativeOutput", "PromptedOutput", "TextOutput"), "Prompt(…, mode=…)"),
    **dict.fromkeys(("MemorySaver", "InMemorySaver"), "MemoryStore"),
    **dict.fromkeys(("SqliteSaver", "AsyncSqliteSaver", "SQLiteSession"), "SqliteStore"),
    **dict.fromkeys(("Memory", "Session", "ConversationBufferMemory", "Checkpointer"), f"a conversation, {_KEPT}"),
    **dict.fromkeys(("DeferredToolRequests", "ApprovalRequired", "CallDeferred", "interrupt"), "CallSuspended"),
    **dict.fromkeys(("DeferredToolResults", "ToolApproved", "Command"), "Approved, with resume(run_id, answers)"),
    **dict.fromkeys(("ToolDenied",), "Denied"),
    **dict.fromkeys(("ToolApproval",), "Approved, Modified or Denied"),
    **dict.fromkeys(("LoopAction",), "Limits(on_loop=…)"),
    **dict.fromkeys(("TerminationReason",), "Reason"),
    **dict.fromkeys(("StreamWrapper",), "a method, Agent(…).stream(…)"),
    **dict.fromkeys(("AgentHooks", "RunHooks", "BaseCallbackHandler", "LoggingCallback"), f"any object, {_HOOKS}"),
    **dict.fromkeys(("InputGuardrail", "OutputGuardrail", "input_guardrail", "output_guardrail"), _CHECKED),
    **dict.fromkeys(("TestModel", "FunctionModel", "FakeListChatModel"), "fsm_agent.testing.Script"),
    **dict.fromkeys(("WebSearchTool", "TavilySearch"), "fsm_agent.messages.WebSearch"),
    **dict.fromkeys(("CodeInterpreterTool", "CodeExecutionTool", "PythonREPL"), "fsm_agent.messages.CodeExecution"),
    **dict.fromkeys(("StateGraph", "MessageGraph", "Graph", "GraphBuilder", "BaseNode"), _FLOW),
    **dict.fromkeys(("Application", "ApplicationBuilder", "Workflow", "StateMachine", "Machine"), _FLOW),
    **dict.fromkeys(("START", "END"), "start=… and end('…') of fsm_agent.flows"),
    "trace": "result.trace",
    "tools": "Toolset",
    "BaseModel": "pydantic's, from pydantic import BaseModel",
    "Field": "pydantic's, from pydantic import Field",
}
FLOW_IMPORT_WORDS = {
    **dict.fromkeys(("StateGraph", "MessageGraph", "Graph", "GraphBuilder", "Machine", "ApplicationBuilder"), "Flow"),
    **dict.fromkeys(("START", "END", "End", "Start"), "start=… of the Flow, and end('…')"),
    **dict.fromkeys(("interrupt", "Interrupt", "Command"), "a state that waits, @wait(Approve), and resume"),
    **dict.fromkeys(("node", "step", "action", "task"), "execute, or call for an agent"),
    **dict.fromkeys(("Send", "parallel", "fork"), "gather or each"),
    "sleep": "pause",
}
TESTING_IMPORT_WORDS = {
    **dict.fromkeys(("TestModel", "FunctionModel", "FakeListChatModel", "MockModel", "FakeModel"), "Script"),
}
RESULT_WORDS = {
    **dict.fromkeys(("data", "result", "value", "final_output", "parsed", "structured_response"), "output"),
    **dict.fromkeys(("pydantic", "answer", "return_value", "final_output_as", "get_output", "json_dict"), "output"),
    **dict.fromkeys(("content", "output_text", "raw", "response_text", "final_answer"), "text"),
    **dict.fromkeys(("messages", "all_messages", "history", "message_history", "chat_history"), "dialog"),
    **dict.fromkeys(("to_input_list", "input_list", "chat"), "dialog, as in call('…', after=result)"),
    **dict.fromkeys(("all_messages_json", "new_messages_json", "to_json"), "dialog.to_json()"),
    **dict.fromkeys(("tool_calls", "tools_used", "tool_results", "new_items", "actions"), "function_calls"),
    **dict.fromkeys(("choices", "response", "last_message"), "message"),
    **dict.fromkeys(("raw_responses", "raw_response"), "record.reply"),
    **dict.fromkeys(("usage_metadata", "token_usage", "response_metadata"), "usage"),
    **dict.fromkeys(("cost", "total_cost", "cost_usd"), "usage.cost_usd, with prices=… of the Agent"),
    **dict.fromkeys(("finish_reason", "stop_reason"), "ending.reason"),
    **dict.fromkeys(("success", "is_success", "is_ok", "status"), "state"),
    **dict.fromkeys(("error", "errors", "exception"), "failures, and ending"),
    **dict.fromkeys(("steps", "intermediate_steps", "history_steps"), "trace"),
    **dict.fromkeys(("interruptions", "pending", "approvals"), "call.effects"),
    **dict.fromkeys(("id", "run_id"), "record.id"),
    **dict.fromkeys(
        ("model_dump", "to_dict", "dict", "json", "model_dump_json"), "output.model_dump(), or dialog.to_json()"
    ),
}
USAGE_WORDS = {
    **dict.fromkeys(("prompt_tokens", "request_tokens", "tokens_in"), "input_tokens"),
    **dict.fromkeys(("completion_tokens", "response_tokens", "tokens_out"), "output_tokens"),
    **dict.fromkeys(("tokens", "total"), "total_tokens"),
    **dict.fromkeys(("cache_read_tokens", "cached_input_tokens", "cache_read_input_tokens"), "cached_tokens"),
    **dict.fromkeys(("requests", "calls", "successful_requests"), "result.iterations"),
    **dict.fromkeys(("cost", "total_cost"), "cost_usd, with prices=… of the Agent"),
}
MESSAGE_WORDS = {
    **dict.fromkeys(("content", "output", "message"), "text"),
    **dict.fromkeys(("tool_calls", "function_call"), "function_calls"),
    **dict.fromkeys(("type", "kind", "sender"), "role"),
    "thinking": "reasoning",
}
FUNCTION_CALL_WORDS = {
    **dict.fromkeys(("args", "input", "parameters", "kwargs", "args_as_dict"), "arguments"),
    **dict.fromkeys(("tool_name", "function", "tool"), "name"),
    **dict.fromkeys(("tool_call_id", "call_id"), "id"),
    **dict.fromkeys(("output", "content", "value"), "result"),
}


def _assigned(right: str) -> str:
    """Return the attribute of a class that stands for an argument: ``limits = …`` for ``limits=…``."""
    name, sign, value = right.partition("=")
    return f"{'expertise' if name == 'system' else name} = {value}" if sign and name.isidentifier() else right


_CLIENT = "model = client_for('provider:model', …), with {}=…"
CLASS_WORDS = {  # attributes of a class of agents
    **{word: _assigned(right) for word, right in AGENT_WORDS.items()},
    **dict.fromkeys(("client", "llm", "model_name", "model_id", "llm_config", "chat_model", "provider"), _CLASS_MODEL),
    **dict.fromkeys(("default_inner", "client_name", "inner", "backend"), _CLASS_MODEL),
    **dict.fromkeys(("max_retries", "retries"), "limits = Limits(recalls=…, parse_retries=…)"),
    **dict.fromkeys(("max_exception_retry",), "limits = Limits(parse_retries=…)"),
    **dict.fromkeys(("max_llm_recall",), "limits = Limits(recalls=…)"),
    **dict.fromkeys(("max_interrupt_times",), "limits = Limits(rounds=…)"),
    **dict.fromkeys(("model_args",), "settings = Settings(…)"),
    **dict.fromkeys(("approval", "tool_approval", "approver"), "approve = …"),
    **dict.fromkeys(("agents", "sub_agents", "agent_configs"), "agent_group = {'name': {…}, …}"),
    **dict.fromkeys(("config", "global", "defaults"), "the attributes of the class themselves, model = … and so on"),
    **dict.fromkeys(("deps", "dependencies"), "deps=… of call"),
    **dict.fromkeys(("toolset", "mcp_server"), "functions = […]"),
    "system_prompt_path": "system_path = …",
    "api_key": _CLIENT.format("api_key"),
    "base_url": _CLIENT.format("base_url"),
}
_OF_AGENTS = ("acall", "stream", "astream", "run", "arun", "seed", "resume", "conversation", "as_function")
BASE_WORDS = {
    **{
        word: f"agents['…'].{right} of a sub-agent" if right in _OF_AGENTS else right
        for word, right in [*AGENT_METHODS.items(), *zip(_OF_AGENTS, _OF_AGENTS, strict=True)]
    },
    **dict.fromkeys(("agents", "config", "name"), "made by super().__init__(…)"),
}
LIMIT_WORDS = {
    **dict.fromkeys(("max_turns", "max_iterations", "max_iter", "max_steps", "max_rounds"), "rounds=…"),
    **dict.fromkeys(("recursion_limit", "request_limit", "tool_calls_limit"), "rounds=…"),
    **dict.fromkeys(("timeout", "timeout_s", "max_time", "deadline"), "deadline_s=…"),
    **dict.fromkeys(("request_timeout", "step_timeout", "step_timeout_s"), "request_s=…"),
    **dict.fromkeys(("retries", "max_retries", "output_retries"), "parse_retries=… of answers, recalls=… of requests"),
    "max_exception_retry": "parse_retries=…",
    "loop_detection": "identical_rounds=…, with on_loop",
    "parallel_tool_execution": "parallel=…",
    **dict.fromkeys(("max_parallel", "concurrency", "max_concurrency"), "parallel=…"),
    **dict.fromkeys(("max_tokens", "total_tokens_limit", "max_total_tokens", "token_limit"), "tokens=…"),
    **dict.fromkeys(("budget", "max_cost", "max_cost_usd", "max_budget_usd", "cost_limit"), "cost_usd=…"),
    "max_depth": "depth=…",
    "max_handoffs": "handoffs=…",
}
FLOW_WORDS = {
    **dict.fromkeys(("checkpointer", "persister", "memory", "persistence", "storage"), "store=…"),
    **dict.fromkeys(("nodes", "edges", "transitions", "actions", "table"), "rows=[state.done(other), …]"),
    **dict.fromkeys(("entry_point", "initial", "start_node", "entrypoint"), "start=…"),
    **dict.fromkeys(("state_schema", "schema", "state_type", "state"), "data=…, a frozen type, the second argument"),
    **dict.fromkeys(("recursion_limit", "max_steps"), "limits=FlowLimits(steps=…)"),
    **dict.fromkeys(("timeout", "timeout_s", "deadline_s"), "limits=FlowLimits(deadline_s=…)"),
    **dict.fromkeys(("interrupt_before", "interrupt_after"), "a state that waits, @wait(Approve)"),
    **dict.fromkeys(("callbacks", "listeners"), "hooks=[…]"),
    "clients": "clients={state: Script(…)} of call",
}
FLOW_METHODS = {
    **dict.fromkeys(("invoke", "run_sync", "kickoff", "execute"), "call"),
    **dict.fromkeys(("ainvoke", "run_async", "kickoff_async"), "acall"),
    **dict.fromkeys(("stream_events", "iter", "iterate"), "stream"),
    **dict.fromkeys(("astream_events", "aiterate"), "astream"),
    **dict.fromkeys(("add_node", "add_edge", "add_conditional_edges", "add_transition"), "Flow(…, rows=[…])"),
    **dict.fromkeys(("set_entry_point", "add_state"), "Flow(…, start=…, rows=[…])"),
    **dict.fromkeys(("get_state", "update_state"), "resume(run_id, {state: answer})"),
    **dict.fromkeys(("get_graph", "draw", "draw_mermaid", "visualize", "mermaid_code"), "flow_diagram(flow)"),
    **dict.fromkeys(("as_tool", "to_tool"), "as_function"),
    **dict.fromkeys(("compile", "build"), "call: a flow is checked when it is made"),
}
FLOW_RESULT_WORDS = {
    **dict.fromkeys(("output", "value", "values", "result", "final_state"), "data"),
    **dict.fromkeys(("status", "node", "end", "name"), "state"),
    **dict.fromkeys(("steps", "history", "path"), "trace"),
    **dict.fromkeys(("cost", "total_cost", "cost_usd"), "usage.cost_usd, with prices=… of the agents"),
    **dict.fromkeys(("id", "run_id"), "record.id"),
}
CONVERSATION_WORDS = {
    **AGENT_METHODS,
    **dict.fromkeys(("say", "append", "add_message", "add_user_message", "turn"), "call"),
    **dict.fromkeys(("history", "messages", "chat_history", "memory", "dialog", "get_messages"), "read()"),
    **dict.fromkeys(("clear", "reset", "delete"), "a conversation of another name, or delete of the agent's runs"),
}
_A_MILLION = "in millionths of a dollar for a million tokens: 250_000 are $0.25"
PRICE_WORDS = {
    word: f"{name}_micro_usd=…, {_A_MILLION}"
    for name, words in {
        "input": ("input", "prompt", "input_usd", "input_cost_per_token"),
        "output": ("output", "completion", "output_usd", "output_cost_per_token"),
        "cached": ("cached", "cached_input", "cache_read"),
        "cache_write": ("cache_write", "cache_creation"),
    }.items()
    for word in words
}
MASKING_WORDS = {"keep": "keep_rounds=…", "max_tokens": "min_tokens=…"}


def explains_attributes(ours: Mapping[str, str]) -> Callable[[T], T]:
    """Return a decorator for a class: an attribute that is not there is answered with ours, if it is another library's.

    Args:
        ours: The equivalents.
    """

    def explain(cls: Any) -> Any:
        def __getattr__(self: Any, name: str) -> Any:
            raise unknown_attribute(self, name, ours)

        cls.__getattr__ = __getattr__
        return cls

    return explain


def unknown_attribute(owner: Any, name: str, ours: Mapping[str, str]) -> AttributeError:
    """Return the error for an attribute that ``owner`` does not have."""
    meant = remedy(name, (), ours) if name in ours else ""
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}{meant}", name=name, obj=owner)
