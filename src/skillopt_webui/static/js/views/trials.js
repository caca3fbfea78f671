// A sweep or a replicate: the command's sentences on the result, then its runs.
import { h, put, scroller, table, stackOf, empty, tag } from "../dom.js";
import { get, path } from "../api.js";
import { ranged, score, whole } from "../format.js";

const WON = { sweeps: "winner", replicates: "best by validation" };

export async function trialsView(root, { parts, signal }) {
  document.title = "Runs · SkillOpt";
  const { rows } = await get("/api/trials", signal);
  const found = rows.find((r) => r.id === parts.slice(0, 4).join("/"));
  const crumb = h("div", { class: "crumb" }, h("a", { href: "#/runs?group=group" }, "Runs"));
  if (!found) return put(root, crumb, h("div", { class: "panel" }, empty("No such sweep or replicate")));
  const ids = found.rows.map((r) => r.run).filter(Boolean).slice(0, 6);
  const line = (row, name) => [
    [name, " ", row.winner && tag(WON[found.kind], "good")],
    score(row.initial_val),
    ranged(row.best_val, row.val_interval),
    row.best_test == null ? "not read" : ranged(row.best_test, row.test_interval),
    row.accepted || "–",
    whole(row.calls),
  ];
  const lines = found.rows.map((row) => line(row, row.run ? h("a", { href: `#/run/${path(row.run)}/overview` }, row.name) : row.name));
  if (found.mean) lines.push(line(found.mean, h("b", {}, found.mean.name)));
  const heads = [found.kind === "sweeps" ? "trial" : "seed", "initial", "validation [95 %]", "test [95 %]", "steps accepted", "calls"];
  put(
    root,
    crumb,
    h(
      "div",
      { class: "head" },
      h("h1", {}, found.title),
      ids.length > 1 && h("a", { class: "button", href: `#/compare?runs=${ids.map(encodeURIComponent).join(",")}` }, found.rows.length > ids.length ? `Compare the first ${ids.length}` : "Compare them"),
    ),
    stackOf(
      h("section", { class: "panel pad stack tight" }, found.says.map((text, i) => h("p", { class: i ? "" : "verdict" }, text))),
      h(
        "section",
        { class: "panel" },
        scroller("Runs", table(heads, lines, { from: 1 })),
      ),
    ),
  );
}
