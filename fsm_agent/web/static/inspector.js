"use strict";
// Pages are whole as the server writes them.  This lights what is there, moves through it, and takes in what is new.

const $ = (what, where = document) => where.querySelector(what);
const $$ = (what, where = document) => [...where.querySelectorAll(what)];
const root = document.documentElement, base = root.dataset.base, live = $("#live"), banner = $("#banner");
const address = (path, query = {}) => `${base}/${path}?${new URLSearchParams(query)}`;

function tell(text) { banner.hidden = !text; banner.textContent = text; }

async function get(path, query) {
  const answer = await fetch(address(path, query));
  if (!answer.ok) throw new Error(await answer.text());
  return answer;
}

function pieces(html) {
  const made = document.createElement("template");
  made.innerHTML = html;
  return made.content;
}

// Dark and light

const dark = matchMedia("(prefers-color-scheme: dark)"), themes = ["auto", "light", "dark"];
let theme = localStorage.getItem("fsm_agent_theme") || "auto";
function paint() {
  root.classList.toggle("dark", theme === "dark" || (theme === "auto" && dark.matches));
  $("#theme").textContent = `theme: ${theme}`;
}
function nextTheme() {
  theme = themes[(themes.indexOf(theme) + 1) % 3];
  localStorage.setItem("fsm_agent_theme", theme);
  paint();
}
dark.addEventListener("change", paint);
$("#theme").onclick = nextTheme;
$("#keys").onclick = () => $("#help").showModal();
$("#theme").hidden = $("#keys").hidden = false;
paint();

// Keys

const keys = { t: nextTheme, "?": () => $("#help").showModal() };
const isWritten = (target) => target.matches("textarea, select, input:not([type=range], [type=checkbox], [type=radio])");
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("#help").open) return;
  if (isWritten(event.target)) { if (event.key === "Escape") event.target.blur(); return; }
  const act = keys[event.key];
  if (!act || (/^( |Enter)$/.test(event.key) && event.target.closest("a, button, summary, input"))) return;
  if (event.key.startsWith("Arrow") && event.target.matches("[type=radio]")) return;
  event.preventDefault();
  act();
});

// Live: one stream for a page that is seen.  A hidden one leaves it, as a browser has six connections to a host.

function follow(id, known, take) {
  const words = { gone: "This run was deleted.", away: "The store cannot be read now.",
    replaced: "Another file has taken the place of the store: this is the one before. Begin the inspector anew." };
  let source = null, isBusy = false, newest = known, retry = 0;
  const say = (text, kind) => { if (live.className !== "live past") { live.textContent = text; live.className = `live ${kind}`; } };
  async function heed(mark) {
    newest = mark;
    tell(words[mark] || "");
    if (words[mark] || isBusy) return;
    isBusy = true;
    try {
      while (known !== newest && !words[newest]) { const wanted = newest; await take(); known = wanted; }
    } catch (error) { tell(`No news: ${error.message}`); }
    isBusy = false;
  }
  function open() {
    clearTimeout(retry);
    if (source) source.close();
    source = new EventSource(address("events", id ? { id } : {}));
    source.onopen = () => say("live", "on");
    source.onerror = () => { say("not live", ""); if (source.readyState === EventSource.CLOSED) retry = setTimeout(open, 3000); };
    source.onmessage = (event) => heed(event.data);
  }
  function close() { clearTimeout(retry); if (source) source.close(); source = null; say("paused", ""); }
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  if (!document.hidden) open();
}

// Moments, as words

const span = (s) => (s < 1 ? `${Math.round(s * 1000)} ms` : s < 60 ? `${s.toFixed(1)} s` : s < 3600 ? `${Math.floor(s / 60)} min ${Math.round(s % 60)} s` : s < 172800 ? `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min` : `${Math.floor(s / 86400)} days`);
function ago(at) {
  const s = Math.max(0, Date.now() / 1000 - at);
  return s < 1 ? "now" : s < 60 ? `${Math.floor(s)} s ago` : s < 3600 ? `${Math.floor(s / 60)} min ago` : s < 86400 ? `${Math.floor(s / 3600)} h ago` : `${Math.floor(s / 86400)} d ago`;
}
setInterval(() => {
  for (const time of $$("time[data-at]")) time.textContent = ago(+time.dataset.at);
  for (const time of $$("[data-since]")) time.textContent = span(Math.max(0, Date.now() / 1000 - time.dataset.since));
}, 5000);

const page = $("[data-page]");
if (page && page.dataset.page === "list") listPage();
if (page && page.dataset.page === "run") runPage();

function listPage() {
  const filters = $("#filters"), rows = $("#rows"), all = () => $$("tr[data-id]", rows);
  let chosen = "", timer = 0, last = 0, picked = [];
  const wish = () => [...new FormData(filters)].filter(([, value]) => value);

  async function load(isNew) {
    const query = new URLSearchParams(wish()), mine = ++last;
    const after = new URLSearchParams(location.search).get("after");
    if (isNew) history.replaceState(null, "", `${base}/?${query}`);
    else if (after) query.set("after", after);
    const before = new Map(all().map((row) => [row.dataset.id, row.dataset.version]));
    const html = await (await get("", [...query, ["rows", "1"]])).text();
    if (mine !== last) return;  // a later one is on its way
    const held = document.activeElement && rows.contains(document.activeElement) ? document.activeElement.closest("tr") : null;
    const heldId = held && held.dataset.id;
    rows.replaceChildren(pieces(html));
    for (const row of all()) if (!isNew && before.get(row.dataset.id) !== row.dataset.version) row.classList.add("fresh");
    mend();
    if (heldId) { const row = all().find((one) => one.dataset.id === heldId); if (row) $("a", row).focus(); }
  }
  function mend() {
    for (const box of $$("[data-pick]", rows)) box.checked = picked.includes(box.value);
    const button = $("#compare-two");
    button.hidden = false;
    button.disabled = picked.length !== 2;
    for (const row of all()) row.classList.toggle("at", row.dataset.id === chosen);
  }
  function move(by) {
    const shown = all(), at = shown.findIndex((row) => row.dataset.id === chosen);
    const row = shown[Math.max(0, Math.min(shown.length - 1, at + by))];
    if (!row) return;
    chosen = row.dataset.id;
    mend();
    $("a", row).focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }
  filters.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => load(true).catch((error) => tell(error.message)), 120); });
  filters.addEventListener("submit", (event) => { event.preventDefault(); load(true).catch((error) => tell(error.message)); });
  rows.addEventListener("change", (event) => {
    const { value, checked } = event.target;
    picked = [...picked.filter((one) => one !== value), ...(checked ? [value] : [])].slice(-2);
    mend();
  });
  $("#compare").addEventListener("submit", (event) => { event.preventDefault(); location.href = address("compare", { a: picked[0], b: picked[1] }); });
  follow("", page.dataset.mark, () => load(false));
  Object.assign(keys, { j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1), "/": () => $("[name=words]").focus(),
    Enter: () => { const link = $("tr.at a", rows); if (link) link.click(); } });
  mend();
}

function runPage() {
  const { id } = page.dataset, scrub = $("#scrub"), story = $("#story");
  let line = JSON.parse(page.dataset.timeline), inside = page.dataset.inside, now = line.spent.length, isLive = true;
  let playing = 0, momentTimer = 0, pictures = new Map();
  const items = () => $$(".item", story), total = () => line.spent.length;

  const moves = (path, n) => (line.processes[path] || []).filter(([entry]) => entry <= n);
  function light(n) {
    const walked = moves(inside, n), counted = walked.filter(([, , , isBack]) => !isBack);
    const end = walked.at(-1), state = end ? end[2] : "Seeded", step = counted.at(-1);
    const was = new Set(["Seeded", ...walked.flatMap(([, a, b]) => [a, b])]), ways = new Set(counted.map(([, a, b]) => `${a}\n${b}`));
    for (const box of $$("#machine [data-state]")) {
      box.classList.toggle("was", was.has(box.dataset.state));
      box.classList.toggle("is", box.dataset.state === state);
    }
    for (const way of $$("#machine [data-from]")) {
      const { from, to } = way.dataset;
      way.classList.toggle("was", ways.has(`${from}\n${to}`));
      way.classList.toggle("is", !!step && step === end && step[1] === from && step[2] === to);
    }
    for (const number of $$("#machine [data-n]")) number.classList.toggle("later", +number.dataset.n > n);
    const lit = $("#machine .state.is rect"), frame = $("#machine");
    if (lit && frame.scrollWidth > frame.clientWidth) frame.scrollLeft += lit.getBoundingClientRect().left - frame.getBoundingClientRect().left - frame.clientWidth / 2 + 50;
    if (lit && frame.scrollHeight > frame.clientHeight) frame.scrollTop += lit.getBoundingClientRect().top - frame.getBoundingClientRect().top - frame.clientHeight / 2;
    for (const one of $$("[data-state-of]")) {
      const path = one.dataset.stateOf, there = moves(path, n).at(-1);
      one.textContent = there ? there[2] : path ? "" : "Seeded";
      one.closest("li").classList.toggle("later", !there && !!path);
    }
    for (const one of $$(".processes [data-inside]")) one.setAttribute("aria-current", one.dataset.inside === inside);
    if ($("#now-state").textContent !== state) $("#now-state").textContent = state;  // else it would be read out again
    return state;
  }
  function show(isMoved) {
    const last = total(), state = light(now);
    scrub.max = last;
    scrub.value = now;
    scrub.setAttribute("aria-valuetext", `entry ${now} of ${last}, ${state}`);
    $("#at").textContent = `${now} / ${last}`;
    let current = null;
    for (const item of items()) {
      const n = +item.dataset.n, { path, paths } = item.dataset;
      item.classList.toggle("later", n > now);
      item.classList.toggle("current", n === now);
      if (n === now) item.setAttribute("aria-current", "step"); else item.removeAttribute("aria-current");
      item.classList.toggle("apart", inside !== "" && path !== inside && !path.startsWith(`${inside}/`) && !JSON.parse(paths).includes(inside));
      if (n === now) current = item;
    }
    let read = 0, written = 0, cost = 0, at = 0;
    for (const [at_s, i, o, c] of line.spent.slice(0, now)) { read += i; written += o; cost += c; at = at_s || at; }
    const facts = { time: at ? span(Math.max(0, at - line.began_s)) : "", cost: cost ? `$${(cost / 1e12).toFixed(4)}` : "",
      tokens: read + written ? `${read.toLocaleString("en")} + ${written.toLocaleString("en")}` : "" };
    for (const [name, text] of Object.entries(facts)) {  // what is not known has no place
      $(`#now-${name}`).textContent = text;
      $(`#now-${name}`).parentElement.hidden = !text;
    }
    if ($("#fork-at")) { $("#fork-at").max = last; $("#fork-at").value = now; }
    if (!isLive) { live.textContent = "in the past"; live.className = "live past"; }
    else if (live.className === "live past") { live.textContent = "live"; live.className = "live on"; }
    if (isMoved && current) current.scrollIntoView({ block: "nearest" });
    if ($("#moment-box").open) { clearTimeout(momentTimer); momentTimer = setTimeout(moment, 120); }
  }
  async function moment() {
    const n = now;
    try {
      const html = await (await get("moment", { id, n })).text();
      if (n === now) $("#moment").replaceChildren(pieces(html));
    } catch (error) { $("#moment").textContent = error.message; }
  }
  async function loadUpTo(n) {
    const there = items(), first = there.length ? +there[0].dataset.n : total() + 1, last = there.length ? +there.at(-1).dataset.n : total();
    if (n >= 1 && n < first) {
      const html = await (await get("items", { id, after: Math.max(0, n - 100), until: first - 1 })).text();
      (there[0] || $("#later") || null) ? (there[0] || $("#later")).before(pieces(html)) : story.append(pieces(html));
    } else if (n > last) {
      const html = await (await get("items", { id, after: last, until: Math.min(total(), n + 100) })).text();
      there.at(-1).after(pieces(html));
    } else return;
    const ends = items().map((item) => +item.dataset.n);
    if ($("#earlier") && ends[0] === 1) $("#earlier").remove();
    if ($("#earlier")) { $("#earlier a").textContent = `${ends[0] - 1} earlier entries`; $("#earlier a").href = address("run", { id, until: ends[0] - 1 }); }
    if ($("#later") && ends.at(-1) === total()) $("#later").remove();
  }
  async function go(n) {
    now = Math.max(0, Math.min(total(), n));
    isLive = now === total();
    history.replaceState(null, "", location.pathname + location.search + (isLive ? "" : `#n${now}`));
    show(true);
    try { await loadUpTo(now); } catch (error) { tell(error.message); }
    show(true);
  }
  async function enter(path) {
    if (!(path in line.processes)) return;
    inside = path;
    const query = new URLSearchParams({ id, ...(path ? { inside: path } : {}) });
    history.replaceState(null, "", `${location.pathname}?${query}${location.hash}`);
    try {
      if (!pictures.has(path)) pictures.set(path, await (await get("picture", { id, inside: path })).text());
      if (inside === path) $("#machine").replaceChildren(pieces(pictures.get(path)));
    } catch (error) { tell(error.message); }
    show(false);
  }
  function play() {
    const stop = () => { clearInterval(playing); playing = 0; $("[data-step=play]").textContent = "play"; };
    if (playing) { stop(); return; }
    if (now === total()) go(0);
    $("[data-step=play]").textContent = "stop";
    playing = setInterval(() => { go(now + 1); if (isLive) stop(); }, 600);
  }
  const steps = { first: () => go(0), last: () => go(Infinity), play, "-1": () => go(now - 1), 1: () => go(now + 1) };
  scrub.addEventListener("input", () => go(+scrub.value));
  $("#moment-box").addEventListener("toggle", () => { if ($("#moment-box").open) moment(); });
  document.addEventListener("click", (event) => {
    const on = event.target.closest("[data-step], [data-go], [data-inside], [data-state]");
    if (!on || on === page || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const { step, state } = on.dataset;
    if (on.matches("a")) event.preventDefault();
    if (step) steps[step]();
    else if (on.dataset.go) go(+on.dataset.go);
    else if (on.dataset.inside !== undefined) enter(on.dataset.inside);
    else if (state) {  // to the next visit, or to the first
      const visits = (line.processes[inside] || []).filter(([, , to]) => to === state).map(([n]) => n);
      if (visits.length) go(visits.find((n) => n > now) || visits[0]);
    }
  });
  const turn = (by) => { const all = Object.keys(line.processes); enter(all[(all.indexOf(inside) + by + all.length) % all.length]); };
  Object.assign(keys, { ArrowLeft: steps["-1"], ArrowRight: steps[1], k: steps["-1"], j: steps[1], Home: steps.first, End: steps.last,
    " ": play, "[": () => turn(-1), "]": () => turn(1) });

  // Forms: only the fields of the chosen type, and what the button does
  function choose(form) {
    const type = $("[data-type]:checked", form);
    if (type) for (const fields of $$("[data-fields]", form)) {
      fields.hidden = fields.dataset.fields !== type.dataset.type;
      $("legend", fields).classList.add("sr");
    }
    const answer = $("[data-answer]", form), button = $("[data-approve]", form);
    if (type && answer) answer.textContent = `Answer: ${type.nextElementSibling.textContent}`;
    if (button) button.textContent = isTouched(form) ? "Approve with these arguments" : "Approve";
  }
  const isTouched = (form) => $$("input, textarea, select", form).some((one) => one.name !== "reason" && (
    /radio|checkbox/.test(one.type) ? one.checked !== one.defaultChecked
      : one.tagName === "SELECT" ? [...one.options].some((option) => option.selected !== option.defaultSelected) && one.selectedIndex > 0
        : one.value !== one.defaultValue));
  const isKept = (form) => form.contains(document.activeElement) || isTouched(form) || !!($("[name=reason]", form) || {}).value;
  document.addEventListener("input", (event) => { const form = event.target.closest("form.ask"); if (form) choose(form); });

  async function take() {
    const known = total(), there = items(), last = there.length ? +there.at(-1).dataset.n : 0;
    const news = await (await get("news", { id, inside, after: known })).json();
    if (news.timeline === undefined) return;
    line = news.timeline;
    pictures = new Map();
    if (last === known) {
      const end = $("#later") || null;
      for (const item of $$(".item", pieces(news.items))) {
        const old = $(`#${item.id}`, story);
        if (old) old.replaceWith(item); else if (+item.dataset.n > last) story.insertBefore(item, end);
      }
    }
    const isRetrying = $("#head").contains(document.activeElement);
    $("#head").replaceChildren(pieces(news.head));
    if (isRetrying && $("#retry")) $("#retry").focus();
    const asked = pieces(news.asks), drafts = new Map($$("form.ask").filter(isKept).map((form) => [form.dataset.ask, form]));
    const old = $$("form.ask").map((form) => form.dataset.ask).join("\n"), fresh = $$("form.ask", asked).map((form) => form.dataset.ask).join("\n");
    if (old !== fresh || !drafts.size) {  // a form in which something was typed stays as it is, where it is
      const focused = document.activeElement;
      for (const form of $$("form.ask", asked)) if (drafts.has(form.dataset.ask)) form.replaceWith(drafts.get(form.dataset.ask));
      $("#asks").replaceChildren(asked);
      $$("form.ask").forEach(choose);
      if (focused && focused !== document.activeElement && $("#asks").contains(focused)) focused.focus();
    }
    $("#inside").replaceChildren(pieces(news.inside));
    if (isLive) now = total();
    if (isLive && last === known) await loadUpTo(now);
    show(isLive && total() !== known);
  }

  $(".player").hidden = $("#moment-box").hidden = false;
  $$("form.ask").forEach(choose);
  follow(id, page.dataset.mark, take);
  const wanted = location.hash.match(/^#n(\d+)$/), until = +page.dataset.until;
  if (wanted) go(+wanted[1]); else if (until < total()) go(until); else show(false);
}
