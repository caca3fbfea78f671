// Choosing a skill: a version of a run, or a file.
import { h, put } from "./dom.js";
import { get, of } from "./api.js";

export async function loadChoices(signal) {
  const [{ rows }, { files }, { files: configs }] = await Promise.all([
    get("/api/runs", signal),
    get("/api/skills", signal),
    get("/api/configs", signal),
  ]);
  return { runs: rows.filter((r) => r.best !== undefined), files, configs };
}

export function skillPicker(label, choices, { run = "", version = "best", file = "" } = {}, onchange) {
  const id = `pick-${label.replaceAll(" ", "-")}`;
  const place = h("select", { id, "aria-label": label }),
    which = h("select", { "aria-label": `${label}: version` });
  const groups = new Map();
  for (const r of choices.runs) groups.set(r.benchmark, [...(groups.get(r.benchmark) || []), r]);
  put(
    place,
    [...groups].map(([name, rows]) =>
      h(
        "optgroup",
        { label: name },
        rows.slice(0, 300).map((r) => h("option", { value: `run:${r.id}` }, `${r.run} (${r.best.toFixed(2)})`)),
      ),
    ),
    choices.files.length
      ? h(
          "optgroup",
          { label: "files" },
          choices.files.map((f) => h("option", { value: `file:${f}` }, f)),
        )
      : null,
  );
  if (run) place.value = `run:${run}`;
  else if (file) place.value = `file:${file}`;
  async function fill(wanted) {
    const [kind, ...rest] = place.value.split(":");
    which.hidden = kind !== "run";
    if (kind === "run") {
      const { versions } = await get(of(rest.join(":"), "/compare"));
      put(
        which,
        h("option", { value: "best" }, "best"),
        versions.map((v) => h("option", { value: String(v) }, v === 0 ? "v0 (initial)" : `v${v}`)),
      );
      which.value = [...which.options].some((o) => o.value === String(wanted)) ? String(wanted) : "best";
    }
    onchange?.();
  }
  place.addEventListener("change", () => fill("best"));
  which.addEventListener("change", () => onchange?.());
  const ready = place.value ? fill(version) : Promise.resolve();
  return {
    node: h("div", { class: "field" }, h("label", { for: id }, label), h("div", { class: "row" }, place, which)),
    ready,
    get run() {
      return place.value.startsWith("run:") ? place.value.slice(4) : "";
    },
    get value() {
      return place.value.startsWith("run:")
        ? { run: place.value.slice(4), version: which.value || "best" }
        : { file: place.value.slice(5) };
    },
  };
}
