// The frame of the page: navigation, theme, keyboard, and the choice of the view.
import { h, svg, put, table, onKeys, errorBox, LEFT, dialog } from "./dom.js";
import { get } from "./api.js";
import { runsView } from "./views/runs.js";
import { runView } from "./views/run.js";
import { configureView } from "./views/configure.js";
import { compareView } from "./views/compare.js";
import { evaluateView } from "./views/evaluate.js";
import { measuredView } from "./views/measured.js";
import { trialsView } from "./views/trials.js";
import { harvestView } from "./views/harvest.js";
import { loginView } from "./views/login.js";

const VIEWS = { runs: runsView, run: runView, new: configureView, compare: compareView, evaluate: evaluateView, measured: measuredView, trials: trialsView, harvest: harvestView };
const NAV = [
  ["runs", "Runs", "M4 6h16M4 12h16M4 18h16"],
  ["new", "New run", "M12 5v14M5 12h14"],
  ["compare", "Compare", "M9 5v14M15 5v14M5 9l4-4M19 15l-4 4"],
  ["evaluate", "Evaluate", "M5 13l4 4L19 7"],
];
const main = document.getElementById("main");
// Made once: a picture that is requested again while the server is down stays broken.
const brand = h("a", { class: "brand", href: "#/runs" }, h("img", { src: "/static/icon.svg", alt: "" }), "SkillOpt");
let leave = null;

function frame(current) {
  const links = NAV.map(([name, text, icon]) =>
    h(
      "a",
      { href: `#/${name}`, "aria-current": name === current || (name === "runs" && (current === "run" || current === "trials")) || (name === "evaluate" && current === "measured") ? "page" : null },
      svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: icon })),
      text,
    ),
  );
  put(
    document.getElementById("top"),
    h(
      "div",
      { class: "bar" },
      brand,
      h("nav", { class: "nav", "aria-label": "Main" }, links),
      h(
        "button",
        {
          class: "icon",
          "aria-label": "Light or dark",
          title: "Light or dark (t)",
          "data-key": "theme",
          onclick: turnTheme,
        },
        "◐",
      ),
      h(
        "button",
        { class: "icon", "aria-label": "Keyboard", title: "Keyboard (?)", "data-key": "keys", onclick: showKeys },
        "?",
      ),
    ),
  );
}

function turnTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("skillopt-theme", root.dataset.theme);
  } catch {
    /* storage may be off */
  }
  window.dispatchEvent(new Event("skillopt-theme"));
}

// #/run/0/sim/2026-11-17_22-40-05_seed42-1a2b3c4d/steps?n=3 → view "run", parts, query
function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = (path || "runs").split("/").map(decodeURIComponent);
  return { name, parts, query: new URLSearchParams(query || "") };
}

async function show() {
  const { name, parts, query } = route();
  const view = VIEWS[name] || runsView;
  if (leave?.view === view && leave.stay?.(parts, query)) {
    frame(name);
    return;
  }
  leave?.abort.abort();
  const abort = new AbortController();
  const mine = (leave = { abort, view, stay: null });
  frame(name);
  document.title = "SkillOpt";
  const root = h("div", {});
  put(main, root);
  const back = history.state?.y;
  if (back === undefined) window.scrollTo(0, 0);
  try {
    const stay = await view(root, { parts, query, signal: abort.signal });
    if (leave === mine) leave.stay = stay || null;
    if (back !== undefined && leave === mine) restore(history.state);
  } catch (error) {
    if (error.name !== "AbortError" && leave === mine && error.status !== 401)
      put(root, errorBox(error), h("p", { class: "wait" }, h("a", { href: "#/runs" }, "All runs")));
  }
}

// The scroll positions of the page and its first table; Back restores them.
history.scrollRestoration = "manual";
const inner = () => main.querySelector(".tablebox");
let noted = 0;
document.addEventListener(
  "scroll",
  () => {
    clearTimeout(noted);
    noted = setTimeout(() => history.replaceState({ y: window.scrollY, inner: inner()?.scrollTop || 0 }, ""), 120);
  },
  { capture: true, passive: true },
);
function restore({ y, inner: top }, tries = 20) {
  window.scrollTo(0, y);
  if (inner()) inner().scrollTop = top;
  const there = Math.abs(window.scrollY - y) < 2 && (!top || Math.abs((inner()?.scrollTop ?? 0) - top) < 2);
  if (!there && tries) setTimeout(() => restore({ y, inner: top }, tries - 1), 60);
}

const KEYS = [
  ["g r", "runs"],
  ["g n", "new run"],
  ["g c", "compare"],
  ["g e", "evaluate"],
  ["/", "search"],
  ["j k ↑ ↓", "next, previous line of a table"],
  ["[ ]", "previous, next step or version"],
  ["1 – 6", "tabs of a run"],
  ["← →", "values of a chart, trajectories, versions of an item"],
  ["Enter", "open"],
  ["t", "light or dark"],
  ["Esc", "close"],
  ["?", "this list"],
];

function showKeys() {
  dialog(
    "box",
    "Keyboard",
    table(null, KEYS.map(([keys, what]) => [keys.split(" ").map((k) => [h("kbd", {}, k), " "]), what])),
  );
}

let chord = false; // true if the last key was g
onKeys(undefined, (key) => {
  const goal = chord && { r: "runs", n: "new", c: "compare", e: "evaluate" }[key],
    field = key === "/" && main.querySelector("input[type=search]");
  chord = key === "g";
  if (goal) location.hash = `#/${goal}`;
  else if (key === "t") turnTheme();
  else if (key === "?") showKeys();
  else field?.focus?.();
  return Boolean(goal || field);
});

window.addEventListener("hashchange", () => {
  clearTimeout(noted); // it belonged to the previous address
  for (const open of document.querySelectorAll("dialog[open]")) open.close(LEFT); // the dialog belonged to the previous view
  show();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the view, so it must not change
  main.focus();
});
window.addEventListener("skillopt-login", () => {
  leave?.abort.abort();
  leave = null;
  frame("");
  put(main, loginView(show));
});

const session = await get("/api/session").catch(() => ({ needs_token: false }));
if (session.needs_token) window.dispatchEvent(new Event("skillopt-login"));
else show();
