// Items × versions: which version solved what. A cell opens its trajectory. Below, items that no version has solved.
import { h, put, tag, segment, empty, errorBox } from "../dom.js";
import { get, of } from "../api.js";
import { openTrajectory } from "../trajectory.js";

const TOP = 26,
  ROW = 18;

export async function itemsTab(root, run, { signal }) {
  const map = h("div", {}),
    stuck = h("div", {});
  put(root, h("div", { class: "stack" }, map, stuck));
  put(map, h("p", { class: "wait" }, "Reading every gate…"));
  const [heat, failures] = await Promise.all([
    get(of(run.id, "/heat"), signal),
    get(of(run.id, "/failures"), signal).catch((error) => ({ error })),
  ]);
  if (!heat.items.length)
    put(
      map,
      h(
        "div",
        { class: "panel" },
        empty("Nothing is measured yet", h("p", {}, "After the first evaluation each item has a row here.")),
      ),
    );
  else put(map, heatMap(run, heat, signal));
  put(stuck, failures.error ? errorBox(failures.error) : failureList(run, failures));
  return null;
}

function heatMap(run, heat, signal) {
  const LEFT = Math.min(150, 18 + 6.4 * Math.max(...heat.items.map((item) => Math.min(22, item.length))));
  let split = heat.splits.includes("val") ? "val" : heat.splits[0],
    search = "",
    rows = [],
    at = null,
    cell = 14;
  const canvas = h("canvas", {
    tabindex: "0",
    role: "img",
    "aria-label": "Heat map of items and versions. Arrow keys move, Enter opens the trajectory.",
  });
  const tip = h("div", { class: "tip", hidden: true }),
    box = h("div", { class: "heat" }, canvas, tip);
  const count = h("span", { class: "dim small" });
  const splits = [...new Set(heat.splits)].map((s) => [
    s,
    { val: "Validation", train: "Training", test: "Test" }[s] || s,
  ]);

  function filter() {
    rows = heat.items
      .map((item, i) => i)
      .filter((i) => heat.splits[i] === split && (!search || heat.items[i].toLowerCase().includes(search)));
    count.textContent = `${rows.length} items × ${heat.versions.length} versions; least solved first`;
    at = null;
    draw();
  }

  function draw() {
    const style = getComputedStyle(document.documentElement),
      ink = style.getPropertyValue("--dim"),
      panel = style.getPropertyValue("--panel"),
      line = style.getPropertyValue("--line");
    const [bad, good] = [style.getPropertyValue("--heat0"), style.getPropertyValue("--heat1")].map(rgb);
    const room = Math.max(200, (box.clientWidth || 800) - LEFT - 16);
    cell = Math.max(6, Math.min(64, Math.floor(room / heat.versions.length)));
    const width = LEFT + cell * heat.versions.length + 8,
      height = TOP + rows.length * ROW + 8,
      scale = window.devicePixelRatio || 1;
    const limited = Math.min(height, 15000);
    canvas.width = width * scale;
    canvas.height = limited * scale;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${limited}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.fillStyle = ink;
    pen.textAlign = "center";
    const every = Math.ceil(30 / cell);
    heat.versions.forEach((v, x) => {
      if (x % every === 0) pen.fillText(`v${v}`, LEFT + x * cell + cell / 2, TOP / 2);
    });
    pen.textAlign = "right";
    rows.forEach((i, y) => {
      pen.fillStyle = ink;
      const name = heat.items[i];
      pen.fillText(
        name.length > 22 ? `${name.slice(0, 10)}…${name.slice(-10)}` : name,
        LEFT - 8,
        TOP + y * ROW + ROW / 2,
      );
      heat.values[i].forEach((v, x) => {
        pen.fillStyle = v < 0 ? line : mix(bad, good, v / 100);
        if (v < 0) pen.fillRect(LEFT + x * cell + cell / 2 - 1, TOP + y * ROW + ROW / 2 - 1, 2, 2);
        else pen.fillRect(LEFT + x * cell, TOP + y * ROW, cell - 1, ROW - 1);
      });
    });
    if (at) {
      pen.strokeStyle = ink;
      pen.lineWidth = 2;
      pen.strokeRect(LEFT + at[1] * cell, TOP + at[0] * ROW, cell - 1, ROW - 1);
    }
    pen.fillStyle = panel;
  }

  function point(event) {
    const rect = canvas.getBoundingClientRect(),
      x = Math.floor((event.clientX - rect.left - LEFT) / cell),
      y = Math.floor((event.clientY - rect.top - TOP) / ROW);
    return x >= 0 && y >= 0 && x < heat.versions.length && y < rows.length ? [y, x] : null;
  }

  function mark(next) {
    if (String(next) === String(at)) return;
    at = next;
    draw();
    if (!at) {
      tip.hidden = true;
      return;
    }
    const value = heat.values[rows[at[0]]][at[1]];
    tip.textContent = `${heat.items[rows[at[0]]]}, v${heat.versions[at[1]]}: ${value < 0 ? "not measured" : (value / 100).toFixed(2)}`;
    tip.hidden = false;
    tip.style.left = `${Math.min(LEFT + at[1] * cell + cell, Math.max(0, box.scrollLeft + box.clientWidth - 190))}px`;
    tip.style.top = `${TOP + at[0] * ROW + ROW + 4}px`;
  }

  const open = () => {
    if (at && heat.values[rows[at[0]]][at[1]] >= 0)
      openTrajectory(
        run.id,
        { item: heat.items[rows[at[0]]], version: heat.versions[at[1]] },
        rows.map((i) => heat.items[i]),
      );
  };
  canvas.addEventListener("pointermove", (event) => mark(point(event)));
  canvas.addEventListener("pointerleave", () => mark(null));
  canvas.addEventListener("click", (event) => {
    mark(point(event));
    open();
  });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Enter") {
      event.preventDefault();
      open();
    }
    if (!move || !rows.length) return;
    event.preventDefault();
    const [y, x] = at || [0, -move[1]];
    mark([
      Math.min(rows.length - 1, Math.max(0, y + move[0])),
      Math.min(heat.versions.length - 1, Math.max(0, x + move[1])),
    ]);
    const top = TOP + at[0] * ROW;
    if (top < box.scrollTop) box.scrollTop = top - ROW;
    else if (top + 3 * ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + 3 * ROW - box.clientHeight;
  });
  new ResizeObserver(() => draw()).observe(box);
  for (const name of ["skillopt-theme"]) window.addEventListener(name, draw, { signal });
  filter();
  return h(
    "section",
    { class: "panel pad stack tight" },
    h(
      "div",
      { class: "row between" },
      h("div", { class: "row" }, h("h2", {}, "Items × versions"), count),
      h(
        "div",
        { class: "row" },
        h("span", { class: "scale" }, "failed", h("i"), "solved"),
        splits.length > 1 &&
          segment(
            splits,
            split,
            (next) => {
              split = next;
              filter();
            },
            "Split",
          ),
        h("input", {
          type: "search",
          placeholder: "Item",
          "aria-label": "Item",
          size: 12,
          oninput: (event) => {
            search = event.target.value.toLowerCase();
            filter();
          },
        }),
      ),
    ),
    box,
  );
}

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.trim().slice(i, i + 2), 16));
const mix = (a, b, t) => `rgb(${a.map((v, i) => Math.round(v + (b[i] - v) * t)).join(" ")})`;

function failureList(run, { general, groups, set_aside: aside }) {
  const parts = [h("h2", {}, "Persistent failures")];
  if (!groups.length)
    parts.push(h("p", { class: "dim" }, "None: every item that was measured often enough was solved by some version."));
  else parts.push(h("p", { class: "dim" }, general));
  for (const group of groups) {
    parts.push(
      h(
        "div",
        { class: "edit against" },
        h(
          "div",
          { class: "row" },
          h("b", {}, group.pattern),
          tag(group.items.length === 1 ? "1 item" : `${group.items.length} items`, "bad"),
        ),
        h("p", { class: "small" }, group.advice),
        h(
          "div",
          { class: "cites" },
          group.items.slice(0, 40).map((i) =>
            h(
              "button",
              {
                class: "chip",
                disabled: !i.last,
                title: `failed under ${i.skills} skills`,
                onclick: () => openTrajectory(run.id, { id: i.last }, group.items.map((o) => o.last).filter(Boolean)),
              },
              i.item,
            ),
          ),
          group.items.length > 40 && h("span", { class: "dim small" }, `and ${group.items.length - 40} more`),
        ),
      ),
    );
  }
  const refused = Object.entries(aside);
  if (refused.length)
    parts.push(
      h("h3", {}, "Set aside: the endpoint refuses them for every skill alike"),
      h(
        "ul",
        { class: "small" },
        refused.map(([item, why]) => h("li", {}, h("code", {}, item), " ", why)),
      ),
    );
  return h("section", { class: "panel pad stack tight" }, parts);
}
