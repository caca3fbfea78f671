// Every item under every version: the table, and below it the items that no skill has solved.
import { h, put, tag, empty, errorBox } from "../dom.js";
import { get, of } from "../api.js";
import { itemsTable, inAddress } from "../items.js";
import { openTrajectory } from "../trajectory.js";

export async function itemsTab(root, run, { query, signal }) {
  put(root, h("p", { class: "wait" }, "Reading what was measured…"));
  const table = await get(of(run.id, "/items"), signal);
  const { kept, write } = inAddress();
  const version = (column) => (table.columns[column] === "no skill" ? null : Number(table.columns[column].slice(1)));
  const shown = table.rows.length
    ? itemsTable(table, {
        title: "Items",
        state: kept(query),
        onstate: write,
        signal,
        keys: true,
        find: async (q) => (await get(of(run.id, `/items/search?q=${encodeURIComponent(q)}`), signal)).items,
        open: (row, column, rows) =>
          openTrajectory(
            run.id,
            version(column) === null ? { item: row.item, bare: row.split } : { item: row.item, version: version(column) },
            rows.map((r) => r.item),
          ),
      })
    : h(
        "div",
        { class: "panel" },
        empty("Nothing is measured yet", h("p", {}, "After the first evaluation each item has a row here.")),
      );
  const below = h("div", {}, h("p", { class: "wait" }, "Looking for persistent failures…"));
  put(root, h("div", { class: "stack" }, shown, below));
  get(of(run.id, "/failures"), signal) // only now: both read the same files, and the table comes first
    .then((failures) => put(below, failureList(run, failures)))
    .catch((error) => error.name !== "AbortError" && put(below, errorBox(error)));
  return null;
}

function failureList(run, { general, groups, set_aside: aside }) {
  const parts = [h("h2", {}, "Persistent failures")];
  parts.push(
    h("p", { class: "dim" }, groups.length ? general : "None: some skill solved every item that was measured often enough."),
  );
  for (const group of groups) parts.push(groupCard(run, group));
  const refused = Object.entries(aside);
  if (refused.length)
    parts.push(
      h("h3", {}, "Set aside: the endpoint refuses them for every skill alike"),
      h(
        "ul",
        { class: "small" },
        refused.map(([item, why]) => h("li", {}, h("code", {}, item), " ", why)),
      ),
    );
  return h("section", { class: "panel pad stack tight" }, parts);
}

function groupCard(run, group) {
  const lasts = group.items.map((o) => o.last?.id).filter(Boolean),
    standing = group.items[0].standing;
  return h(
    "div",
    { class: `edit ${standing === "task" ? "against" : "out"}` },
    h(
      "div",
      { class: "row" },
      h("b", {}, group.pattern),
      tag(group.items.length === 1 ? "1 item" : `${group.items.length} items`, standing === "task" ? "bad" : "grey"),
    ),
    h("p", { class: "small" }, group.advice),
    h(
      "ul",
      { class: "small failing" },
      group.items.map((i) =>
        h(
          "li",
          {},
          h(
            "button",
            { class: "chip", disabled: !i.last, onclick: () => openTrajectory(run.id, { id: i.last.id }, lasts) },
            i.item_id,
          ),
          " ",
          i.said,
        ),
      ),
    ),
  );
}
