// The official client of AG-UI talks with the service; what it saw goes to stdout as JSON.
import { HttpAgent, buildResumeArray } from "@ag-ui/client";
import { EventSchemas } from "@ag-ui/core/schemas";

const [base] = process.argv.slice(2);
const seen = {};
let number = 0;

async function run(agent, parameters = {}) {
  const events = [];
  try {
    await agent.runAgent(parameters, {
      onEvent: ({ event }) => { events.push(event); },
    });
  } catch (error) {
    events.push({ type: "THROWN", message: error.message });
  }
  return events;
}
function agent(path, thread) {
  return new HttpAgent({ url: `${base}${path}`, threadId: thread });
}
function say(agent, content) {
  agent.addMessage({ id: `u${number++}`, role: "user", content });
  return run(agent);
}
const types = (events) => events.map((event) => event.type);
const shown = (agent) => agent.messages.map(({ role, content, toolCalls, toolCallId, error }) => (
  { role, content, toolCalls: toolCalls?.map((call) => [call.id, call.function.name, call.function.arguments]), toolCallId, error }));

for (const path of ["/agui", "/plain"]) {
  const one = agent(path, `hello${path}`);
  await say(one, "hello");
  await say(one, "the weather?");
  await say(one, "translate");
  await say(one, "broken");
  seen[`talk${path}`] = shown(one);
  const failing = agent(path, `fail${path}`);
  seen[`fail${path}`] = (await say(failing, "fail")).at(-1);
}
{
  const one = agent("/agui", "refund");
  await say(one, "refund");
  const asked = one.pendingInterrupts;
  seen.asked = asked;
  const answer = { status: "resolved", payload: { approved: true, editedArgs: { order: "B-2", euros: 5 } } };
  await run(one, { resume: buildResumeArray(asked, { [asked[0].id]: answer }) });
  seen.answered = shown(one);
  one.pendingInterrupts = asked;
  seen.again = (await run(one, { resume: buildResumeArray(asked, { [asked[0].id]: answer }) })).at(-1);
}
{
  const one = agent("/flow", "letter");
  seen.flow = types(await say(one, "the delay"));
  const asked = one.pendingInterrupts;
  const answers = { [asked[0].id]: { status: "resolved", payload: "fine" } };
  seen.letter = (await run(one, { resume: buildResumeArray(asked, answers) })).at(-1);
}
{  // the client goes away: the run goes on, also without a store, until the service cancels it
  const one = agent("/plain", "away");
  one.addMessage({ id: "u", role: "user", content: "slow" });
  const running = run(one);
  await fetch(`${base}/began`);
  one.abortRun();
  await running;
  seen.cancelled = await (await fetch(`${base}/plain/away/cancel`)).json();
}
{  // a connection that breaks in the middle: with a store the run goes on, and is shown again from its beginning
  const breaking = new AbortController();
  const body = { threadId: "broken", runId: "rb", messages: [{ id: "1", role: "user", content: "slow" }], tools: [], context: [], state: {} };
  const response = await fetch(`${base}/agui`, { method: "POST", signal: breaking.signal, headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  let got = "";
  try {
    for await (const piece of response.body) {
      got += Buffer.from(piece).toString();
      if (got.includes("TOOL_CALL_END")) breaking.abort();
    }
  } catch {}
  await fetch(`${base}/go`);
  const whole = await (await fetch(`${base}/agui/broken/events`)).text();
  const events = whole.split("\n").filter((line) => line.startsWith("data: ")).map((line) => JSON.parse(line.slice(6)));
  seen.broken = types(events);
}
{
  const all = await (await fetch(`${base}/all/agui`)).json();
  seen.invalid = all.filter((event) => !EventSchemas.safeParse(event).success);
  seen.checked = all.length;
}
console.log(JSON.stringify(seen));
