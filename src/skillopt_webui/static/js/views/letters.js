// The open letters of a run whose optimizer is a handoff: a letter on the left, its reply on the right.
import { h, put, longText, stored, copyButton, every, rowOf, rowBetween, closeStack, errorBox, say, tag } from "../dom.js";
import { get, post, of } from "../api.js";

const FIELDS = ["pattern", "rationale", "trajectory_ids", "section", "anchor", "text"];

export async function letters(root, run, { signal }) {
  const cards = new Map(),
    head = h("p", { class: "dim" }),
    box = h("div", { class: "stack" });
  put(root, h("section", { class: "stack" }, h("h2", {}, "Letters"), head, box));

  // A card is not drawn again while other letters come and go, so that a half-written reply stays.
  function draw({ letters: open, answered }) {
    head.textContent = open.length
      ? `${open.length} open, ${answered} answered. Answer from the letter alone, not from the run's other pages.${run.data.pid ? "" : " No process is at work: resume the run when they are answered."}`
      : `No open letters. ${run.data.pid ? "The run works on what was answered; the next letters appear here." : ""} Answered: ${answered}.`;
    for (const [number, node] of cards)
      if (!open.some((l) => l.number === number)) {
        node.remove();
        cards.delete(number);
      }
    for (const letter of open)
      if (!cards.has(letter.number)) {
        cards.set(letter.number, card(run, letter, draw, signal));
        box.append(cards.get(letter.number));
      }
  }
  const load = async () => draw(await get(of(run.id, "/letters"), signal));
  every(2000, () => load().catch(() => {}), signal);
  await load();
}

function card(run, letter, draw, signal) {
  const where = `/letters/${letter.number}`,
    key = `skillopt-reply-${run.id}-${letter.number}`,
    wrong = h("div", {}, letter.problem && longText(letter.problem, { class: "note" })),
    text = h("div", { class: "letter", tabindex: "0", role: "group", "aria-label": `Text of letter ${letter.number}` }, h("p", { class: "wait" }, "Loading…"));
  const reply = h("textarea", {
    class: "code",
    rows: 12,
    "aria-label": `Reply to letter ${letter.number}`,
    placeholder: "The reply, in the form that the letter asks for",
    value: stored.get(key),
    oninput: () => stored.set(key, reply.value),
  });
  let whole = "";
  get(of(run.id, where), signal)
    .then((answer) => {
      whole = answer.text;
      put(text, rendered(whole));
    })
    .catch((error) => error.name !== "AbortError" && put(text, errorBox(error)));
  const submit = async (event) => {
    event.target.disabled = true;
    try {
      const open = await post(of(run.id, where), { reply: reply.value });
      stored.set(key, "");
      say(`Letter ${letter.number} is answered.`);
      draw(open);
      run.reload?.();
    } catch (error) {
      event.target.disabled = false;
      put(wrong, errorBox(error));
    }
  };
  return h(
    "section",
    { class: "panel pad stack tight", "aria-label": `Letter ${letter.number}` },
    rowBetween(h("h2", {}, `Letter ${letter.number} `, tag(letter.stage, "info")), copyButton(() => whole, "Copy letter", "")),
    h(
      "div",
      { class: "sides" },
      text,
      closeStack(/reflect/.test(letter.stage) && editForm(letter, reply), reply, wrong, rowOf(h("button", { class: "main", onclick: submit }, "Submit reply"))),
    ),
  );
}

// The form of an edit, which is added to the JSON of the reply.
function editForm(letter, reply) {
  const op = h("select", { "aria-label": "op" }, ["add", "modify", "delete"].map((o) => h("option", { value: o }, o)));
  const inputs = Object.fromEntries(FIELDS.map((name) => [name, h(name === "text" || name === "anchor" ? "textarea" : "input", { "aria-label": `${name} of the edit`, placeholder: name.replace("_", " "), rows: 2 })]));
  const add = () => {
    let whole;
    try {
      whole = reply.value.trim() ? JSON.parse(reply.value) : {};
    } catch {
      say("The reply is not JSON yet; an edit can be added once it is.", true);
      return;
    }
    const edit = { op: op.value };
    for (const [name, input] of Object.entries(inputs)) edit[name] = name === "trajectory_ids" ? input.value.split(/[\s,]+/).filter(Boolean) : input.value;
    reply.value = JSON.stringify({ job: "", patterns: [], ...whole, edits: [...(whole.edits || []), edit] }, null, 2);
    reply.dispatchEvent(new Event("input"));
    for (const input of Object.values(inputs)) input.value = "";
  };
  return h("details", {}, h("summary", {}, "Write an edit in a form"), closeStack(op, Object.values(inputs), rowOf(h("button", { onclick: add }, "Add edit to the reply"))));
}

// Shows the headings, paragraphs and fenced blocks of a letter, all as text.
export function rendered(text) {
  const parts = [];
  let fence = "",
    block = [];
  const flush = () => {
    if (block.join("").trim()) parts.push(fence ? longText(block.join("\n"), { class: "mono small note" }) : h("p", {}, block.join("\n").trim()));
    block = [];
  };
  for (const line of text.split("\n")) {
    const mark = /^(`{3,})\w*$/.exec(line)?.[1],
      title = !fence && /^(#{1,4}) (.*)$/.exec(line);
    if (mark && !fence) (flush(), (fence = mark));
    else if (mark && line === fence) (flush(), (fence = ""));
    else if (title) (flush(), parts.push(h("h3", {}, title[2])));
    else if (!fence && !line.trim()) flush();
    else block.push(line);
  }
  flush();
  return parts;
}
