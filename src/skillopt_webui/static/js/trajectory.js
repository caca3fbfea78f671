// Shows one trajectory in a drawer: the task, the conversation and the score.
import { h, put, longText, scroller, table, copyButton, rowOf, stackOf, button, errorBox, tag, LEFT, dialog } from "./dom.js";
import { get, of, path } from "./api.js";
import { commentBox } from "./comments.js";
import { score, whole, span } from "./format.js";

// run: a run's id, or {api} of a measurement; query: {id}, {item, version}, {item, bare: split} or
// {item, column}; around: ids to step through with the arrow keys. While a trajectory is open, the address names it.
export async function openTrajectory(run, query, around = []) {
  const ask = (wanted) =>
    typeof run === "string"
      ? of(run, `/trajectory?${new URLSearchParams(wanted)}`)
      : `${run.api}/trajectory?${new URLSearchParams(wanted)}`;
  const inside = stackOf(h("p", { class: "wait" }, "Loading…"));
  const box = dialog("drawer", query.id ? `Trajectory ${query.id}` : `Item ${query.item}`, inside, {
    // Another view sets its own address. It may equal this one again when a dialog learns that its view was left.
    onclose: () => box.returnValue !== LEFT && location.hash === here && (pushed ? history.back() : named(null)),
  });
  const title = box.querySelector("h2");
  let here = "";
  const pushed = !new URLSearchParams(location.hash.split("?")[1] || "").has("t"); // Back first closes the drawer
  if (pushed) history.pushState(null, "", location.hash);
  let place = around.findIndex((other) => other === query.id || other === query.item);
  const show = async (wanted) => {
    named(wanted);
    here = location.hash;
    try {
      const found = await get(ask(wanted));
      const t = { ...found.rollout, version: found.version };
      title.textContent = found.absent ? `Item ${wanted.item || wanted.id}` : `Trajectory ${t.id}`;
      put(inside, ...(found.absent ? [h("p", { class: "note" }, found.absent)] : content(run, t)));
    } catch (error) {
      title.textContent = wanted.id || wanted.item;
      put(inside, errorBox(error));
    }
  };
  const step = (move) => {
    if (around.length < 2) return;
    place = (place + move + around.length) % around.length;
    show(query.id ? { id: around[place] } : { ...query, item: around[place] });
  };
  const turn = (text, label, move) => button(text, () => step(move), { class: "icon", "aria-label": label });
  if (around.length > 1) title.after(h("span", { class: "row" }, turn("←", "Previous", -1), turn("→", "Next", 1)));
  box.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea")) return;
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
  await show(query);
}

function named(query) {
  const [place, raw] = location.hash.split("?");
  const rest = new URLSearchParams(raw || "");
  if (query) rest.set("t", new URLSearchParams(query).toString());
  else rest.delete("t");
  const text = rest.toString();
  history.replaceState(history.state, "", text ? `${place}?${text}` : place);
}

// The trajectory that an address names, if any.
export function openNamed(run, query) {
  if (query.get("t")) openTrajectory(run, Object.fromEntries(new URLSearchParams(query.get("t"))));
}

// Tokens and time of each call of the target.
function callsTable(calls) {
  if (!calls?.length) return null;
  const sum = (name) => calls.reduce((total, call) => total + (call[name] ?? 0), 0);
  const row = (name, get) => [name, whole(get("prompt")), whole(get("completion")), whole(get("cached")), span(get("seconds"))];
  const rows = calls.map((call, i) => row(i + 1, (name) => call[name]));
  if (calls.length > 1) rows.push(row("all", sum));
  return h(
    "details",
    { open: calls.length < 4 },
    h("summary", {}, calls.length === 1 ? "1 call" : `${calls.length} calls`),
    scroller("Calls", table(["call", "prompt tokens", "reply tokens", "cached", "waited"], rows, { from: 1 })),
  );
}

function content(run, t) {
  const head = rowOf(
    outcome(t.score),
    t.type && tag(t.type, "grey"),
    h("span", { class: "dim" }, "item "),
    h("code", {}, t.item_id),
    hasVersion(run, t) && h("a", { href: `#/run/${path(run)}/skill?v=${t.version}` }, `skill v${t.version}`),
  );
  const why = t.refused ? "The endpoint refuses this item. " : "No answer came. ";
  if (!t.score) return [head, h("div", { class: "error" }, h("b", {}, why), t.error)];
  const messages = (t.messages || []).map((m) => message(run, m, t));
  const section = (name, text) => h("section", { class: "say" }, h("header", {}, h("span", {}, name), copyButton(text)), longText(text));
  return [
    head,
    t.input && section("Task", t.input),
    section("Scored output", t.output),
    t.answers?.length && section("Expected", t.answers.join("\nor\n")),
    t.score.feedback && h("div", { class: "note" }, h("b", {}, "Feedback: "), longText(t.score.feedback)),
    typeof run === "string" && commentBox(run, { kind: "item", about: t.item_id, split: splitOf(t) }),
    ...(t.changes || []).map((c) =>
      h("section", { class: "say" }, h("header", {}, h("span", {}, `${c.kind} ${c.path}`), copyButton(c.shown || "")), h("div", { class: "text" }, (c.shown || "").split("\n").map(diffLine))),
    ),
    h("details", { open: true }, h("summary", {}, `Conversation: ${messages.length} messages`), stackOf(messages)),
    callsTable(t.telemetry?.calls),
  ].filter(Boolean);
}

const diffLine = (line) => h("span", { class: `diffline ${{ "+": "add", "-": "del" }[line[0]] || ""}` }, line || " ");

// A call of a tool: its name, and its arguments at a click.
function toolCall(call) {
  const f = call.function || call,
    text = typeof f.arguments === "string" ? f.arguments : JSON.stringify(f.arguments ?? call, null, 2);
  return h("details", { class: "tool" }, h("summary", {}, `calls ${f.name || "a tool"}`), copyButton(text), longText(text));
}

// Batches and slow updates use the training split, gates use the validation split.
function splitOf(t) {
  if (t.split) return t.split;
  const named = /^(val|test)-/.exec(t.id);
  return named ? named[1] : t.id.startsWith("gate-") ? "val" : "train";
}

const hasVersion = (run, t) => typeof run === "string" && t.version !== null && t.version !== undefined;

export function outcome(s) {
  if (!s) return tag("no score", "warn");
  return h(
    "span",
    { class: "row" },
    s.hard >= 1 ? tag("✓ solved", "good") : tag("✗ failed", "bad"),
    h("span", { class: "dim num" }, `soft ${score(s.soft)}`),
  );
}

function message(run, m, t) {
  const part = (kind, name, aside, ...content) => h("section", { class: `say ${kind}` }, h("header", {}, h("span", {}, name), aside), content);
  if (m.skill) {
    const candidate = typeof run === "string" ? "A candidate that did not become a version" : "The measured skill",
      what = t.version == null ? candidate : `Version ${t.version} of the skill`,
      link = hasVersion(run, t) && h("a", { href: `#/run/${path(run)}/skill?v=${t.version}` }, `open version ${t.version}`);
    return part("system", "system: the skill", link, h("div", { class: "text dim" }, `${what} (${m.skill.slice(0, 12)}).`));
  }
  const parts = Array.isArray(m.content) ? m.content : [{ type: "text", text: m.content ?? "" }];
  const size = parts.reduce((sum, { text }) => sum + (typeof text === "string" ? text.length : 0), 0);
  const role = ["assistant", "user", "system", "tool"].includes(m.role) ? m.role : "",
    length = h("span", { class: "num" }, `${size.toLocaleString("en")} characters`);
  return part(role, m.role || "message", length, parts.map(shown), m.tool_calls?.map(toolCall));
}

// A part of a message: a text, a picture that the message contains, or anything else as text.
function shown(part) {
  if (typeof part.text === "string") return longText(part.text);
  const url = part.image_url?.url;
  if (typeof url === "string" && /^data:image\/(png|jpeg|gif|webp);base64,/.test(url))
    return h("img", { src: url, alt: "picture of the task" });
  return longText(JSON.stringify(part, null, 2));
}
