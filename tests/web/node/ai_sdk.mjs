// The AI SDK's own chat talks with the service; what it saw goes to stdout as JSON.
import { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, uiMessageChunkSchema } from "ai";

const [base] = process.argv.slice(2);
const seen = {};

class State {
  constructor(messages = []) { this.messages = messages; this.status = "ready"; this.error = undefined; }
  pushMessage = (message) => { this.messages = this.messages.concat(message); };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => { this.messages = [...this.messages.slice(0, index), message, ...this.messages.slice(index + 1)]; };
  snapshot = (value) => structuredClone(value);
}
class Chat extends AbstractChat {
  constructor({ messages, ...init }) { super({ ...init, state: new State(messages) }); }
}
let idle;
function chat(api, id, messages) {
  const errors = [];
  const made = new Chat({
    id, messages, transport: new DefaultChatTransport({ api: `${base}${api}` }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    onError: (error) => errors.push(error.message), onFinish: () => idle?.(),
  });
  made.errors = errors;
  return made;
}
const finished = () => new Promise((resolve) => { idle = resolve; });
const shown = (chat) => chat.messages.map(({ role, parts }) => [role, parts.filter((part) => part.type !== "step-start")
  .map((part) => part.text ?? { type: part.type, name: part.toolName, state: part.state, input: part.input, output: part.output, error: part.errorText, data: part.data })]);

for (const api of ["/chat", "/plainchat"]) {
  const one = chat(api, `talk${api}`);
  for (const text of ["hello", "the weather?", "broken", "translate"]) await one.sendMessage({ text });
  seen[`talk${api}`] = shown(one);
  const failing = chat(api, `fail${api}`);
  await failing.sendMessage({ text: "fail" });
  seen[`fail${api}`] = failing.errors;
}
for (const approved of [true, false]) {
  const one = chat("/chat", `refund${approved}`);
  await one.sendMessage({ text: "refund" });
  const part = one.messages.at(-1).parts.find((part) => part.approval);
  seen.asked = [part.type, part.state, part.toolName, part.input];
  const done = finished();
  await one.addToolApprovalResponse({ id: part.approval.id, approved, reason: approved ? undefined : "no" });
  await done;
  seen[`approved_${approved}`] = shown(one);
}
{  // edited arguments, and the answer of a flow, are parts of a message
  const one = chat("/chat", "edited");
  await one.sendMessage({ text: "refund" });
  await one.sendMessage({ parts: [{ type: "data-answer", data: { key: "ask:1.0", approved: true, arguments: { order: "B-2", euros: 5 } } }] });
  seen.edited = shown(one);
  const letter = chat("/flowchat", "letter");
  await letter.sendMessage({ text: "the delay" });
  const question = letter.messages.at(-1).parts.find((part) => part.type === "data-question");
  seen.question = question.data;
  await letter.sendMessage({ parts: [{ type: "data-answer", data: { key: question.data.key, value: "fine" } }] });
  seen.letter = shown(letter);
}
{  // a reload while it goes on, and after its end
  const one = chat("/chat", "reload");
  const sent = one.sendMessage({ text: "slow" });
  await fetch(`${base}/began`);
  const reloaded = chat("/chat", "reload", structuredClone(one.messages.slice(0, 1)));
  const resumed = reloaded.resumeStream();
  await fetch(`${base}/followed`);
  await fetch(`${base}/go`);
  await Promise.all([sent, resumed]);
  seen.reload = [shown(one), shown(reloaded)];
  const late = chat("/chat", "reload", structuredClone(one.messages));
  await late.resumeStream();
  seen.late = shown(late).length;
}
{
  const all = await (await fetch(`${base}/all/ai`)).json();
  const schema = uiMessageChunkSchema();
  const checks = await Promise.all(all.map(async (chunk) => [chunk, await schema.validate(chunk)]));
  seen.invalid = checks.filter(([, check]) => !check.success).map(([chunk]) => chunk);
  seen.checked = all.length;
}
console.log(JSON.stringify(seen));
