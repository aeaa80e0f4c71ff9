"""The words of other libraries, with what is right here, and the errors that say so.

`WORDS` is the only table.  A word is looked for where it is unknown: as an argument, an attribute, an import or a key
of a configuration, so each entry reads right in all of these places.
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
IMPORTS: Mapping[str, str] = {word: right for right, words in _IMPORTED.items() for word in words.split()}
WORDS: Mapping[str, str] = {word: right for right, words in _USED.items() for word in words.split()} | dict(IMPORTS)


def remedy(word: str, known: Iterable[str] = (), ours: Mapping[str, str] = WORDS) -> str:
    """Return the end of a message about an unknown word: what is right here, or the nearest of those that are known."""
    known = list(known)
    return f": here that is {ours[word]}" if word in ours else hint(word, known) if known else ""


def hinting(cls: T) -> T:
    """Decorate a class: its errors for unknown attributes, and for unknown arguments of a dataclass, say what is right.

    Python's own error for an argument names a near one from 3.13 on, and never a word of ours for one of another
    library.
    """
    made: Any = cls

    def __getattr__(self: Any, name: str) -> Any:
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}{remedy(name)}", name=name, obj=self
        )

    made.__getattr__ = __getattr__
    if is_dataclass(cls):
        made.__init__ = _hinting_init(made, made.__init__)
    return cls


def unknown_attribute(owner: Any, name: str, ours: Mapping[str, str]) -> AttributeError:
    """Return the error for an attribute that ``owner`` does not have."""
    meant = remedy(name, (), ours) if name in ours else ""
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}{meant}", name=name, obj=owner)
