// Builds the page. Text only becomes text nodes, so that markup in a text has no effect.

const HIDDEN = /[^\P{C}\n\t]/gu;

// Makes control characters, escapes and direction marks visible, as on the terminal.
export function visible(text) {
  return String(text)
    .replaceAll("\r\n", "\n")
    .replace(HIDDEN, (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);
}

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, v] of Object.entries(value)) node.style.setProperty(key, v);
    else if (name === "value" || name === "checked" || name === "indeterminate" || name === "disabled")
      node[name] = value;
    else if (name === "data") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : visible(value));
  }
  add(node, children);
  return node;
}

export function add(node, children) {
  for (const child of children.flat(3)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
  return node;
}

// Replaces the children. The focus stays if there is still an element with the key of the focused element.
export function put(node, ...children) {
  const held = document.activeElement;
  const key = held && node.contains(held) ? held.dataset.key || held.id : "";
  node.replaceChildren();
  add(node, children);
  if (key) node.querySelector(`[data-key="${CSS.escape(key)}"], #${CSS.escape(key)}`)?.focus({ preventScroll: true });
  return node;
}

const LONG = 6000;

// A text of any length; a button shows the rest of a long text.
export function longText(text, props = {}) {
  const whole = String(text ?? "");
  const box = h("div", { ...props, class: `text ${props.class || ""}` });
  if (whole.length <= LONG) return add(box, [whole]);
  const more = h(
    "button",
    { class: "plain", onclick: () => put(box, whole.slice(0, 2_000_000)) },
    `Show all ${whole.length.toLocaleString("en")} characters`,
  );
  return add(box, [whole.slice(0, LONG / 2), "\n… ", more, " …\n", whole.slice(-LONG / 4)]);
}

// A box that scrolls if its content is wider than the page; the keyboard can reach it.
export function scroller(label, ...children) {
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, children);
}

// A table of rows of cells. The columns from `from` up to (not including) `to` are numbers. A cell that is false is left out.
export function table(heads, rows, { from = Infinity, to = Infinity, ...props } = {}) {
  const line = (cells, kind) =>
    h("tr", {}, cells.filter((c) => c !== false).map((c, i) => h(kind, { class: i >= from && i < to ? "n" : null }, c)));
  return h("table", props, heads && h("thead", {}, line(heads, "th")), h("tbody", {}, rows.map((cells) => line(cells, "td"))));
}

// Values that this tab keeps until it is closed; the browser may have no storage.
export const stored = {
  get(key) {
    try {
      return sessionStorage.getItem(key) || "";
    } catch {
      return "";
    }
  },
  set(key, value) {
    try {
      if (value) sessionStorage.setItem(key, value);
      else sessionStorage.removeItem(key);
    } catch {
      /* behave as if nothing was kept */
    }
  },
};

export function copyButton(text, name = "Copy", kind = "plain small") {
  const copy = async () => {
    await navigator.clipboard?.writeText(typeof text === "function" ? text() : text);
    say("Copied.");
  };
  return h("button", { class: kind, onclick: copy }, name);
}

// Handles a view's keys while nobody types in a field; `work` gets the key and returns true if it used the key.
export function onKeys(signal, work) {
  const elsewhere = "input:not([type=checkbox]), textarea, select, dialog[open]";
  const listen = (event) => {
    if (event.target.closest(elsewhere) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (work(event.key, event)) event.preventDefault();
  };
  document.addEventListener("keydown", listen, { signal });
}

// Repeats work until the user leaves the view, but not while the tab is hidden.
export function every(milliseconds, work, signal) {
  const timer = setInterval(() => document.hidden || work(), milliseconds);
  signal.addEventListener("abort", () => clearInterval(timer));
}

// The building blocks of views.
export const rowOf = (...children) => h("div", { class: "row" }, children);
export const rowBetween = (...children) => h("div", { class: "row between" }, children);
export const stackOf = (...children) => h("div", { class: "stack" }, children);
export const closeStack = (...children) => h("div", { class: "stack tight" }, children);
export const twoColumns = (...children) => h("div", { class: "two" }, children);
export const panel = (title, ...children) => h("section", { class: "panel pad stack tight" }, title && h("h2", {}, title), children);
// A panel whose content, mostly a table, reaches its edges; `tools` are elements next to the title.
export const sheet = (title, content, ...tools) =>
  h("section", { class: "panel" }, h("div", { class: "row between pad" }, h("h2", {}, title), tools), content);
export const fold = (title, ...children) => h("details", {}, h("summary", {}, title), children);
export const bullets = (items, kind = "small") => h("ul", { class: kind }, items.map((item) => h("li", {}, item)));
export const fieldOf = (id, label, ...inputs) => h("div", { class: "field" }, h("label", { for: id }, label), inputs);
export const button = (text, onclick, props) => h("button", { ...props, onclick }, text);

// A choice; `choices` are values, or pairs of a value and its text. `onpick` gets the new value.
export function select(label, choices, chosen, onpick, props) {
  const options = choices.map((c) => (Array.isArray(c) ? c : [c, c]));
  const node = h("select", { "aria-label": label, ...props, onchange: () => onpick?.(node.value) });
  return add(node, options.map(([value, text]) => h("option", { value, selected: String(value) === String(chosen) }, text)));
}

export function empty(title, ...says) {
  const texts = says.map((part) => (typeof part === "string" ? h("p", {}, part) : part));
  return h("div", { class: "empty" }, h("h2", {}, title), texts);
}

// The text of a view, or of a part of it, that has nothing to show yet.
export const emptyPanel = (title, ...says) => h("div", { class: "panel" }, empty(title, ...says));

export function errorBox(error) {
  return h("div", { class: "error", role: "alert" }, h("b", {}, "That did not work. "), error.message || String(error));
}

// Does work that a view waits for, and shows an error in `box`, unless the user has left the view.
export async function attempt(box, work) {
  try {
    return await work();
  } catch (error) {
    if (error.name !== "AbortError") put(box, errorBox(error));
  }
}

export function say(text, bad = false) {
  const line = h("p", { class: bad ? "bad" : "" }, text);
  document.getElementById("says").append(line);
  setTimeout(() => line.remove(), bad ? 9000 : 4500);
}

export function tag(text, kind = text) {
  return h(
    "span",
    { class: `tag ${String(kind).split(" ")[0]}` },
    (kind === "live" || kind === "running") && h("span", { class: "dot pulse" }),
    text,
  );
}

export function segment(options, chosen, onpick, label) {
  const box = h("div", { class: "seg", role: "group", "aria-label": label });
  for (const [value, text] of options) {
    box.append(
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(value === chosen),
          "data-key": `seg-${label}-${value}`,
          onclick: () => {
            for (const other of box.children) other.setAttribute("aria-pressed", String(other.textContent === text));
            onpick(value);
          },
        },
        text,
      ),
    );
  }
  return box;
}

// A button with a panel below it, which a click outside or Escape closes. The caller fills `inside`.
export function menu(text, kind = "") {
  const inside = h("div", { class: "inside" });
  const turn = () => button.setAttribute("aria-expanded", String(node.classList.toggle("open")));
  const button = h("button", { "data-key": `menu-${text}`, "aria-expanded": "false", onclick: turn }, text);
  const node = h("div", { class: `menu ${kind}` }, button, inside);
  return { node, inside };
}
function closeMenus(except) {
  for (const open of document.querySelectorAll(".menu.open"))
    if (!except?.includes(open)) open.querySelector("button").click();
}
document.addEventListener("click", (event) => event.isTrusted && closeMenus(event.composedPath()));
document.addEventListener("keydown", (event) => event.key === "Escape" && closeMenus());

export const LEFT = "left"; // the return value of a dialog that was closed because the user left its view

export function dialog(kind, title, content, { foot, onclose } = {}) {
  const box = h("dialog", { class: kind, "aria-label": title });
  const close = () => box.close();
  add(box, [
    h(
      "div",
      { class: "title" },
      h("h2", { class: "grow" }, title),
      h("button", { class: "icon", "aria-label": "Close", onclick: close }, "✕"),
    ),
    h("div", { class: "inside" }, content),
    foot && h("div", { class: "foot" }, foot(close)),
  ]);
  box.addEventListener("click", (event) => {
    if (event.target === box) close();
  });
  box.addEventListener("close", () => {
    box.remove();
    onclose?.();
  });
  document.body.append(box);
  box.showModal();
  return box;
}

// A dialog with two buttons. It closes when `work` is done, and shows the error if `work` fails.
export function question(title, content, yes, work, { no = "Cancel", kind = "main" } = {}) {
  const wrong = h("div", {});
  const go = (close) => async (event) => {
    event.target.disabled = true;
    await attempt(wrong, async () => {
      await work();
      close();
    });
    event.target.disabled = false;
  };
  return dialog("box", title, stackOf(content, wrong), {
    foot: (close) => [button(no, close), button(yes, go(close), { class: kind })],
  });
}

let pressed = false,
  waiting = [];
window.addEventListener("pointerdown", () => (pressed = true), true);
for (const kind of ["pointerup", "pointercancel"])
  window.addEventListener(
    kind,
    () => {
      pressed = false;
      setTimeout(() => waiting.splice(0).forEach((work) => work()));
    },
    true,
  );

// Draws again now, or as soon as the pointer is up, so that an element that a user is pressing does not move.
export function calm(work) {
  if (pressed) waiting.push(work);
  else work();
}
