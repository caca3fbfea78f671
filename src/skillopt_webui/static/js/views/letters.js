// Open letters of a run whose optimizer is a handoff: a person reads one and writes the reply, which is checked first.
import { h, put, tag, empty, errorBox, say, longText } from "../dom.js";
import { get, post, of } from "../api.js";

export async function lettersTab(root, run, { signal }) {
  const box = h("div", { class: "stack" });
  put(root, box);
  let known = "";

  function draw({ letters, answered }) {
    known = JSON.stringify([letters, answered]);
    if (!letters.length) {
      const says = run.data.pid
        ? "The run works on what was answered; the next letters appear here."
        : "No letter waits for a reply.";
      put(box, h("div", { class: "panel" }, empty("No open letters", h("p", {}, `${says} Answered: ${answered}.`))));
      return;
    }
    put(
      box,
      h(
        "p",
        { class: "dim" },
        `${letters.length} open, ${answered} answered. Answer from the letter alone, not from the run's other pages.${run.data.pid ? "" : " No process is at work: resume the run when they are answered."}`,
      ),
      letters.map((letter) => card(run, letter, draw, signal)),
    );
  }

  const load = async () => {
    const found = await get(of(run.id, "/letters"), signal);
    if (JSON.stringify([found.letters, found.answered]) !== known) draw(found);
  };
  const again = setInterval(() => {
    if (!box.contains(document.activeElement)) load().catch(() => {});
  }, 2000);
  signal.addEventListener("abort", () => clearInterval(again));
  await load();
  return null;
}

function card(run, letter, draw, signal) {
  const where = `/letters/${letter.number}`,
    wrong = h("div", {}, letter.problem && longText(letter.problem, { class: "note" })),
    text = h("div", {}),
    own = h("textarea", {
      class: "code",
      rows: 8,
      "aria-label": `Reply to letter ${letter.number}`,
      placeholder: "The reply, in the form that the letter asks for",
      "data-key": `reply-${letter.number}`,
    });
  const read = async (event) => {
    event.target.disabled = true;
    try {
      put(text, longText((await get(of(run.id, where), signal)).text, { class: "mono small" }));
    } catch (error) {
      event.target.disabled = false;
      put(wrong, errorBox(error));
    }
  };
  const hand = async (event) => {
    event.target.disabled = true;
    try {
      const found = await post(of(run.id, where), { reply: own.value });
      say(`Letter ${letter.number} is answered.`);
      draw(found);
    } catch (error) {
      event.target.disabled = false;
      put(wrong, errorBox(error));
    }
  };
  return h(
    "section",
    { class: "panel pad stack tight", "aria-label": `Letter ${letter.number}` },
    h(
      "div",
      { class: "row between" },
      h("h2", {}, `Letter ${letter.number} `, tag(letter.stage, "info")),
      h("button", { onclick: read }, "Read"),
    ),
    text,
    own,
    wrong,
    h("div", { class: "row" }, h("button", { class: "main", onclick: hand }, "Hand in")),
  );
}
