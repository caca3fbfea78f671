// A run's costs, its config and its log.
import { h, put, copyButton, rowOf, sheet, button, empty, segment } from "../dom.js";
import { get, of, path } from "../api.js";
import { clock, eventLine } from "../format.js";
import { costsTab } from "./costs.js";

export async function detailsTab(root, run, { query, signal }) {
  const bar = h("div", { class: "row partbar" }),
    box = h("div", {});
  put(root, bar, box);
  const views = { costs: ["Costs", costsTab], config: ["Config", configTab], log: ["Log", logTab] };
  async function show(part) {
    const pick = (next) => {
      history.replaceState(history.state, "", `#/run/${path(run.id)}/${next}`);
      show(next);
    };
    put(bar, segment(Object.entries(views).map(([name, [text]]) => [name, text]), part, pick, "Part"));
    run.listeners.clear();
    await views[part][1](box, run, { query, signal });
  }
  await show(query.get("part") || "costs");
  return (options) => show(options.get("part") || "costs");
}

async function configTab(root, run, { signal }) {
  const { yaml } = await get(of(run.id, "/config"), signal);
  const again = h("a", { class: "button main", href: `#/new?run=${encodeURIComponent(run.id)}` }, "Duplicate");
  put(root, sheet("Config", h("pre", { class: "pad" }, yaml), rowOf(copyButton(yaml, "Copy", ""), again)));
  return null;
}

const PAGE = 200;

// All events, a page at a time.
async function logTab(root, run, { query, signal }) {
  let skip = Number(query.get("skip")) || 0,
    wanted = query.get("q") || "",
    known = -1;
  const list = h("ol", { class: "log", style: { "max-height": "none" } }),
    count = h("span", { class: "dim small", "aria-live": "polite" }),
    pages = h("div", { class: "row" });
  const search = h("input", {
    type: "search",
    placeholder: "Search events",
    "aria-label": "Search events",
    value: wanted,
    oninput: () => {
      wanted = search.value.trim();
      skip = 0;
      load();
    },
  });
  put(root, sheet(["Events, the newest first ", count], list, rowOf(search, pages)));
  async function load() {
    const asked = new URLSearchParams({ skip, count: PAGE, q: wanted });
    const { events, total } = await get(of(run.id, `/events?${asked}`), signal);
    known = total;
    const last = Math.min(total, skip + PAGE);
    count.textContent = total ? `${skip + 1}–${last} of ${total.toLocaleString("en")}` : "none";
    const turn = (text, to, disabled) => {
      const go = () => {
        skip = to;
        load();
      };
      return button(text, go, { "data-key": text, disabled });
    };
    put(pages, turn("Newer", Math.max(0, skip - PAGE), skip === 0), turn("Older", skip + PAGE, last >= total));
    put(
      list,
      events.length
        ? events.map((e) => h("li", {}, h("time", {}, clock(e.time)), h("span", {}, eventLine(e) || e.kind.replaceAll("_", " "))))
        : empty("No events"),
    );
  }
  run.listeners.add(() => {
    if (skip === 0 && known >= 0) load().catch(() => {});
  });
  await load();
  return null;
}
