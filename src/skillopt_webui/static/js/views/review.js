// Conflicts: edits that contradict each other, with their trajectories. A person chooses, changes or writes an edit.
import { h, put, rowOf, rowBetween, stackOf, closeStack, button, emptyPanel, attempt, say, tag } from "../dom.js";
import { get, post, of } from "../api.js";
import { openTrajectory } from "../trajectory.js";
import { editCard } from "../edit.js";
import { letters } from "./letters.js";

export async function reviewTab(root, run, { signal }) {
  const box = h("div", { class: "stack" }),
    mail = h("div", {});
  put(root, stackOf(mail, box));
  if (run.data.human_paced) await letters(mail, run, { signal });
  let known = "";

  function draw(conflicts) {
    known = JSON.stringify(conflicts.map((c) => [c.id, c.status]));
    if (!conflicts.length && run.data.human_paced) return;
    if (!conflicts.length) {
      const says = "If two edits of a step contradict each other, neither is applied, and both wait here for a person's decision.";
      put(box, emptyPanel("Nothing to decide", says));
      return;
    }
    const open = conflicts.filter((c) => c.status === "open").length;
    put(
      box,
      h(
        "p",
        { class: "dim" },
        `${conflicts.length} ${conflicts.length === 1 ? "conflict" : "conflicts"}, ${open} open. A choice goes into the next step and through its gate like any other edit.${run.data.summary?.status === "finished" ? " This run is finished; its next step uses a choice if you extend the run." : ""}`,
      ),
      conflicts.map((c) => card(run, c, draw)),
    );
  }

  const load = async () => {
    const { conflicts } = await get(of(run.id, "/conflicts"), signal);
    if (JSON.stringify(conflicts.map((c) => [c.id, c.status])) !== known) draw(conflicts);
  };
  run.listeners.add((what) => {
    if (what !== "event" && !box.contains(document.activeElement)) load().catch(() => {});
  });
  await load();
  return null;
}

function card(run, conflict, draw) {
  const closed = conflict.status.startsWith("used"),
    wrong = h("div", {});
  const own = h("textarea", {
    class: "code",
    rows: 3,
    "aria-label": `Your own edit for conflict ${conflict.id}`,
    placeholder: "Your own edit",
  });
  const writing = closeStack(
    own,
    rowOf(
      button("Use this", () => decide("own", own.value), { class: "main" }),
      button("Cancel", () => (writing.hidden = true)),
    ),
  );
  writing.hidden = true;
  const decide = async (choice, text = "") => {
    await attempt(wrong, async () => {
      const { conflicts } = await post(of(run.id, `/conflicts/${conflict.id}`), { choice, text });
      say(`Conflict ${conflict.id}: ${choice}`);
      draw(conflicts);
      run.reload?.();
    });
  };
  const write = (text) => {
    own.value = text;
    writing.hidden = false;
    own.focus();
  };
  const picked = (name) => conflict.choice === name.toLowerCase() || conflict.choice === "both";
  const chooser = (choice, text, chosen = conflict.choice === choice) =>
    button(text, () => decide(choice), { "aria-pressed": String(chosen) });
  const shown = (t) =>
    h(
      "li",
      {},
      t.scores[0] >= 1 ? tag("✓", "good") : tag("✗", "bad"),
      " ",
      h("b", {}, t.item),
      ": ",
      t.input,
      " → ",
      h("code", {}, t.output),
      h("span", { class: "dim" }, ` ${t.feedback}`),
    );
  const side = (name, edit) =>
    h(
      "div",
      { class: `stack tight ${picked(name) ? "picked" : ""}`, "aria-current": picked(name) ? "true" : null },
      rowBetween(
        h("h3", {}, `Side ${name} `, picked(name) && tag("chosen", "good")),
        !closed &&
          rowOf(
            chooser(name.toLowerCase(), `Choose ${name}`, picked(name)),
            button("Edit", () => write(edit.text), { class: "plain" }),
          ),
      ),
      editCard(edit, { state: picked(name) ? ["in", "chosen"] : ["torn", ""], open: (id) => openTrajectory(run.id, { id }, edit.trajectory_ids) }),
      h("ul", { class: "small" }, edit.trajectory_ids.slice(0, 3).map((id) => conflict.trajectories[id]).filter(Boolean).map(shown)),
    );
  return h(
    "section",
    { class: "panel pad stack tight", "aria-label": `Conflict ${conflict.id}` },
    rowBetween(
      h(
        "h2",
        {},
        `Conflict ${conflict.id} `,
        tag(conflict.status, conflict.status === "open" ? "warn" : closed ? "grey" : "info"),
      ),
      h("span", { class: "dim small" }, `step ${conflict.step}: ${conflict.reason}`),
    ),
    h("div", { class: "sides" }, side("A", conflict.a), conflict.b && side("B", conflict.b)),
    !closed && rowOf(chooser("both", "Both"), chooser("neither", "Neither"), button("Write your own", () => write(""))),
    writing,
    wrong,
  );
}
