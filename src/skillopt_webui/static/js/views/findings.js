// The answers to questions before a start: the data, the plan, the checklist.
import { h, table, rowOf, panel, fold, bullets, errorBox, tag } from "../dom.js";
import { whole, money, span, estimate } from "../format.js";

// A likely value with its range below it, because the column of the plan is narrow.
function likely(figure, format = whole) {
  const [value, range] = estimate(figure, format).split(" (");
  return [value, range && h("div", { class: "small dim" }, range.replace(")", ""))];
}

const example = (i) =>
  h(
    "li",
    { class: "edit" },
    rowOf(h("code", {}, i.id), i.type && tag(i.type, "grey")),
    i.context && h("div", { class: "text small dim" }, i.context),
    h("div", { class: "text small" }, i.question),
    h("div", { class: "small" }, h("b", {}, "Answers: "), i.answers.join(" · ")),
  );

export const FINDINGS = {
  preview: (p) =>
    panel(
      `Data: ${p.name}`,
      p.overlap
        ? errorBox({ message: p.overlap })
        : h("p", { class: "good" }, "✓ The splits are disjoint, by id and by content."),
      table(
        ["split", "items", "types"],
        Object.entries(p.splits).map(([name, s]) => {
          const types = Object.entries(s.types).map(([t, n]) => `${t}: ${n}`);
          return [name, whole(s.size), h("span", { class: "small dim" }, types.join(", "))];
        }),
        { from: 1, to: 2 },
      ),
      Object.entries(p.splits).map(([name, s]) => fold(`First items of ${name}`, h("ul", { class: "stack tight" }, s.items.map(example)))),
    ),
  plan: (p) =>
    panel(
      ["Plan ", tag("estimate", "grey")],
      h(
        "p",
        {},
        `${p.steps} steps in ${p.epochs} epochs over ${p.items.train} training, ${p.items.val} validation and ${p.items.test} test items; schedule ${p.schedule}.`,
      ),
      table(
        ["", ...Object.keys(p.calls)],
        [
          ["calls", (r) => likely(p.calls[r])],
          ["tokens", (r) => likely(p.tokens[r])],
          ["cost", (r) => likely(p.usd[r], money)],
        ].map(([name, f]) => [name, ...Object.keys(p.calls).map(f)]),
        { from: 1 },
      ),
      h(
        "p",
        {},
        h("b", {}, `Time: ${estimate(p.seconds, span)}`),
        h(
          "span",
          { class: "dim small" },
          `, with target calls of ${span(p.call_seconds.target)} and optimizer calls of ${span(p.call_seconds.optimizer)}`,
        ),
      ),
      fold(
        "By stage",
        table(
          null,
          p.lines.map((l) => [l.role, l.stage.replaceAll("_", " "), whole(l.calls)]),
          { from: 2 },
        ),
      ),
    ),
  doctor: (d) => checks("Doctor", d.checks),
  connection: (d) => checks("Connection", d.checks),
};

function checks(title, list) {
  const failed = list.filter((c) => c.status === "fail").length,
    warned = list.filter((c) => c.status === "warn").length;
  const result = failed ? tag(`${failed} failed`, "fail") : warned ? tag(`${warned} warnings`, "warn") : tag("all well", "pass");
  const line = (c) => [
    h("span", {}, tag(c.status)),
    h("div", {}, h("b", {}, c.name), ": ", c.says, c.fix && h("div", { class: "small dim" }, `→ ${c.fix}`)),
  ];
  return panel([`${title} `, result], bullets(list.map(line), "checks"));
}
