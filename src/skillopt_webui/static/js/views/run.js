// One run, live: figures, the strip of stages, and the tabs below. Events update the view; the page is never reloaded.
import { h, put, onKeys, fieldOf, button, attempt, say, tag, menu, question, calm } from "../dom.js";
import { get, post, follow, of, path } from "../api.js";
import { score, money, span, whole, titled, tone } from "../format.js";
import { stage, numbers } from "./live.js";
import { overviewTab } from "./overview.js";
import { stepsTab } from "./steps.js";
import { skillTab } from "./skill.js";
import { itemsTab } from "./items.js";
import { reviewTab } from "./review.js";
import { detailsTab } from "./details.js";
import { waitForLaunch } from "../launched.js";
import { openNamed } from "../trajectory.js";

const TABS = [
  ["overview", "Overview", overviewTab],
  ["steps", "Steps", stepsTab],
  ["skill", "Skill", skillTab],
  ["items", "Items", itemsTab],
  ["review", "Review", reviewTab],
  ["details", "Details", detailsTab],
];
// The tabs of addresses that name a part of a tab.
const PARTS = { letters: "review", costs: "details", config: "details", log: "details" };
const RELOAD = new Set([
  "run_started",
  "step_finished",
  "epoch_finished",
  "evaluation_finished",
  "letters_opened",
  "run_stopped",
  "run_finished",
]);

export async function runView(root, { parts, query, signal }) {
  const id = parts.slice(0, 3).join("/");
  const run = { id, data: await get(of(id), signal), pulse: null, events: [], connected: true, listeners: new Set() };
  run.pulse = run.data.live;
  run.events = run.data.log;
  run.figures = run.data.figures;
  const head = h("header", { class: "runhead" }),
    nums = h("dl", { class: "nums", tabindex: "0", "aria-label": "Figures" }),
    more = menu("More"),
    meter = h("i", {}),
    tabs = h("nav", { class: "tabs", "aria-label": "Run" }),
    body = h("div", {});
  put(root, head, tabs, body);
  let tab = null;

  function drawHead() {
    const { data } = run,
      title = titled({ labels: data.labels, benchmark: parts[1], name: parts[2] });
    document.title = `${title} · SkillOpt`;
    put(more.inside, actions(run));
    put(
      head,
      h(
        "div",
        { class: "title" },
        h("h1", { title: `${title}\n${parts[1]} / ${parts[2]}` }, title),
        data.letters ? h("a", { href: `#/run/${path(id)}/letters` }, tag(`${data.letters} ${data.letters === 1 ? "letter waits" : "letters wait"}`, "warn")) : tag(data.word, tone(data)),
        !run.connected && tag("server away, trying again", "warn"),
      ),
      nums,
      h("div", { class: "row actions" }, mainAction(run), more.node),
      h("span", { class: "meter" }, meter),
    );
    drawNow();
  }

  // Parts that change twice a second contain no buttons: a click must end on the element on which it began.
  function drawNow() {
    put(nums, figures(run));
    meter.style.width = `${(stage(run).share ?? 0) * 100}%`;
    for (const listener of run.listeners) listener("now");
  }

  function drawTabs() {
    queueMicrotask(() => {
      const now = tabs.querySelector("[aria-current]");
      if (now) tabs.scrollLeft = now.offsetLeft - tabs.clientWidth / 2 + now.clientWidth / 2;
    });
    const open = (run.data.conflicts || 0) + (run.data.letters || 0);
    put(
      tabs,
      TABS.map(([name, text]) =>
        h(
          "a",
          { href: `#/run/${path(id)}/${name}`, "aria-current": name === tab?.name ? "page" : null, "data-key": `tab-${name}` },
          text,
          name === "review" && open ? tag(open, "warn") : null,
        ),
      ),
    );
  }

  function open(part, options) {
    const name = PARTS[part] || part;
    if (part !== name) options.set("part", part);
    if (tab?.name === name) {
      tab.change?.(options);
      return;
    }
    tab?.abort.abort();
    const [key, , view] = TABS.find(([own]) => own === name) || TABS[0];
    const abort = new AbortController();
    tab = { name: key, abort, change: null };
    const mine = tab,
      box = h("div", {});
    signal.addEventListener("abort", () => abort.abort());
    put(body, box);
    drawTabs();
    run.listeners.clear();
    attempt(box, async () => {
      mine.change = await view(box, run, { query: options, signal: abort.signal });
    });
  }

  function connected(yes) {
    if (run.connected === yes) return;
    run.connected = yes;
    drawHead();
    if (yes) reload();
  }

  let asked = null;
  function reload() {
    asked ??= setTimeout(async () => {
      asked = null;
      try {
        run.data = await get(of(id), signal);
        run.figures = run.data.figures;
        calm(() => {
          drawHead();
          drawTabs();
          for (const listener of run.listeners) listener();
        });
      } catch (error) {
        if (error.name !== "AbortError" && !error.status) connected(false);
      }
    }, 250);
  }

  run.reload = reload;
  drawHead();
  open(parts[3] || "overview", query);
  openNamed(id, query);
  follow(
    id,
    run.data.events,
    {
      event(event) {
        connected(true);
        run.events = [...run.events, event].slice(-300);
        if (RELOAD.has(event.kind)) reload();
        else drawNow();
        for (const l of run.listeners) l("event");
      },
      pulse(pulse) {
        connected(true);
        run.pulse = pulse;
        drawNow();
      },
      figures(figures) {
        run.figures = figures;
      },
      state({ pid }) {
        if (pid !== run.data.pid) {
          run.data.pid = pid;
          if (!pid) run.pulse = null;
          drawHead();
          reload();
        }
      },
      connected,
    },
    signal,
  );

  onKeys(signal, (key) => {
    const wanted = TABS[Number(key) - 1];
    if (wanted) location.hash = `#/run/${path(id)}/${wanted[0]}`;
    return Boolean(wanted);
  });

  return (next, options) => {
    if (next.slice(0, 3).join("/") !== id) return false;
    open(next[3] || "overview", options);
    openNamed(id, options);
    return true;
  };
}

// The line of figures, in the header or, on a phone, in the overview.
export function figures(run) {
  const n = numbers(run),
    now = stage(run),
    at = now.text && !now.final ? Math.min(n.steps + 1, n.planned ?? Infinity) : n.steps;
  const one = (name, value, title) => h("div", { class: "figure", title }, h("dt", {}, name), h("dd", {}, value));
  const scores = ([first, best]) =>
    best === undefined ? score(first) : [score(first), " → ", h("span", { class: best > first ? "good" : "" }, score(best))];
  return [
    one("Validation", scores(n.val)),
    one(n.test.length ? "Test" : "Test (not read yet)", scores(n.test)),
    one(now.text ? `Step · ${now.text}` : "Steps", `${at}${n.planned ? ` / ${n.planned}` : ""}`, now.text),
    one("Calls", whole(n.calls), `${whole(n.tokens)} tokens`),
    one("Cost", money(n.usd)),
    one("Time", span(n.seconds)),
  ];
}

// The button for the most usual action. The menu has all others; on a wide page it is a row.
function mainAction(run) {
  const { status } = run.data;
  if (status === "finished") return null;
  if (status !== "running") return button("Resume", () => resumeDialog(run), { "data-key": "act-resume", class: "main" });
  const pause = async (event) => {
    event.target.disabled = true;
    try {
      await post(of(run.id, "/pause"));
      say("Pausing: calls in flight are still paid for, and their replies are kept.");
    } catch (error) {
      say(error.message, true);
    }
    event.target.disabled = false;
  };
  const title = "Nothing new starts, calls in flight are kept, and the process ends; Resume continues the run.";
  return button("Pause", pause, { "data-key": "act-pause", title });
}

function actions(run) {
  const id = run.id,
    key = (name) => ({ "data-key": `act-${name}` });
  if (run.data.status === "running")
    return button("Stop now", () => confirmStop(id), { ...key("stop"), class: "danger" });
  const link = (name, href, text, more = {}) => h("a", { ...key(name), class: "button", href, ...more }, text);
  return [
    run.data.comments > 0 &&
      link("feedback", `#/new?run=${encodeURIComponent(id)}&feedback=1`, `Train with ${run.data.comments} ${run.data.comments === 1 ? "comment" : "comments"}`, {
        title: "Start a new run of this config, whose optimizer sees your comments on training items and lines",
      }),
    run.data.summary && link("export", of(id, "/export/best"), "Export skill", { download: "" }),
    run.data.report && link("report", of(id, "/report"), "Report", { target: "_blank", rel: "noopener" }),
    run.data.summary && link("compare", `#/compare?runs=${encodeURIComponent(id)}`, "Compare"),
    link("again", `#/new?run=${encodeURIComponent(id)}`, "Duplicate"),
  ];
}

function confirmStop(id) {
  const says =
    "The process ends at once. Replies of calls in flight are lost, although you may pay for them; all others are kept, and the run can be resumed. Pause ends the run cleanly.";
  const stop = async () => {
    await post(of(id, "/stop"));
    say("Stopped.");
  };
  question("Stop now?", h("p", {}, says), "Stop now", stop, { kind: "danger" });
}

function resumeDialog(run) {
  const config = run.data.config,
    fields = ["budget.max_usd", "budget.max_calls", "budget.max_tokens", "budget.max_minutes", "hardware.workers"];
  const inputs = fields.map((key) => {
    const placeholder = key.startsWith("budget") ? "no limit" : "";
    return [key, h("input", { id: `r-${key}`, value: config[key] ?? "", placeholder, inputmode: "decimal" })];
  });
  const says =
    "The run continues after its last finished step; received replies are not paid for again. You may change these limits:";
  const content = [
    run.data.summary?.stop_reason && h("p", { class: "note" }, `It stopped: ${run.data.summary.stop_reason}`),
    h("p", { class: "dim" }, says),
    inputs.map(([key, input]) => fieldOf(`r-${key}`, h("span", { class: "mono small" }, key), input)),
  ];
  question("Resume", content, "Resume", async () => {
    const changed = inputs.filter(([key, input]) => input.value.trim() !== String(config[key] ?? ""));
    const set = Object.fromEntries(changed.map(([key, input]) => [key, input.value]));
    await waitForLaunch(await post(of(run.id, "/resume"), { set }));
    say("The run continues.");
  });
}
