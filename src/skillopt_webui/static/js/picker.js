// Lets a person choose a skill: a version of a run, or a file.
import { h, put, rowOf } from "./dom.js";
import { get, of } from "./api.js";
import { score } from "./format.js";

export async function loadChoices(signal) {
  const [{ rows }, { files }, { files: configs }] = await Promise.all([
    get("/api/runs", signal),
    get("/api/skills", signal),
    get("/api/configs", signal),
  ]);
  return { rows, runs: rows.filter((r) => r.best_val != null), files, configs };
}

// The input for the name of a run or a file; typing searches all names.
export function searchBox(label, names, onpick, { id, value = "" } = {}) {
  const list = `${id}-names`;
  const known = new Map([...names].map(([key, name]) => [name, key]));
  const input = h("input", {
    id,
    list,
    type: "search",
    "aria-label": label,
    autocomplete: "off",
    placeholder: `${label}: search ${known.size.toLocaleString("en")}`,
    value,
    oninput: () => onpick(known.get(input.value) ?? closest(known, input.value), input),
    onchange: () => {
      const choice = known.get(input.value) ?? closest(known, input.value);
      if (choice !== undefined) input.value = [...known].find(([, key]) => key === choice)[0];
    },
    onfocus: () => input.select(),
  });
  return [input, h("datalist", { id: list }, [...known.keys()].map((name) => h("option", { value: name })))];
}

// The only name that contains the typed text.
function closest(known, typed) {
  const fits = [...known.keys()].filter((name) => name.toLowerCase().includes(typed.trim().toLowerCase()));
  return typed.trim() && fits.length === 1 ? known.get(fits[0]) : undefined;
}

export const runName = (r) => `${r.labels.name ? `${r.labels.name} · ` : ""}${r.benchmark} / ${r.name} (${score(r.best_val)})`;

export function skillPicker(label, choices, { run = "", version = "best", file = "" } = {}, onchange) {
  const id = `pick-${label.replaceAll(" ", "-")}`;
  const names = new Map([
    ...choices.runs.map((r) => [`run:${r.id}`, runName(r)]),
    ...choices.files.map((f) => [`file:${f}`, f]),
  ]);
  let place = run ? `run:${run}` : file ? `file:${file}` : names.keys().next().value || "";
  const which = h("select", { "aria-label": `${label}: version` });
  const box = searchBox(
    label,
    names,
    (next, input) => {
      if (next === place) return;
      place = next ?? "";
      input.setAttribute("aria-invalid", String(!place));
      fill("best");
    },
    { id, value: names.get(place) || "" },
  );
  async function fill(wanted) {
    const isRun = place.startsWith("run:");
    which.hidden = !isRun;
    if (isRun) {
      const { versions } = await get(of(place.slice(4)));
      put(
        which,
        h("option", { value: "best" }, "best"),
        versions.map((v) => h("option", { value: String(v) }, v === 0 ? "v0 (initial)" : `v${v}`)),
      );
      which.value = [...which.options].some((o) => o.value === String(wanted)) ? String(wanted) : "best";
    }
    onchange?.();
  }
  which.addEventListener("change", () => onchange?.());
  const ready = place ? fill(version) : Promise.resolve();
  const many = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
  const there = `Type to search ${many(choices.runs.length, "run")} and ${many(choices.files.length, "skill file")}.`;
  return {
    node: h(
      "div",
      { class: "field" },
      h("label", { for: id }, label),
      rowOf(box, which),
      h("span", { class: "dim small" }, there),
    ),
    ready,
    get run() {
      return place.startsWith("run:") ? place.slice(4) : "";
    },
    get value() {
      if (!place) return null; // the typed text matches no name, or several names
      return place.startsWith("run:")
        ? { run: place.slice(4), version: which.value || "best" }
        : { file: place.slice(5) };
    },
  };
}
