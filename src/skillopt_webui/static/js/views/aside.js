// A run's config and its log.
import { h, put, empty } from "../dom.js";
import { get, of } from "../api.js";
import { clock, eventLine } from "../format.js";

export async function configTab(root, run, { signal }) {
  const { yaml } = await get(of(run.id, "/config"), signal);
  const copy = h(
    "button",
    {
      onclick: async () => {
        await navigator.clipboard?.writeText(yaml);
        copy.textContent = "Copied";
      },
    },
    "Copy",
  );
  put(
    root,
    h(
      "section",
      { class: "panel" },
      h(
        "div",
        { class: "row between pad" },
        h("h2", {}, "Config"),
        h(
          "div",
          { class: "row" },
          copy,
          h("a", { class: "button main", href: `#/new?run=${encodeURIComponent(run.id)}` }, "Start another from it"),
        ),
      ),
      h("pre", { class: "pad" }, yaml),
    ),
  );
  return null;
}

export async function logTab(root, run) {
  const list = h("ol", { class: "log", style: { "max-height": "none" } });
  put(root, h("section", { class: "panel" }, h("h2", { class: "pad" }, "Events, the newest first"), list));
  const draw = () => {
    const lines = run.events
      .map((e) => [e, eventLine(e)])
      .filter(([, text]) => text)
      .reverse();
    put(
      list,
      lines.length
        ? lines.map(([e, text]) => h("li", {}, h("time", {}, clock(e.time)), h("span", {}, text)))
        : empty("No events yet"),
    );
  };
  run.listeners.add(draw);
  draw();
  return null;
}
