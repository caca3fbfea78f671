// One run, live: figures, the strip of stages, and the tabs below. What happens arrives as events; nothing is reloaded.
import { h, put, tag, errorBox, dialog, say, calm } from "../dom.js";
import { get, post, follow, of, path } from "../api.js";
import { score, gain, money, span, whole } from "../format.js";
import { strip, liveBar } from "./strip.js";
import { overviewTab } from "./overview.js";
import { stepsTab } from "./steps.js";
import { skillTab } from "./skill.js";
import { itemsTab } from "./items.js";
import { reviewTab } from "./review.js";
import { lettersTab } from "./letters.js";
import { costsTab } from "./costs.js";
import { configTab, logTab } from "./aside.js";
import { waitForLaunch } from "../launched.js";
import { openNamed } from "../trajectory.js";

const TABS = [
  ["overview", "Overview", overviewTab],
  ["steps", "Steps", stepsTab],
  ["skill", "Skill", skillTab],
  ["items", "Items", itemsTab],
  ["review", "Review", reviewTab],
  ["costs", "Costs", costsTab],
  ["config", "Config", configTab],
  ["log", "Log", logTab],
  ["letters", "Letters", lettersTab],
];
// Only a run whose optimizer is a handoff has letters.
const tabsOf = (run) => TABS.filter(([name]) => name !== "letters" || run.data.letters !== null);
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
  document.title = `${parts[1]} · SkillOpt`;
  const now = h("div", { class: "stack tight" }),
    head = h("div", { class: "runhead" }),
    tabs = h("nav", { class: "tabs", "aria-label": "Run" }),
    body = h("div", {});
  put(root, head, tabs, h("div", { style: { height: "16px" } }), body);
  let tab = null;

  function drawHead() {
    const { data } = run,
      s = data.summary;
    const state = data.status;
    put(
      head,
      h(
        "div",
        { class: "row between" },
        h(
          "div",
          { class: "grow" },
          h("div", { class: "crumb" }, h("a", { href: "#/runs" }, "Runs"), " / ", parts[1]),
          h(
            "div",
            { class: "row" },
            h("h1", { class: "mono" }, parts[2]),
            tag(state),
            !run.connected && tag("server away, trying again", "warn"),
          ),
        ),
        h("div", { class: "row actions" }, actions(run, state)),
      ),
      whyNot(data),
      figures(data),
      now,
    );
    drawNow();
  }

  // What changes twice a second has no buttons in it: a click must meet the element that it began on.
  function drawNow() {
    put(now, ...(run.data.pid ? [strip(run), liveBar(run)] : []));
  }

  function drawTabs() {
    queueMicrotask(() => {
      const now = tabs.querySelector("[aria-current]");
      if (now) tabs.scrollLeft = now.offsetLeft - tabs.clientWidth / 2 + now.clientWidth / 2;
    });
    put(
      tabs,
      tabsOf(run).map(([name, text]) =>
        h(
          "a",
          {
            href: `#/run/${path(id)}/${name}`,
            "aria-current": name === tab?.name ? "page" : null,
            "data-key": `tab-${name}`,
          },
          text,
          name === "review" && run.data.conflicts ? tag(run.data.conflicts, "warn") : null,
          name === "letters" && run.data.letters ? tag(run.data.letters, "warn") : null,
        ),
      ),
    );
  }

  function open(name, options) {
    if (tab?.name === name) {
      tab.change?.(options);
      return;
    }
    tab?.abort.abort();
    const [key, , view] = tabsOf(run).find(([own]) => own === name) || TABS[0];
    const abort = new AbortController();
    tab = { name: key, abort, change: null };
    const mine = tab,
      box = h("div", {});
    signal.addEventListener("abort", () => abort.abort());
    put(body, box);
    drawTabs();
    run.listeners.clear();
    Promise.resolve(view(box, run, { query: options, signal: abort.signal }))
      .then((change) => {
        mine.change = change;
      })
      .catch((error) => {
        if (error.name !== "AbortError") put(box, errorBox(error));
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

  document.addEventListener(
    "keydown",
    (event) => {
      if (event.target.closest("input, textarea, select, dialog[open]") || event.ctrlKey || event.metaKey || event.altKey)
        return;
      const number = Number(event.key);
      const shown = tabsOf(run);
      if (number >= 1 && number <= shown.length) location.hash = `#/run/${path(id)}/${shown[number - 1][0]}`;
    },
    { signal },
  );

  return (next, options) => {
    if (next.slice(0, 3).join("/") !== id) return false;
    open(next[3] || "overview", options);
    openNamed(id, options);
    return true;
  };
}

// Why a run ended before its last step, and what to do about it: first, and in red unless a person stopped it.
function whyNot({ status, reason, remedy }) {
  if (!reason) return null;
  if (status === "finished") return h("p", { class: "note" }, `Ended early: ${reason}.`);
  if (reason === "interrupted") return h("p", { class: "note" }, "Stopped by Pause or Ctrl-C. Resume continues it.");
  return h(
    "div",
    { class: "error", role: "alert" },
    h("p", {}, h("b", {}, status === "stopped" ? "Stopped: " : "Interrupted: "), reason.slice(0, 4000)),
    remedy && h("p", {}, remedy),
  );
}

function figures(data) {
  const s = data.summary,
    steps = data.steps.length,
    planned = data.started?.steps;
  const usd = s
    ? Object.values(s.cost_usd).includes(null)
      ? null
      : s.cost_usd.target + s.cost_usd.optimizer
    : undefined;
  const one = (name, value, extra, lead) =>
    h(
      "div",
      { class: `figure ${lead ? "lead" : ""}` },
      h("dt", {}, name),
      h("dd", {}, value, h("small", {}, extra || "")),
    );
  return h(
    "dl",
    { class: "figures", tabindex: "0", "aria-label": "Figures" },
    one(
      "Validation",
      !s
        ? "…"
        : s.best.val == null
          ? "–"
          : [
              score(s.initial.val),
              " → ",
              h("span", { class: s.best.val > s.initial.val ? "good" : "" }, score(s.best.val)),
            ],
      s && s.best.val != null ? gain(s.best.val, s.initial.val) : "",
      true,
    ),
    one(
      s?.best.test == null ? "Test (sealed)" : "Test",
      s?.best.test != null ? [score(s.initial.test), " → ", score(s.best.test)] : "–",
      s?.best.test == null ? "read at the end" : "",
    ),
    one("Steps", `${steps}${planned ? ` / ${planned}` : ""}`, s ? `${s.steps.accepted} accepted` : ""),
    one("Skill", s ? whole(s.best.tokens) : "–", "tokens"),
    one(
      "Calls",
      s ? whole(s.calls.target + s.calls.optimizer) : "–",
      s?.gate?.calls_saved ? `${whole(s.gate.calls_saved)} saved` : "",
    ),
    one("Cost", usd === undefined ? "–" : money(usd)),
    one("Time", s ? span(s.seconds) : "–"),
  );
}

function actions(run, state) {
  const id = run.id,
    key = (name) => ({ "data-key": `act-${name}` });
  const guarded = (work) => async (event) => {
    event.target.disabled = true;
    try {
      await work();
    } catch (error) {
      say(error.message, true);
    }
    event.target.disabled = false;
  };
  if (state === "running") {
    return [
      h(
        "button",
        {
          ...key("pause"),
          title: "Nothing new starts, calls in flight are kept, and the process ends; Resume continues the run.",
          onclick: guarded(async () => {
            await post(of(id, "/pause"));
            say("Pausing: what is in flight is still paid for and kept.");
          }),
        },
        "Pause",
      ),
      h("button", { ...key("stop"), class: "danger", onclick: () => confirmStop(id) }, "Stop now"),
    ];
  }
  return [
    state !== "finished" &&
      h("button", { ...key("resume"), class: "main", onclick: () => resumeDialog(run) }, "Resume"),
    run.data.summary &&
      h("a", { ...key("export"), class: "button", href: of(id, "/export/best"), download: "" }, "Export skill"),
    run.data.report &&
      h("a", { ...key("report"), class: "button", href: of(id, "/report"), target: "_blank", rel: "noopener" }, "Report"),
    run.data.summary &&
      h("a", { ...key("compare"), class: "button", href: `#/compare?runs=${encodeURIComponent(id)}` }, "Compare"),
    h("a", { ...key("again"), class: "button", href: `#/new?run=${encodeURIComponent(id)}` }, "Use its config"),
    run.data.comments > 0 &&
      h(
        "a",
        {
          ...key("feedback"),
          class: "button",
          title: "A new run of this config whose optimizer is shown your comments on training items and lines",
          href: `#/new?run=${encodeURIComponent(id)}&feedback=1`,
        },
        `Train with ${run.data.comments} ${run.data.comments === 1 ? "comment" : "comments"}`,
      ),
  ];
}

function confirmStop(id) {
  dialog(
    "box",
    "Stop now?",
    h(
      "p",
      {},
      "The process ends at once. Replies that are in flight are lost, although they may be paid for; all others are kept, and the run can be resumed. Pause ends it cleanly.",
    ),
    {
      foot: (close) => [
        h("button", { onclick: close }, "Cancel"),
        h(
          "button",
          {
            class: "danger",
            onclick: async () => {
              close();
              try {
                await post(of(id, "/stop"));
                say("Stopped.");
              } catch (error) {
                say(error.message, true);
              }
            },
          },
          "Stop now",
        ),
      ],
    },
  );
}

function resumeDialog(run) {
  const config = run.data.config,
    fields = ["budget.max_usd", "budget.max_calls", "budget.max_tokens", "budget.max_minutes", "hardware.workers"];
  const inputs = fields.map((key) => [
    key,
    h("input", {
      id: `r-${key}`,
      value: config[key] ?? "",
      placeholder: key.startsWith("budget") ? "no limit" : "",
      inputmode: "decimal",
    }),
  ]);
  const wrong = h("div", {});
  dialog(
    "box",
    "Resume",
    h(
      "div",
      { class: "stack" },
      run.data.summary?.stop_reason && h("p", { class: "note" }, `It stopped: ${run.data.summary.stop_reason}`),
      h(
        "p",
        { class: "dim" },
        "It continues after its last finished step; replies that were received are not paid for again. These may be changed:",
      ),
      inputs.map(([key, input]) =>
        h("div", { class: "field" }, h("label", { for: `r-${key}`, class: "mono small" }, key), input),
      ),
      wrong,
    ),
    {
      foot: (close) => [
        h("button", { onclick: close }, "Cancel"),
        h(
          "button",
          {
            class: "main",
            onclick: async (event) => {
              const set = {};
              for (const [key, input] of inputs)
                if (input.value.trim() !== String(config[key] ?? "")) set[key] = input.value;
              event.target.disabled = true;
              try {
                await waitForLaunch(await post(of(run.id, "/resume"), { set }));
                close();
                say("The run continues.");
              } catch (error) {
                put(wrong, errorBox(error));
                event.target.disabled = false;
              }
            },
          },
          "Resume",
        ),
      ],
    },
  );
}
