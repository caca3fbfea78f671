// The review of harvested tasks: shows each request with its correction; a person keeps, edits, drops or merges tasks.
import { h, put, longText, rowOf, rowBetween, stackOf, closeStack, empty, errorBox, say, tag } from "../dom.js";
import { get, post } from "../api.js";

const ORDER = { rule: 0, candidate: 1, kept: 2, dropped: 3 };
const KIND = { rule: "warn", candidate: "grey", kept: "good", dropped: "bad" };

export async function harvestView(root, { query, signal }) {
  document.title = "Harvest · SkillOpt";
  const { rows } = await get("/api/harvests", signal);
  const folder = query.get("folder") || rows[0]?.folder;
  if (!folder) {
    put(root, h("div", { class: "panel" }, empty("No harvest yet", h("p", {}, "skillopt harvest finds tasks in your sessions with coding agents; they are reviewed here."))));
    return;
  }
  const list = h("div", { class: "stack" }),
    wrong = h("div", {}),
    written = h("div", {});
  const draw = ({ tasks }) => {
    const sorted = [...tasks].sort((a, b) => ORDER[a.status] - ORDER[b.status]);
    const count = (status) => tasks.filter((t) => t.status === status).length;
    put(
      list,
      h("p", { class: "dim" }, `${tasks.length} tasks: ${count("rule")} rules to decide on, ${count("candidate")} weak suggestions from one session each, ${count("kept")} kept, ${count("dropped")} dropped. Only what you keep is trained on.`),
      sorted.map((task) => card(task, tasks, decide)),
    );
  };
  const decide = async (task, action, more = {}) => {
    try {
      draw(await post("/api/harvests/decide", { folder, task, action, ...more }));
      put(wrong);
      say(`${task}: ${action}`);
    } catch (error) {
      put(wrong, errorBox(error));
    }
  };
  const finish = async () => {
    try {
      const { files } = await post("/api/harvests/finish", { folder, skill: skill.value.trim() });
      put(
        written,
        files.length
          ? files.map((file) => h("p", {}, `${file.path}: ${file.tasks} tasks; ${file.split.join("; ")}. Train it: New run, from ${file.config}.`))
          : h("p", {}, "Nothing was kept, so nothing was written."),
      );
      put(wrong);
    } catch (error) {
      put(wrong, errorBox(error));
    }
  };
  const skill = h("input", { placeholder: "Installed skill (optional)", "aria-label": "Installed skill" });
  put(
    root,
    h("div", { class: "head" }, h("h1", {}, `Review of ${folder}`), rows.length > 1 && rowOf(rows.map((row) => h("a", { href: `#/harvest?folder=${encodeURIComponent(row.folder)}` }, `${row.folder} (${row.waiting})`)))),
    stackOf(wrong, list, rowOf(skill, h("button", { class: "main", onclick: finish }, "Write the tasks file")), written),
  );
  draw(await get(`/api/harvests/tasks?folder=${encodeURIComponent(folder)}`, signal));
}

function card({ task, status, sessions, trials }, tasks, decide) {
  const tried = trials.filter((t) => t.rejected_fails !== null);
  const apart = tried.filter((t) => t.rejected_fails === true && t.corrected_passes === true).length;
  const text = h("input", { class: "grow", value: `rule=${task.rule}`, "aria-label": `Edit of ${task.id}` });
  const writing = h(
    "div",
    { class: "row", hidden: true },
    text,
    h("button", { class: "main", onclick: () => decide(task.id, "edit", { text: text.value }) }, "Use this"),
    h("span", { class: "dim small" }, "rule=…, instruction=…, or a check: contains=…, exact=…, regex=…, rubric=…"),
  );
  const others = tasks.map((other) => other.task).filter((other) => other.id !== task.id);
  const into = h("select", { "aria-label": `Merge ${task.id} into` }, h("option", { value: "" }, "Merge into…"), others.map((other) => h("option", { value: other.id }, `${other.id} ${other.rule.slice(0, 50)}`)));
  into.addEventListener("change", () => into.value && decide(task.id, "merge", { into: into.value }));
  const part = (name, words) => words && h("div", {}, h("b", {}, `${name} `), longText(words));
  return h(
    "section",
    { class: "panel pad stack tight", "aria-label": `Task ${task.id}` },
    rowBetween(h("h2", {}, task.rule, " ", tag(status, KIND[status])), h("span", { class: "dim small" }, `${task.id}, ${sessions} sessions${task.skill ? `, skill ${task.skill}` : ""}`)),
    h("p", {}, `Check: ${task.check.kind} `, h("code", {}, task.check.values.join(" | ")), task.check.unwanted.length > 0 && [" and not ", h("code", {}, task.check.unwanted.join(" | "))], " ", tried.length > 0 && tag(`tells ${apart} of ${tried.length} apart`, apart === tried.length ? "good" : "warn")),
    h("details", {}, h("summary", {}, "The sessions' own words"), task.occurrences.map((each) => closeStack(h("p", { class: "dim small" }, `${each.source}:${each.session}:${each.line}-${each.last_line}`), part("Asked", each.request), part("Rejected", each.rejected), part("Correction", each.words), part("Then", each.corrected)))),
    rowOf(
      ["keep", "drop"].map((action) => h("button", { "data-key": `${action}-${task.id}`, onclick: () => decide(task.id, action) }, action === "keep" ? "Keep" : "Drop")),
      h("button", { onclick: () => { writing.hidden = !writing.hidden; } }, "Edit"),
      into,
    ),
    writing,
  );
}
