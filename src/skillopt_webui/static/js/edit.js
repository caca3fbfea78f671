// Shows an edit: its change, its reason, and the trajectories that support it.
import { h, longText, rowOf, tag } from "./dom.js";

export function editCard(edit, { state, reason, support, leak, merged, open } = {}) {
  const [kind, word] = state || ["", ""];
  const cited = edit.trajectory_ids || [];
  return h(
    "article",
    { class: `edit ${kind}` },
    rowOf(
      tag(edit.op, "info"),
      edit.section && h("span", { class: "small" }, "in ", h("b", {}, edit.section)),
      word && tag(word, { in: "good", against: "bad", torn: "warn" }[kind] || "grey"),
      leak && tag("copies a training item", "bad"),
      merged?.length > 1 && tag(`${merged.length} merged`, "grey"),
      h("span", { class: "grow" }),
      h("span", { class: "dim small mono" }, edit.source),
    ),
    edit.anchor && longText(edit.anchor, { class: "del" }),
    edit.text && longText(edit.text, { class: edit.anchor ? "add" : "" }),
    (edit.rationale || edit.pattern) &&
      h("p", { class: "small" }, edit.rationale, edit.pattern && h("span", { class: "dim" }, ` (${edit.pattern})`)),
    leak && h("p", { class: "small bad" }, `It copies: ${leak}`),
    reason && h("p", { class: "small dim" }, reason),
    cited.length && open
      ? h(
          "div",
          { class: "cites" },
          h("span", { class: "dim small" }, `${support ?? cited.length} ${(support ?? cited.length) === 1 ? "trajectory" : "trajectories"}:`),
          chips(cited, open),
        )
      : null,
  );
}

const FEW = 12;

// The first trajectories; a click shows all.
function chips(ids, open) {
  const chip = (id) => h("button", { class: "chip", onclick: () => open(id) }, id);
  const more = h(
    "button",
    { class: "plain small", onclick: () => more.replaceWith(...ids.slice(FEW).map(chip)) },
    `and ${ids.length - FEW} more`,
  );
  return [ids.slice(0, FEW).map(chip), ids.length > FEW && more];
}
