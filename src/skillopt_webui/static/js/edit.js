// An edit: what it does, why, and the trajectories that support it.
import { h, tag, longText } from "./dom.js";

export function editCard(edit, { state, reason, support, leak, merged, open } = {}) {
  const [kind, word] = state || ["", ""];
  const cited = edit.trajectory_ids || [];
  return h(
    "article",
    { class: `edit ${kind}` },
    h(
      "div",
      { class: "row" },
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
    reason &&
      h(
        "p",
        { class: "small dim" },
        reason,
      ),
    cited.length && open
      ? h(
          "div",
          { class: "cites" },
          h("span", { class: "dim small" }, `${support ?? cited.length} trajectories:`),
          cited.slice(0, 12).map((id) => h("button", { class: "chip", onclick: () => open(id) }, id)),
          cited.length > 12 && h("span", { class: "dim small" }, `and ${cited.length - 12} more`),
        )
      : null,
  );
}
