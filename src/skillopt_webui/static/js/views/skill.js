// Any version of the skill: with the step that wrote each line, or side by side with another version.
import { h, put, onKeys, rowOf, stackOf, closeStack, panel, button, select, emptyPanel, errorBox, attempt, tag, segment } from "../dom.js";
import { get, post, of, path } from "../api.js";
import { openTrajectory } from "../trajectory.js";
import { editCard } from "../edit.js";
import { commentBox } from "../comments.js";
import { sideBySide } from "../diffview.js";
import { gateLine, signed, whole, money } from "../format.js";
import { waitForLaunch } from "../launched.js";
import { resultFigures } from "./measured.js";

export async function skillTab(root, run, { query, signal }) {
  const versions = () => run.data.versions,
    best = run.data.summary?.best.version;
  if (!versions().length) {
    put(root, emptyPanel("No version yet", "The initial skill appears here as soon as the run has begun."));
    return null;
  }
  let version = query.has("v") ? Number(query.get("v")) : (best ?? versions().at(-1));
  let mode = query.get("mode") || "blame",
    against = Number(query.get("a") ?? 0),
    line = Number(query.get("line")) || 0,
    token = 0;
  const controls = h("div", { class: "row between" }),
    content = h("div", {}, h("p", { class: "wait" }, "Loading…")),
    about = h("div", { class: "stack tight" });
  put(root, stackOf(h("section", { class: "panel pad" }, controls), content));

  const goTo = () => {
    history.replaceState(
      null,
      "",
      `#/run/${path(run.id)}/skill?v=${version}${mode === "diff" ? `&mode=diff&a=${against}` : ""}`,
    );
    draw();
  };
  const name = (v) => `v${v}${v === 0 ? " (initial)" : v === best ? " (best)" : ""}`;
  const show = (v) => {
    version = v;
    goTo();
  };
  const picker = (value, label, onpick) =>
    select(label, versions().map((v) => [v, name(v)]), value, (v) => onpick(Number(v)), { "data-key": label });

  function drawControls() {
    const at = versions().indexOf(version);
    const turn = (key, label, to, text) =>
      button(text, () => show(versions()[to]), { "data-key": key, "aria-label": label, disabled: versions()[to] === undefined });
    const from = (v) => {
      against = v;
      goTo();
    };
    const modes = [
      ["blame", "Blame"],
      ["diff", "Diff"],
      ["plain", "Text"],
    ];
    const turnTo = (next) => {
      if (next === "diff" && mode !== "diff") against = versions()[Math.max(0, at - 1)];
      mode = next;
      goTo();
    };
    put(
      controls,
      rowOf(
        turn("older", "Older version", at - 1, "←"),
        mode === "diff" && [picker(against, "Left version", from), h("span", { class: "dim" }, "→")],
        picker(version, "Version", show),
        turn("newer", "Newer version", at + 1, "→"),
        segment(modes, mode, turnTo, "View"),
      ),
      rowOf(
        h("a", { class: "button", href: of(run.id, `/export/v${version}`), download: "" }, "Export"),
        h("a", { class: "button", href: `#/evaluate?run=${encodeURIComponent(run.id)}&v=${version}` }, "Evaluate"),
      ),
    );
  }

  async function draw() {
    const mine = ++token;
    drawControls();
    try {
      if (mode === "diff") {
        const of_ = (wanted) => ({ run: run.id, version: wanted });
        const { blocks } = await post("/api/diff", { a: of_(against), b: of_(version) }, signal);
        if (mine === token) put(content, h("section", { class: "panel" }, sideBySide(blocks)));
        return;
      }
      const skill = await get(of(run.id, `/skills/${version}`), signal);
      if (mine !== token) return;
      if (!skill.text.trim()) put(content, emptyPanel("This version is empty", "Training began without a skill."));
      else if (mode === "plain") put(content, h("section", { class: "panel pad" }, h("pre", {}, skill.text)));
      else
        put(
          content,
          h(
            "div",
            { class: "split blamed" },
            h("section", { class: "panel doc", "aria-label": `Version ${version}, line by line` }, blame(skill)),
            about,
          ),
        );
      if (mode === "blame")
        put(
          about,
          panel(
            "Who wrote what",
            legend(skill),
            h(
              "p",
              { class: "dim small" },
              "Choose a line to see the edit that wrote it, its reasons and the gate's evidence.",
            ),
            fileList(skill),
            Object.keys(skill.worth).length > 0 && h("p", { class: "dim small" }, "The number after a line is its worth in an ablation: the validation score with it minus the score without it. Green: it earns its place; red: it is harmful; grey: not clear alone."),
          ),
        );
      if (mode === "blame" && line) content.querySelectorAll(".ln")[line - 1]?.click?.();
    } catch (error) {
      if (error.name !== "AbortError" && mine === token) put(content, errorBox(error));
    }
  }

  function blame(skill) {
    const newest = Math.max(1, ...Object.values(skill.entries).map((e) => e.step));
    let begins = 0, // each file of a package has its own line numbers
      file;
    return skill.lines.map(([text, seq], i) => {
      if (skill.files[i + 1]) {
        begins = i + 1;
        file = skill.files[begins];
        return h("div", { class: "ln filename", id: `file-${i + 1}`, tabindex: "-1" }, h("span", {}, text));
      }
      const entry = skill.entries[seq],
        place = { file, line: i + 1 - begins };
      const color = entry ? hue(entry.step, newest) : null;
      const cells = [
        h("span", { class: "no" }, place.line),
        h(
          "span",
          { class: "who", style: color ? { background: color.soft, color: color.ink } : {} },
          entry ? (entry.kind === "guidance" ? `epoch ${entry.epoch}` : `step ${entry.step}`) : "",
        ),
        h("span", {}, text || " ", skill.worth[i + 1] && worthTag(skill.worth[i + 1])),
      ];
      if (!entry && !text.trim()) return h("div", { class: "ln" }, cells);
      return h(
        "button",
        {
          class: "ln",
          "aria-pressed": "false",
          style: color ? { "box-shadow": `inset 3px 0 ${color.ink}` } : {},
          onclick: (event) => {
            line = i + 1;
            history.replaceState(history.state, "", `#/run/${path(run.id)}/skill?v=${version}&line=${line}`);
            for (const other of content.querySelectorAll(".ln[aria-pressed]"))
              other.setAttribute("aria-pressed", String(seq > 0 && other.dataset.seq === String(seq)));
            event.currentTarget.setAttribute("aria-pressed", "true");
            explain(entry, text, place);
          },
          data: { seq },
        },
        cells,
      );
    });
  }

  // Changes a line, and measures the change on failing items against the unchanged version.
  function tryBox(place, text) {
    const own = h("textarea", { class: "code", rows: 3, "aria-label": "The line as you would write it", value: text }),
      split = select("Items", [["train", "failing training items"], ["val", "failing validation items"]], "train", ask),
      cost = h("p", { class: "dim small", "aria-live": "polite" }),
      out = h("div", {});
    const go = button("Measure the change", start, { class: "main", disabled: true });
    const wish = () => ({ run: run.id, version, split: split.value, text: own.value, ...place });
    let failing = 0;
    async function ask() {
      go.disabled = true;
      try {
        const t = await post("/api/try", wish(), signal);
        const price = t.usd === null ? "at a price that is unknown" : `about ${money(t.usd)} (estimate)`;
        cost.textContent = t.items
          ? `${t.items} items, ${t.rollouts} rollouts, ${price}. Items that it solves are not measured.`
          : "None of these items failed when last measured.";
        if (split.value === "val") cost.append(" Do not write edits for validation items: such edits fit these items too well.");
        failing = t.items;
        go.disabled = own.value === text || !failing;
      } catch (error) {
        if (error.name !== "AbortError") cost.textContent = error.message;
      }
    }
    async function start() {
      go.disabled = true;
      put(out, h("p", { class: "dim" }, "Measuring…"));
      await attempt(out, async () => {
        const { launch } = await post("/api/try", { ...wish(), start: true }, signal);
        const status = await waitForLaunch(launch, { ended: true, signal });
        const found = await get(`/api/measured/${path(status.written)}`, signal);
        put(out, resultFigures(found), h("a", { href: `#/measured/${path(status.written)}` }, "Item by item"));
      });
      go.disabled = false;
    }
    own.addEventListener("input", () => (go.disabled = own.value === text || !failing));
    ask();
    return closeStack(own, rowOf(go, split), cost, out);
  }

  function explain(entry, line, place) {
    if (window.innerWidth <= 1000) queueMicrotask(() => about.scrollIntoView({ block: "start" }));
    put(
      about,
      panel(
        null,
        entry
          ? [
              h("h2", {}, entry.kind === "guidance" ? `Slow update, epoch ${entry.epoch}` : `Step ${entry.step}`, " ", tag(`v${entry.version}`, "grey")),
              h("p", { class: "small" }, gateLine(entry.evidence)),
              editCard(entry.edit, { state: ["in", "accepted"], open: (id) => openTrajectory(run.id, { id }, entry.edit.trajectory_ids) }),
            ]
          : [h("h2", {}, "Initial skill"), h("p", { class: "dim small" }, "Training has not changed this line.")],
        h("h3", {}, "Edit and try"),
        tryBox(place, line),
        h("h3", {}, "What you think of this line"),
        commentBox(run.id, { kind: "line", about: line }),
        entry && entry.kind !== "guidance" &&
          h("a", { href: `#/run/${path(run.id)}/steps?n=${entry.step}` }, `Open step ${entry.step}`),
      ),
    );
  }

  onKeys(signal, (key) => {
    const move = { "[": -1, "]": 1 }[key],
      next = versions()[versions().indexOf(version) + (move || 0)];
    if (!move || next === undefined) return false;
    show(next);
    return true;
  });
  run.listeners.add((what) => {
    if (what !== "event") drawControls();
  });
  await draw();
  return (options) => {
    if (options.has("v")) {
      version = Number(options.get("v"));
      mode = options.get("mode") || mode;
      draw();
    }
  };
}

// The files of a package, each with the number of its lines that training wrote.
function fileList({ files, lines }) {
  const starts = Object.entries(files);
  if (!starts.length) return null;
  const all = [["0", "SKILL.md"], ...starts];
  const wrote = (n) => lines.slice(Number(all[n][0]), Number(all[n + 1]?.[0] ?? lines.length + 1) - 1).filter(([, seq]) => seq).length;
  const show = (at) => document.getElementById(`file-${at}`)?.scrollIntoView({ block: "center" }) ?? window.scrollTo(0, 0);
  return [
    h("h3", {}, `${all.length} files`),
    h("ul", { class: "files" }, all.map(([at, name], n) => h("li", {}, h("button", { class: "plain mono", onclick: () => show(at) }, name), h("span", { class: "dim small" }, ` ${wrote(n)} lines by training`)))),
  ];
}

// The worth of a rule, from an ablation.
const WORTH = { earns: "good", harmful: "bad" };
const VERDICT = { earns: "earns its place", harmful: "harmful", nothing: "no effect seen", unclear: "not clear", together: "not clear alone, matters with others" };
function worthTag({ worth, interval, verdict }) {
  const range = interval ? `, 95 % ${signed(interval[0])} to ${signed(interval[1])}` : "";
  return h("span", { class: `tag worth ${WORTH[verdict] || "grey"}`, title: `Ablation: ${VERDICT[verdict]}${range}` }, signed(worth));
}

// Early steps are blue, late ones orange; they differ in lightness as well.
function hue(step, newest) {
  const share = newest > 1 ? (step - 1) / (newest - 1) : 0;
  const angle = 255 - share * 215;
  return {
    ink: `light-dark(hsl(${angle} 62% 24%), hsl(${angle} 70% 74%))`,
    soft: `light-dark(hsl(${angle} 70% 93%), hsl(${angle} 40% 19%))`,
  };
}

function legend(skill) {
  const counts = new Map();
  for (const [, seq] of skill.lines) {
    const e = skill.entries[seq],
      k = e ? (e.kind === "guidance" ? `epoch ${e.epoch}` : `step ${e.step}`) : "initial";
    counts.set(k, [(counts.get(k)?.[0] || 0) + 1, e]);
  }
  const newest = Math.max(1, ...Object.values(skill.entries).map((e) => e.step));
  return rowOf(
    [...counts]
      .sort((a, b) => (a[1][1]?.step ?? 0) - (b[1][1]?.step ?? 0))
      .map(([k, [n, e]]) => {
        const c = e && hue(e.step, newest);
        return h("span", { class: "tag", style: c ? { background: c.soft, color: c.ink } : {} }, `${k}: ${whole(n)}`);
      }),
  );
}
