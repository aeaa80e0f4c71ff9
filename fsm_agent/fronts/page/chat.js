// The page of a chat: it shows the events of AG-UI.  Texts of models and people become text nodes, never HTML.
"use strict";
const $ = (id) => document.getElementById(id);
const log = $("log");
let thread = named() || newId();
let reading = null;

function named() {
  try { return decodeURIComponent(location.hash.slice(1)); } catch { return location.hash.slice(1); }
}
function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
function make(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
function add(element) {
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  log.append(element);
  if (isAtEnd) log.scrollTop = log.scrollHeight;
  return element;
}
function shown(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
// JSON whose numbers keep all of their digits: a long account number is shown, and sent back, as it is.
function parse(text) {
  return JSON.parse(text, (key, value, context) =>
    typeof value === "number" && JSON.rawJSON && context.source !== String(value) ? JSON.rawJSON(context.source) : value);
}
function pretty(text) {
  try { return JSON.stringify(parse(text), null, 2); } catch { return text; }
}

// One stream of events, into the log.
const calls = new Map();  // of all streams: a function is called in one, and has its result in the next
class View {
  constructor() { this.messages = new Map(); this.calls = calls; }
  take(event) {
    switch (event.type) {
      case "TEXT_MESSAGE_START":
      case "REASONING_MESSAGE_START": {
        const kind = event.type.startsWith("TEXT") ? "assistant" : "reasoning";
        this.messages.set(event.messageId, add(make("div", `message ${kind}${event.subagentRunId ? " inside" : ""}`)));
        break;
      }
      case "TEXT_MESSAGE_CONTENT":
      case "REASONING_MESSAGE_CONTENT":
        this.messages.get(event.messageId)?.append(event.delta);
        log.scrollTop = log.scrollHeight;
        break;
      case "TOOL_CALL_START": {
        const call = add(make("details", event.subagentRunId ? "inside" : ""));
        call.append(make("summary", "", event.toolCallName));
        this.calls.set(event.toolCallId, call);
        break;
      }
      case "TOOL_CALL_ARGS":
        this.calls.get(event.toolCallId)?.append(make("pre", "", pretty(event.delta)));
        break;
      case "TOOL_CALL_RESULT":
        this.calls.get(event.toolCallId)?.append(make("pre", "result", pretty(event.content)));
        break;
      case "STEP_STARTED":
        add(make("p", "state", event.stepName));
        break;
      case "STATE_SNAPSHOT":
        this.output ??= add(make("pre", "output"));
        this.output.textContent = shown(event.snapshot);
        break;
      case "CUSTOM":
        if (event.name === "said") said(event.value);
        else if (event.name === "left_out")
          add(make("p", "state", `Only the newest ${event.value.shown} turns of this conversation are shown.`));
        else this.calls.get(event.value?.toolCallId)?.append(make("pre", "progress", shown(event.value.data)));
        break;
      case "RUN_ERROR":
        add(make("p", "error", event.message));
        break;
      case "RUN_FINISHED":
        if (event.outcome?.type === "interrupt") asks(event.outcome.interrupts);
        else if (event.outcome?.type === "cancelled") add(make("p", "state", "cancelled"));
        else if (event.result !== undefined && !this.messages.size) add(make("pre", "output", shown(event.result)));
    }
  }
}
function said(value) {
  log.querySelectorAll(".asked").forEach((asked) => asked.remove());
  const message = add(make("div", "message user", value.text));
  for (const url of value.pictures ?? []) {
    const picture = make("img");
    picture.alt = "Picture";
    if (url.startsWith("data:image/")) picture.src = url;
    message.append(picture);
  }
}

// Questions: approvals with arguments that may be edited, and forms of the type that is asked for.
function asks(interrupts) {
  const asked = add(make("form", "asked"));
  asked.dataset.keys = JSON.stringify(interrupts.map((interrupt) => interrupt.id));
  const answers = interrupts.map((interrupt) => question(asked, interrupt));
  asked.addEventListener("submit", (event) => {
    event.preventDefault();
    const is_yes = event.submitter?.value !== "no";
    try {
      const resume = answers.map((answer) => answer(is_yes));
      asked.remove();
      send({ resume });
    } catch (error) {
      asked.append(make("p", "error", error.message));
    }
  });
  const row = asked.appendChild(make("div", "row"));
  const is_approval = interrupts.every((interrupt) => interrupt.reason === "approval");
  button(row, is_approval ? "Approve" : "Answer", "yes");
  if (interrupts.some((interrupt) => interrupt.reason === "approval")) button(row, "Deny", "no");
  log.scrollTop = log.scrollHeight;
}
function button(row, label, value) {
  const made = row.appendChild(make("button", value, label));
  made.value = value;
}
function question(asked, interrupt) {
  const about = interrupt.metadata?.about;
  if (interrupt.reason === "approval") {
    asked.append(make("p", "", `May ${about?.function ?? "the function"} be called?`));
    const before = JSON.stringify(about?.arguments ?? {}, null, 2);
    const box = field(asked, "Arguments", "textarea");
    box.value = before;
    box.rows = Math.min(12, before.split("\n").length);
    const reason = field(asked, "Reason, if denied", "input");
    return (is_yes) => {
      const payload = is_yes ? { approved: true } : { approved: false, reason: reason.value };
      if (is_yes && box.value !== before) payload.editedArgs = parse(box.value);
      return { interruptId: interrupt.id, status: "resolved", payload };
    };
  }
  asked.append(make("pre", "", shown(about?.question ?? about ?? "")));
  const read = form(asked, interrupt.responseSchema ?? { type: "string" }, "Answer");
  return () => ({ interruptId: interrupt.id, status: "resolved", payload: read() });
}
function number(text) {
  try { return parse(text); } catch { return Number(text); }  // "05" is no JSON
}
function field(parent, label, tag) {
  const made = parent.appendChild(make("label", "", label));
  return made.appendChild(make(tag));
}
function form(parent, schema, label, root = schema, isNeeded = true) {
  if (schema.$ref?.startsWith("#/$defs/")) schema = root.$defs?.[schema.$ref.slice(8)] ?? {};
  const kind = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (schema.enum) {
    const made = field(parent, label, "select");
    for (const value of schema.enum) made.append(new Option(shown(value), JSON.stringify(value)));
    return () => parse(made.value);
  }
  if (kind === "boolean") {
    const made = field(parent, label, "input");
    made.type = "checkbox";
    return () => made.checked;
  }
  if (kind === "integer" || kind === "number") {
    const made = field(parent, label, "input");
    made.type = "number";
    if (kind === "number") made.step = "any";
    return () => {
      if (made.value !== "") return number(made.value);
      if (isNeeded) throw new Error(`${label}: a number is needed`);
      return undefined;  // is left out
    };
  }
  if (kind === "object" && schema.properties) {
    const fields = Object.entries(schema.properties).map(([name, own]) => [name, form(parent, own, own.title ?? name, root, !!schema.required?.includes(name))]);
    return () => Object.fromEntries(fields.map(([name, read]) => [name, read()]));
  }
  const made = field(parent, label, "textarea");
  return () => {
    if (made.value === "" && !isNeeded) return undefined;  // is left out
    return kind === "string" || kind === undefined ? made.value : parse(made.value);
  };
}

// The server
async function follow(response, view) {
  if (!response.ok) {
    const told = await response.json().catch(() => ({ error: response.statusText }));
    throw new Error(told.error);
  }
  let rest = "";
  const decoder = new TextDecoder();
  for (const body = response.body.getReader(); ;) {
    const { done, value } = await body.read();
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("");
      if (!data) continue;
      const event = parse(data);
      if (event.type === "RUN_STARTED") view = new View();
      view.take(event);
      view.is_over = event.type === "RUN_FINISHED" || event.type === "RUN_ERROR";
      follow.is_over = view.is_over;
    }
  }
}
async function read(request, is_retry = false) {
  reading?.abort();
  const own = (reading = new AbortController());
  $("stop").hidden = false;
  follow.is_over = false;
  try {
    await follow(await request(own.signal), new View());
    if (!follow.is_over) throw new TypeError("the connection ended early");
  } catch (error) {
    if (own.signal.aborted) return;
    if (error instanceof TypeError) {  // the connection broke: what is missing is shown once it is back
      await new Promise((wake) => setTimeout(wake, is_retry ? 2000 : 300));
      if (!own.signal.aborted) return open(thread, true);
    } else if (error.message) add(make("p", "error", error.message));
  } finally {
    if (reading === own) { $("stop").hidden = true; list(); }
  }
}
function post(path, data, signal) {
  const headers = { "content-type": "application/json" };
  return fetch(path, { method: "POST", headers, signal, body: JSON.stringify(data) });
}
function send(more) {
  history.replaceState(null, "", `#${encodeURIComponent(thread)}`);
  const body = { threadId: thread, runId: newId(), state: {}, tools: [], context: [], messages: [], ...more };
  return read((signal) => post("agui", body, signal));
}
function open(name, is_retry = false) {
  thread = name;
  history.replaceState(null, "", `#${encodeURIComponent(thread)}`);
  return read(async (signal) => {
    const response = await fetch(`conversations/${encodeURIComponent(name)}`, { signal });
    log.replaceChildren();
    calls.clear();
    return response;
  }, is_retry);
}
async function list() {
  let found, hasMore;
  try {
    const response = await fetch("conversations");
    found = await response.json();
    hasMore = response.headers.has("x-has-more");
  } catch { return; }
  $("conversations").replaceChildren(...found.map((one) => {
    const item = make("li");
    const made = item.appendChild(make("button", "", `${one.asks.length ? "? " : ""}${one.title}`));
    made.type = "button";
    if (one.name === thread) made.setAttribute("aria-current", "true");
    made.addEventListener("click", () => open(one.name));
    return item;
  }), ...(hasMore ? [make("li", "state", `Only the newest ${found.length} are listed.`)] : []));
  const asked = log.querySelector(".asked");
  const still = found.find((one) => one.name === thread)?.asks;
  if (asked && still && $("stop").hidden && !JSON.parse(asked.dataset.keys).every((key) => still.includes(key))) open(thread);
}
async function pictureUrl(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}
$("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = $("text").value.trim();
  const file = $("picture").files[0];
  if (!text && !file) return;
  const content = [{ type: "text", text }];
  const pictures = [];
  if (file) {
    const value = await pictureUrl(file);
    content.push({ type: "image", source: { type: "data", value, mimeType: file.type } });
    pictures.push(`data:${file.type};base64,${value}`);
  }
  $("ask").reset();
  $("named").textContent = "";
  said({ text, pictures });
  send({ messages: [{ id: newId(), role: "user", content }] });
});
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("ask").requestSubmit();
  }
});
$("picture").addEventListener("change", () => { $("named").textContent = $("picture").files[0]?.name ?? ""; });
$("stop").addEventListener("click", () => post(`conversations/${encodeURIComponent(thread)}/cancel`, {}));
$("new").addEventListener("click", () => {
  reading?.abort();
  reading = null;
  $("stop").hidden = true;
  thread = newId();
  history.replaceState(null, "", location.pathname);
  log.replaceChildren();
  calls.clear();
  $("text").focus();
  list();
});
// What is asked here may be answered elsewhere: in another tab, or at the command line.
setInterval(() => { if (!document.hidden && log.querySelector(".asked")) list(); }, 2000);
if (location.hash.length > 1) open(thread);
list();
