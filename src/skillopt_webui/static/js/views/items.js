// The table of every item under every version, and below it the items that no skill has solved.
import { h, put, rowOf, stackOf, panel, bullets, button, emptyPanel, attempt, tag } from "../dom.js";
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
    : emptyPanel("Nothing is measured yet", "After the first evaluation each item has a row here.");
  const below = h("div", {}, h("p", { class: "wait" }, "Looking for persistent failures…"));
  put(root, stackOf(shown, below));
  // Starts after the table, because both read the same files and the table should come first.
  attempt(below, async () => put(below, failureList(run, await get(of(run.id, "/failures"), signal))));
  return null;
}

function failureList(run, { general, groups, set_aside: aside }) {
  const refused = Object.entries(aside).map(([item, why]) => [h("code", {}, item), " ", why]);
  return panel(
    "Persistent failures",
    h("p", { class: "dim" }, groups.length ? general : "None: some skill solved every item that was measured often enough."),
    groups.map((group) => groupCard(run, group)),
    refused.length > 0 && [h("h3", {}, "Set aside: the endpoint refuses them for every skill alike"), bullets(refused)],
  );
}

function groupCard(run, group) {
  const lasts = group.items.map((o) => o.last?.id).filter(Boolean),
    standing = group.items[0].standing;
  const item = (i) => {
    const open = () => openTrajectory(run.id, { id: i.last.id }, lasts);
    return [button(i.item_id, open, { class: "chip", disabled: !i.last }), " ", i.said];
  };
  return h(
    "div",
    { class: `edit ${standing === "task" ? "against" : "out"}` },
    rowOf(
      h("b", {}, group.pattern),
      tag(group.items.length === 1 ? "1 item" : `${group.items.length} items`, standing === "task" ? "bad" : "grey"),
    ),
    h("p", { class: "small" }, group.advice),
    bullets(group.items.map(item), "small failing"),
  );
}
