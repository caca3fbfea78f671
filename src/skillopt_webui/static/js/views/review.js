// Opposite edits: both sides with their trajectories; a person chooses, edits, or writes an edit.
import { h, put, tag, empty, errorBox, say } from "../dom.js";
import { get, post, of } from "../api.js";
import { openTrajectory } from "../trajectory.js";
import { editCard } from "../edit.js";
import { letters } from "./letters.js";

export async function reviewTab(root, run, { signal }) {
  const box = h("div", { class: "stack" }),
    mail = h("div", {});
  put(root, h("div", { class: "stack" }, mail, box));
  if (run.data.human_paced) await letters(mail, run, { signal });
  let known = "";

  function draw(conflicts) {
    known = JSON.stringify(conflicts.map((c) => [c.id, c.status]));
    if (!conflicts.length && run.data.human_paced) return;
    if (!conflicts.length) {
      put(
        box,
        h(
          "div",
          { class: "panel" },
          empty(
            "Nothing to decide",
            h(
              "p",
              {},
              "When two edits of a step ask for opposite things, neither is applied, and they wait here for a person.",
            ),
          ),
        ),
      );
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
  const writing = h(
    "div",
    { class: "stack tight", hidden: true },
    own,
    h(
      "div",
      { class: "row" },
      h("button", { class: "main", onclick: () => decide("own", own.value) }, "Use this"),
      h(
        "button",
        {
          onclick: () => {
            writing.hidden = true;
          },
        },
        "Cancel",
      ),
    ),
  );
  const decide = async (choice, text = "") => {
    try {
      const { conflicts } = await post(of(run.id, `/conflicts/${conflict.id}`), { choice, text });
      say(`Conflict ${conflict.id}: ${choice}`);
      draw(conflicts);
      run.reload?.();
    } catch (error) {
      put(wrong, errorBox(error));
    }
  };
  const write = (text) => {
    own.value = text;
    writing.hidden = false;
    own.focus();
  };
  const picked = (name) => conflict.choice === name.toLowerCase() || conflict.choice === "both";
  const side = (name, edit) =>
    h(
      "div",
      { class: `stack tight ${picked(name) ? "picked" : ""}`, "aria-current": picked(name) ? "true" : null },
      h(
        "div",
        { class: "row between" },
        h("h3", {}, `Side ${name} `, picked(name) && tag("chosen", "good")),
        !closed &&
          h(
            "div",
            { class: "row" },
            h("button", { "aria-pressed": String(picked(name)), onclick: () => decide(name.toLowerCase()) }, `Choose ${name}`),
            h("button", { class: "plain", onclick: () => write(edit.text) }, "Edit"),
          ),
      ),
      editCard(edit, { state: picked(name) ? ["in", "chosen"] : ["torn", ""], open: (id) => openTrajectory(run.id, { id }, edit.trajectory_ids) }),
      h(
        "ul",
        { class: "small" },
        edit.trajectory_ids
          .slice(0, 3)
          .map((id) => conflict.trajectories[id])
          .filter(Boolean)
          .map((t) =>
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
            ),
          ),
      ),
    );
  return h(
    "section",
    { class: "panel pad stack tight", "aria-label": `Conflict ${conflict.id}` },
    h(
      "div",
      { class: "row between" },
      h(
        "h2",
        {},
        `Conflict ${conflict.id} `,
        tag(conflict.status, conflict.status === "open" ? "warn" : closed ? "grey" : "info"),
      ),
      h("span", { class: "dim small" }, `step ${conflict.step}: ${conflict.reason}`),
    ),
    h("div", { class: "sides" }, side("A", conflict.a), conflict.b && side("B", conflict.b)),
    !closed &&
      h(
        "div",
        { class: "row" },
        h("button", { "aria-pressed": String(conflict.choice === "both"), onclick: () => decide("both") }, "Both"),
        h("button", { "aria-pressed": String(conflict.choice === "neither"), onclick: () => decide("neither") }, "Neither"),
        h("button", { onclick: () => write("") }, "Write your own"),
      ),
    writing,
    wrong,
  );
}
