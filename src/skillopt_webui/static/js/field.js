// The field of one config key: its input, its documentation, its range, and the error if its value is wrong.
import { h, put, button, select } from "./dom.js";

export function fieldRow(field, onchange, name) {
  const id = `f-${field.key}`,
    short = name || field.key.slice(field.key.indexOf(".") + 1);
  const wrong = h("div", { class: "wrong", id: `${id}-wrong`, role: "alert" });
  const preset = () => {
    dirty = false;
    onchange(null);
  };
  const about = { class: "plain small", hidden: true, title: "Back to the default", "aria-label": `${short}: back to the default` };
  const back = button("default", preset, about);
  const input = control(field, id, (raw) => {
    dirty = true;
    onchange(raw);
  });
  let dirty = false;
  input.setAttribute("aria-describedby", `${id}-doc ${id}-wrong`);
  input.addEventListener("blur", () => {
    dirty = false;
  });
  const node = h(
    "div",
    {
      class: `field ${field.kind === "yaml" || field.key.startsWith("notes.") ? "wide" : ""}`,
      "data-field": field.key,
    },
    h("div", { class: "name" }, h("label", { for: id, title: field.key }, short), back),
    input,
    h("div", { class: "doc-line", id: `${id}-doc` }, field.doc, limits(field)),
    wrong,
  );
  return {
    node,
    doc: field.doc,
    show(value, error, isSet) {
      if (!(dirty && document.activeElement === input)) write(field, input, value);
      put(wrong, error);
      input.setAttribute("aria-invalid", String(Boolean(error)));
      node.classList.toggle("set", isSet);
      back.hidden = !isSet;
    },
  };
}

function control(field, id, send) {
  const choose = (choices) => select(null, choices, null, send, { id });
  if (field.kind === "choice") return choose(field.choices.map((c) => [c, c === "" ? "(the endpoint decides)" : c]));
  if (field.kind === "switch") {
    const answers = [
      ["true", "yes"],
      ["false", "no"],
    ];
    return choose(field.nullable ? [["", "the provider's default"], ...answers] : answers);
  }
  if (field.kind === "yaml")
    return h("textarea", {
      id,
      class: "code",
      rows: 3,
      spellcheck: "false",
      oninput: (event) => send(event.target.value),
    });
  const number = field.kind === "integer" || field.kind === "number";
  return h("input", {
    id,
    type: "text",
    inputmode: number ? "decimal" : null,
    spellcheck: "false",
    autocomplete: "off",
    placeholder: field.nullable ? "none" : null,
    oninput: (event) => send(event.target.value),
  });
}

function write(field, input, value) {
  const text = value === null || value === undefined ? "" : field.kind === "yaml" ? flow(value) : String(value);
  if (input.value !== text) input.value = text;
  if (input.tagName === "SELECT" && input.value !== text) {
    input.append(h("option", { value: text }, text));
    input.value = text;
  }
}

// Lists and tables as JSON, on one line if it is short; JSON is also YAML.
function flow(value) {
  if (typeof value === "string") return value;
  const line = JSON.stringify(value);
  return line.length <= 60 ? line : JSON.stringify(value, null, 2);
}

function limits(field) {
  const bounds = { "at least": field.min, above: field.above, "at most": field.max, below: field.below };
  const parts = Object.entries(bounds).filter(([, bound]) => bound !== undefined).map(([word, bound]) => `${word} ${bound}`);
  const preset =
    field.default === null || field.default === "" || JSON.stringify(field.default) === "{}"
      ? ""
      : ` Default ${typeof field.default === "object" ? JSON.stringify(field.default) : field.default}.`;
  return h("span", {}, parts.length ? ` (${parts.join(", ")})` : "", preset);
}
