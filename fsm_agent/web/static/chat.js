// The page of a chat: it shows the events of AG-UI.  What people and functions say becomes text nodes.  What a model says
// is Markdown: `marked` makes HTML of it, and `DOMPurify` lets only the tags of the list below through.
"use strict";
const $ = (id) => document.getElementById(id);
const log = $("log");
let thread = named() || newId();
let reading = null;

const TAGS = "a b blockquote br code del em h1 h2 h3 h4 h5 h6 hr i li ol p pre strong table tbody td th thead tr ul".split(" ");
const LINK = /^(?:https?:|mailto:)/i;  // of no other kind; and no picture is loaded from elsewhere
DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  node.target = "_blank";
  node.rel = "noopener noreferrer nofollow";
});
// HTML in a message is shown as text, and a picture as its words.
const asText = ({ text }) => text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
marked.use({ gfm: true, renderer: { html: asText, image: asText } });
function markdown(text) {
  const made = marked.parse(text, { async: false });
  return DOMPurify.sanitize(made, {
    ALLOWED_TAGS: TAGS, ALLOWED_ATTR: ["href", "align", "start"],
    ALLOWED_URI_REGEXP: LINK, ADD_URI_SAFE_ATTR: ["align", "start"],
    RETURN_DOM_FRAGMENT: true,
  });
}

// A message of a model while it grows: shown anew at most ten times a second, and less often if that takes long.
class Growing {
  constructor(element) { this.element = element; this.text = ""; this.next = 0; }
  add(piece) {
    this.text += piece;
    this.timer ??= setTimeout(() => this.show(), Math.max(0, this.next - performance.now()));
  }
  show() {
    clearTimeout(this.timer);
    this.timer = undefined;
    const began = performance.now(), isAtEnd = atEnd();
    this.element.replaceChildren(markdown(this.text));
    const ended = performance.now();
    this.next = ended + Math.max(100, 10 * (ended - began));
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  }
}

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
function atEnd() {
  return log.scrollHeight - log.scrollTop - log.clientHeight < 80;
}
function add(element) {
  log.querySelector(".empty")?.remove();
  const isAtEnd = atEnd();
  log.append(element);
  if (isAtEnd) log.scrollTop = log.scrollHeight;
  return element;
}
function clear(isEmpty) {
  log.replaceChildren();
  calls.clear();
  if (isEmpty) log.append($("empty").content.cloneNode(true));
  compose();
}
// One question at a time: as long as one is open, nothing else is said.
function compose() {
  const isAsked = log.querySelector(".asked") !== null;
  for (const id of ["text", "send", "picture", "remove"]) $(id).disabled = isAsked;
  $("text").placeholder = isAsked ? "Answer the question above first" : "Message";
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

// What went wrong, for people who do not run the service.
const TROUBLE = {
  model_failed: "The model could not be reached. Please try again later.",
  expired: "This took too long and was ended.",
  over_budget: "This would have cost too much and was ended.",
  Conflict: "The turn before this one is not finished. Please reload the page to continue it.",
  NotAsked: "This question has been answered already.",
  AlreadyAnswered: "This question has been answered already.",
  RunBusy: "This conversation is still busy. Please try again in a moment.",
  internal: "Something went wrong. Please try again; if it happens again, tell the people who run this service.",
};
const PLAIN = ["too_large", "bad_part", "bad_answer", "too_many", "for_operators"];  // errors whose text is for people
function trouble(code, message) {
  return PLAIN.includes(code) ? message : TROUBLE[code] ?? TROUBLE.internal;
}

// One stream of events, into the log.
const calls = new Map();  // of all streams: a function is called in one, and has its result in the next
class View {
  constructor(sent) { this.messages = new Map(); this.calls = calls; this.sent = sent; }
  take(event) {
    if (this.sent) {  // what was refused has no start
      const sent = this.sent;
      this.sent = undefined;
      if (event.type === "RUN_ERROR" && sent.refused(event)) return;
      sent.taken();
    }
    switch (event.type) {
      case "TEXT_MESSAGE_START": {
        const message = add(make("div", `message assistant${event.subagentRunId ? " inside" : ""}`));
        this.messages.set(event.messageId, new Growing(message));
        break;
      }
      case "REASONING_MESSAGE_START":
        this.messages.set(event.messageId, add(make("div", `message reasoning${event.subagentRunId ? " inside" : ""}`)));
        break;
      case "TEXT_MESSAGE_CONTENT":
        this.messages.get(event.messageId)?.add(event.delta);
        break;
      case "TEXT_MESSAGE_END":
        this.messages.get(event.messageId)?.show();
        break;
      case "REASONING_MESSAGE_CONTENT": {
        const isAtEnd = atEnd();
        this.messages.get(event.messageId)?.append(event.delta);
        if (isAtEnd) log.scrollTop = log.scrollHeight;
        break;
      }
      case "TOOL_CALL_START": {
        const call = add(make("details", `call${event.subagentRunId ? " inside" : ""}`));
        const summary = call.appendChild(make("summary", "", event.toolCallName));
        summary.append(make("span", "how", "running"));
        this.calls.set(event.toolCallId, call);
        break;
      }
      case "TOOL_CALL_ARGS":
        this.calls.get(event.toolCallId)?.append(make("pre", "", pretty(event.delta)));
        break;
      case "TOOL_CALL_RESULT":
        ended(this.calls.get(event.toolCallId), event);
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
        add(make("p", "error", trouble(event.code, event.message)));
        break;
      case "RUN_FINISHED":
        if (event.outcome?.type === "interrupt") asks(event.outcome.interrupts);
        else if (event.outcome?.type === "cancelled") add(make("p", "state", "Stopped"));
        else if (event.result !== undefined && !this.messages.size) add(make("pre", "output", shown(event.result)));
    }
  }
}
// The outcome and the time of a function, beside its name; a failure looks like one.
function ended(call, event) {
  if (!call) return;
  const facts = event.rawEvent ?? {};
  const time = facts.duration_s === undefined ? "" : `, ${seconds(facts.duration_s)}`;
  call.classList.add(facts.outcome ?? "done");
  call.querySelector(".how").textContent = `${facts.outcome ?? "done"}${time}`;
  call.append(make("pre", "result", pretty(event.content)));
}
function seconds(time) {
  time = Number(JSON.stringify(time));  // it may be a number with all of its digits
  return time < 1 ? `${Math.round(1000 * time)} ms` : `${time.toFixed(1)} s`;
}
function said(value) {
  const message = add(make("div", "message user", value.text));
  for (const url of value.pictures ?? []) {
    const picture = make("img");
    picture.alt = "Picture";
    if (url.startsWith("data:image/")) picture.src = url;
    message.append(picture);
  }
  return message;
}

// Questions: approvals with arguments that may be edited, and forms of the type that is asked for.
const USERS = ["approval", "answer", "result"];  // the other kinds are for operators
function asks(interrupts) {
  const asked = add(make("form", "asked"));
  asked.noValidate = true;  // each error is told beside its field, in one way
  asked.dataset.keys = JSON.stringify(interrupts.map((interrupt) => interrupt.id));
  if (interrupts.some((interrupt) => !USERS.includes(interrupt.reason))) {
    asked.append(make("p", "state", "This was interrupted, and an operator has to look at it first. You can stop it."));
    const stop = asked.appendChild(make("div", "row")).appendChild(make("button", "no", "Stop"));
    stop.type = "button";
    stop.addEventListener("click", cancel);
    compose();
    return;
  }
  const answers = interrupts.map((interrupt) => question(asked, interrupt));
  // Enter in a field would press the first button, and approve what is being denied.
  asked.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.tagName === "INPUT") event.preventDefault();
  });
  asked.addEventListener("submit", (event) => {
    event.preventDefault();
    const is_yes = event.submitter?.value !== "no";
    const resume = [];
    asked.querySelectorAll(".error").forEach((error) => error.remove());
    for (const answer of answers) {
      try { resume.push(answer(is_yes)); } catch (error) { blame(error.field ?? asked, error.message); }
    }
    if (resume.length < answers.length) return;
    const fields = asked.querySelectorAll("button, input, select, textarea");
    const hold = (is_held) => fields.forEach((field) => { field.disabled = is_held; });
    hold(true);  // it stays until it is answered: an answer may be refused
    send({ resume }, {
      taken() { asked.remove(); compose(); },
      refused(error) {
        if (!asked.isConnected) return false;
        hold(false);
        blameAt(asked, trouble(error.code, error.message));
        return true;
      },
    });
  });
  const row = asked.appendChild(make("div", "row"));
  const is_approval = interrupts.every((interrupt) => interrupt.reason === "approval");
  button(row, is_approval ? "Approve" : "Answer", "yes");
  if (interrupts.some((interrupt) => interrupt.reason === "approval")) button(row, "Deny", "no");
  log.scrollTop = log.scrollHeight;
  compose();
}
function blame(where, message) {
  where.append(make("span", "error", message));
  where.closest(".asked")?.scrollIntoView({ block: "nearest" });  // the buttons below it as well
  where.querySelector("input, select, textarea")?.focus();
}
// Put an error at the field that it names, as "euros: …" does; else at the first field.
function blameAt(asked, message) {
  const labels = [...asked.querySelectorAll("label")];
  const name = /^([\w. ]+): /.exec(message)?.[1]?.split(".")[0];
  blame(labels.find((label) => label.dataset.name === name) ?? labels[0] ?? asked, message);
}
function button(row, label, value) {
  const made = row.appendChild(make("button", value === "yes" ? "yes main" : value, label));
  made.value = value;
}
function question(asked, interrupt) {
  const about = interrupt.metadata?.about;
  const how = calls.get(interrupt.toolCallId)?.querySelector(".how");
  if (how) how.textContent = "waits for you";
  if (interrupt.reason === "approval") {
    asked.append(make("p", "", `Allow ${about?.function ?? "this"} to run?`));
    const given = about?.arguments ?? {};
    const schema = interrupt.responseSchema?.properties?.editedArgs ?? {};
    const read = hasFields(schema, given) ? form(asked, schema, "", schema, true, "", given) : json(asked, "Arguments", given);
    const before = JSON.stringify(read());
    const reason = field(asked, "Reason for denying (optional)", "input");
    return (is_yes) => {
      if (!is_yes) return { interruptId: interrupt.id, status: "resolved", payload: { approved: false, reason: reason.value } };
      const now = read();
      const payload = JSON.stringify(now) === before ? { approved: true } : { approved: true, editedArgs: now };
      return { interruptId: interrupt.id, status: "resolved", payload };
    };
  }
  if (interrupt.reason === "result") asked.append(make("p", "", `What is the result of ${about?.function ?? "the function"}?`));
  asked.append(make("pre", "", shown(about?.question ?? about ?? "")));
  const read = form(asked, interrupt.responseSchema ?? { type: "string" }, "Answer");
  return () => ({ interruptId: interrupt.id, status: "resolved", payload: read() });
}
// Characters that a browser does not draw, or that reorder others, as escapes of JSON: what is approved has to be seen.
// Joiners within a word or an emoji of another script, and the mark that colors an emoji, are part of what is drawn.
const UNSEEN = /(?!(?<=[^\0-\x7F\p{DI}]\uFE0F?)[\u200C\u200D](?=[^\0-\x7F\p{DI}]))(?!(?<=\p{ExtPict})\uFE0F)[\p{DI}\p{Zl}\p{Zp}\0-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F]/gu;
function escaped(text) {
  const unit = (at) => `\\u${at.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return text.replace(UNSEEN, (unseen) => unseen.split("").map(unit).join(""));
}
// Whether a form can show arguments: each has a simple type, and its value fits (a masked number is a text).
function hasFields(schema, given) {
  const fits = ([name, own]) => {
    const value = given[name];
    if (own.enum) return value === undefined || own.enum.some((one) => JSON.stringify(one) === JSON.stringify(value));
    if (own.type === "integer" || own.type === "number")
      return value === undefined || typeof value === "number" || JSON.isRawJSON?.(value) === true;
    if (typeof value === "string" && escaped(value) !== value) return false;
    return ["string", "boolean"].includes(own.type) && (value === undefined || typeof value === own.type);
  };
  const fields = Object.entries(schema.properties ?? {});
  return fields.length > 0 && fields.every(fits) && Object.keys(given).every((name) => Object.hasOwn(schema.properties, name));
}
function json(parent, label, value) {
  const box = field(parent, label, "textarea");
  box.value = escaped(JSON.stringify(value, null, 2));
  box.rows = Math.min(12, box.value.split("\n").length);
  return () => at(box, () => parse(box.value), "this is not valid JSON");
}
function number(text) {
  try { return parse(text); } catch { return Number(text); }  // "05" is no JSON
}
function field(parent, label, tag, name = label) {
  const made = parent.appendChild(make("label", "", label));
  made.dataset.name = name;
  return made.appendChild(make(tag));
}
// What a field says; what is wrong with it is told beside it.
function at(made, read, problem) {
  try { return read(); } catch { throw Object.assign(new Error(problem), { field: made.closest("label") }); }
}
function form(parent, schema, label, root = schema, isNeeded = true, name = label, value = schema.default) {
  const about = isNeeded ? label : `${label} (optional)`;
  if (schema.$ref?.startsWith("#/$defs/")) schema = root.$defs?.[schema.$ref.slice(8)] ?? {};
  const kind = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (schema.enum) {
    const made = field(parent, about, "select", name);
    if (!isNeeded) made.append(new Option("", ""));
    for (const one of schema.enum) made.append(new Option(shown(one), JSON.stringify(one)));
    if (value !== undefined) made.value = JSON.stringify(value);
    return () => (made.value === "" ? undefined : parse(made.value));
  }
  if (kind === "boolean") {
    const made = field(parent, label, "input", name);
    made.type = "checkbox";
    made.checked = value === true;
    return () => made.checked;
  }
  if (kind === "integer" || kind === "number") {
    const made = field(parent, about, "input", name);
    made.type = "number";
    if (kind === "number") made.step = "any";
    if (value !== undefined) made.value = JSON.stringify(value);
    return () => {
      if (made.value !== "") return number(made.value);
      if (isNeeded) at(made, () => { throw new Error(); }, "please enter a number");
      return undefined;  // is left out
    };
  }
  if (kind === "object" && schema.properties) {
    const fields = Object.entries(schema.properties).map(([name, own]) => [name, form(parent, own, own.title ?? name, root, !!schema.required?.includes(name), name, value?.[name])]);
    return () => Object.fromEntries(fields.map(([name, read]) => [name, read()]));
  }
  const made = field(parent, about, "textarea", name);
  if (value !== undefined) made.value = shown(value);
  made.rows = Math.min(6, made.value.split("\n").length);
  return () => {
    if (made.value === "" && !isNeeded) return undefined;  // is left out
    return kind === "string" || kind === undefined ? made.value : at(made, () => parse(made.value), "this is not valid JSON");
  };
}

// The server
class Refused extends Error {}  // by the server
async function follow(response, view) {
  if (!response.ok) {
    const told = await response.json().catch(() => ({ error: response.statusText }));
    throw new Refused(trouble(told.code ?? "internal", told.error));
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
      try {
        const event = parse(data);
        if (event.type === "RUN_STARTED") view = new View(view.sent);
        view.take(event);
        follow.is_over = event.type === "RUN_FINISHED" || event.type === "RUN_ERROR";
      } catch (error) {  // a fault of this page: read again, it would fail again
        console.error(error);
        throw new Error("This page could not show the rest. Please reload it.");
      }
    }
  }
}
async function read(request, is_retry = false, sent = undefined) {
  reading?.abort();
  const own = (reading = new AbortController());
  $("stop").hidden = false;
  follow.is_over = false;
  try {
    await follow(await request(own.signal), new View(sent));
    if (!follow.is_over) throw new TypeError("the connection ended early");
  } catch (error) {
    if (own.signal.aborted) return;
    if (error instanceof TypeError) {  // the connection broke: what is missing is shown once it is back
      await new Promise((wake) => setTimeout(wake, is_retry ? 2000 : 300));
      if (!own.signal.aborted) return open(thread, true);
    } else if (!(error instanceof Refused && sent?.refused({ code: "bad_answer", message: error.message })))
      add(make("p", "error", error.message));
  } finally {
    if (reading === own) { $("stop").hidden = true; list(); }
  }
}
function post(path, data, signal) {
  const headers = { "content-type": "application/json" };
  return fetch(path, { method: "POST", headers, signal, body: JSON.stringify(data) });
}
async function cancel() {
  await post(`conversations/${encodeURIComponent(thread)}/cancel`, {});
  if ($("stop").hidden) open(thread);  // else it is being read
}
function send(more, sent) {
  history.replaceState(null, "", `#${encodeURIComponent(thread)}`);
  const body = { threadId: thread, runId: newId(), state: {}, tools: [], context: [], messages: [], ...more };
  return read((signal) => post("agui", body, signal), false, sent);
}
function open(name, is_retry = false) {
  thread = name;
  history.replaceState(null, "", `#${encodeURIComponent(thread)}`);
  return read(async (signal) => {
    const response = await fetch(`conversations/${encodeURIComponent(name)}`, { signal });
    clear(false);
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
    const made = item.appendChild(make("button", "", one.title));
    made.type = "button";
    made.title = one.title;  // the list cuts a long one
    made.append(make("span", "when", `${when(one.at_s)}${one.asks.length ? " · waits for an answer" : ""}`));
    if (one.name === thread) made.setAttribute("aria-current", "true");
    made.addEventListener("click", () => { side(false); open(one.name); });
    return item;
  }), ...(hasMore ? [make("li", "state", `Only the newest ${found.length} are listed.`)] : []));
  const asked = log.querySelector(".asked");
  const still = found.find((one) => one.name === thread)?.asks;
  if (asked && still && $("stop").hidden && !JSON.parse(asked.dataset.keys).every((key) => still.includes(key))) open(thread);
}
// The time of today, the day of this year, or the date.
function when(at_s) {
  if (!at_s) return "";
  const at = new Date(1000 * at_s), now = new Date();
  if (at.toDateString() === now.toDateString()) return at.toLocaleTimeString([], { hour: "numeric", minute: "2-digit" });
  return at.toLocaleDateString([], { day: "numeric", month: "short", ...(at.getFullYear() === now.getFullYear() ? {} : { year: "numeric" }) });
}
// On a phone, the list of conversations is shown on demand.
function side(isOpen) {
  document.body.classList.toggle("side", isOpen);
  $("show").setAttribute("aria-expanded", String(isOpen));
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
  if ((!text && !file) || log.querySelector(".asked")) return;
  const content = [{ type: "text", text }];
  const pictures = [];
  if (file) {
    const value = await pictureUrl(file);
    content.push({ type: "image", source: { type: "data", value, mimeType: file.type } });
    pictures.push(`data:${file.type};base64,${value}`);
  }
  $("ask").reset();
  attached();
  const message = said({ text, pictures });
  send({ messages: [{ id: newId(), role: "user", content }] }, {
    taken() {},
    refused(error) {  // what was written is not lost
      message.classList.add("refused");
      message.append(make("span", "error", `Not sent: ${trouble(error.code, error.message)}`));
      if (!$("text").value) $("text").value = text;
      if (file && !$("picture").files.length) attach(file);
      return true;
    },
  });
});
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("ask").requestSubmit();
  }
});
function attach(file) {
  const files = new DataTransfer();  // what else a page may put into the field
  files.items.add(file);
  $("picture").files = files.files;
  attached();
}
function attached() {
  const file = $("picture").files[0];
  $("named").textContent = file?.name ?? "";
  $("remove").hidden = !file;
}
$("picture").addEventListener("change", attached);
$("remove").addEventListener("click", () => { $("picture").value = ""; attached(); $("text").focus(); });
$("stop").addEventListener("click", cancel);
$("new").addEventListener("click", () => {
  reading?.abort();
  reading = null;
  $("stop").hidden = true;
  thread = newId();
  history.replaceState(null, "", location.pathname);
  clear(true);
  side(false);
  $("text").focus();
  list();
});
// What is asked here may be answered elsewhere: in another tab, or at the command line.
setInterval(() => { if (!document.hidden && log.querySelector(".asked")) list(); }, 2000);
$("show").addEventListener("click", () => side(!document.body.classList.contains("side")));
if (location.hash.length > 1) open(thread);
else clear(true);
list();
