// Draws line charts as SVG. Hovering or arrow keys show values, dragging zooms, a double click or Escape shows all.
import { h, svg, add } from "./dom.js";
import { fixed } from "./format.js";

const LEFT = 44,
  RIGHT = 50,
  TOP = 18,
  BOTTOM = 24;
let serial = 0;

// reach: the least end of the x axis; area: {name, points, format} on the right axis; series: [{name, color, points: [[x, y], …], step}], marks: [[x, y, kind]], lines: [x, …] (epoch ends)
export function lineChart({
  title,
  height = 230,
  format = String,
  xname = "step",
  yname = "",
  xformat = String,
  floor = 0,
  ceil = null,
  onpick,
  details,
}) {
  const box = h("figure", { class: "chart" });
  const tip = h("div", { class: "tip", hidden: true });
  const reset = h("button", { class: "plain reset", hidden: true, onclick: () => zoom(null) }, "Show all");
  const art = svg("svg", { role: "img", tabindex: "0", "aria-label": `${title}. Arrow keys read the values.`, height });
  add(box, [art, tip, reset]);
  const id = `clip${++serial}`;
  let data = { series: [], marks: [], lines: [] },
    view = null,
    at = null,
    drag = null,
    width = 600;

  const xs = () => [...new Set(data.series.flatMap((s) => s.points.map((p) => p[0])))].sort((a, b) => a - b);
  const domain = () => {
    const all = xs();
    return view || [all[0] ?? 0, Math.max(data.reach || 0, all.at(-1) ?? 1, (all[0] ?? 0) + 1)];
  };
  const place = (x) => {
    const [a, b] = domain();
    return LEFT + ((x - a) / (b - a)) * (width - LEFT - RIGHT);
  };
  const unplace = (px) => {
    const [a, b] = domain();
    return a + ((px - LEFT) / (width - LEFT - RIGHT)) * (b - a);
  };

  function yRange() {
    const [a, b] = domain();
    const inside = [...data.series.flatMap((s) => s.points), ...data.marks.map((m) => [m.x, m.score])]
      .filter((p) => p[0] >= a && p[0] <= b)
      .map((p) => p[1]);
    let low = floor === null ? Math.min(...inside) : floor,
      high = Math.max(...inside, low);
    if (ceil !== null && !view) high = Math.max(high, ceil);
    if (!(high > low)) high = low + 1;
    return [low, high * (ceil !== null && high <= ceil ? 1 : 1.04)];
  }

  function draw() {
    width = Math.max(240, box.clientWidth || 600);
    art.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const [low, high] = yRange();
    const up = (y) => height - BOTTOM - ((y - low) / (high - low)) * (height - TOP - BOTTOM);
    art.replaceChildren();
    add(art, [
      svg(
        "clipPath",
        { id },
        svg("rect", { x: LEFT - 6, y: 0, width: width - LEFT - RIGHT + 12, height: height - BOTTOM + 4 }),
      ),
    ]);
    if (data.area?.points.length) {
      const most = Math.max(1, ...data.area.points.map((p) => p[1])) * 1.25;
      const rise = (y) => height - BOTTOM - (y / most) * (height - TOP - BOTTOM);
      const corners = data.area.points.map(([x, y], i) => `${i ? "H" : "M"}${place(x).toFixed(1)}${i ? "V" : " "}${rise(y).toFixed(1)}`);
      const [first, last] = [data.area.points[0], data.area.points.at(-1)];
      const end = Math.min(place(last[0]) + 8, width - RIGHT);
      add(art, [
        svg("path", {
          class: "area",
          "clip-path": `url(#${id})`,
          d: `${corners.join("")}H${end.toFixed(1)}V${height - BOTTOM}H${place(first[0]).toFixed(1)}Z`,
        }),
        ticks(0, most, 3).map((y) =>
          svg("text", { x: width - RIGHT + 7, y: rise(y) + 4 }, Math.round(y).toLocaleString("en")),
        ),
      ]);
    }
    for (const y of ticks(low, high, 4)) {
      add(art, [
        svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: up(y), y2: up(y) }),
        svg("text", { x: LEFT - 7, y: up(y) + 4, "text-anchor": "end" }, format(y)),
      ]);
    }
    const [a, b] = domain();
    for (const x of ticks(a, b, Math.max(2, Math.floor(width / 90))).filter((t) => xname !== "step" || Number.isInteger(t)))
      add(art, [svg("text", { x: place(x), y: height - 6, "text-anchor": "middle" }, xformat(x))]);
    add(art, [
      svg("text", { class: "axis", x: width - RIGHT, y: height - 6, "text-anchor": "end", dx: RIGHT - 4 }, xname),
      yname && svg("text", { class: "axis", x: 4, y: 9 }, yname),
      data.area?.points.length && svg("text", { class: "axis", x: width - 4, y: 9, "text-anchor": "end" }, data.area.name),
    ]);
    const inner = svg("g", { "clip-path": `url(#${id})` });
    for (const x of data.lines || [])
      add(inner, [
        svg("line", { class: "cross", x1: place(x), x2: place(x), y1: TOP, y2: height - BOTTOM, opacity: 0.55 }),
      ]);
    for (const s of data.series) {
      if (!s.points.length) continue;
      let d = "";
      s.points.forEach(([x, y], i) => {
        d +=
          i === 0
            ? `M${place(x).toFixed(1)} ${up(y).toFixed(1)}`
            : s.step
              ? `H${place(x).toFixed(1)}V${up(y).toFixed(1)}`
              : `L${place(x).toFixed(1)} ${up(y).toFixed(1)}`;
      });
      add(inner, [
        svg("path", {
          d,
          fill: "none",
          "data-name": s.name,
          stroke: s.color,
          "stroke-width": s.thin ? 1.4 : 2.2,
          "stroke-linejoin": "round",
          opacity: s.thin ? 0.75 : 1,
        }),
      ]);
      if (s.points.length === 1)
        add(inner, [svg("circle", { cx: place(s.points[0][0]), cy: up(s.points[0][1]), r: 3, fill: s.color })]);
    }
    const small = data.marks.length > 150;
    for (const { x, score: y, kind, said } of data.marks) {
      if (x < a || x > b) continue;
      const line = data.series[0]?.points.findLast((p) => p[0] <= x); // a candidate's score is joined with the line at its step
      if (line && line[1] !== y) add(inner, [svg("line", { class: "stem", x1: place(x), x2: place(x), y1: up(line[1]), y2: up(y) })]);
      add(inner, [mark(kind, place(x), up(y), small ? 2 : 4, { x, y, said })]);
    }
    add(art, [inner]);
    if (drag)
      add(art, [
        svg("rect", {
          class: "zone",
          x: Math.min(drag[0], drag[1]),
          y: TOP,
          width: Math.abs(drag[1] - drag[0]),
          height: height - TOP - BOTTOM,
        }),
      ]);
    if (at !== null) cross(up);
    else tip.hidden = true;
    reset.hidden = !view;
  }

  function cross(up) {
    const x = at,
      px = place(x);
    add(art, [svg("line", { class: "cross", x1: px, x2: px, y1: TOP, y2: height - BOTTOM })]);
    const said = [xname === "step" && !Number.isInteger(x) ? `after step ${Math.floor(x)}` : `${xname} ${xformat(x)}`];
    for (const s of data.series) {
      const point = s.points.findLast((p) => p[0] <= x);
      if (!point) continue;
      add(art, [
        svg("circle", { cx: px, cy: up(point[1]), r: 4, fill: s.color, stroke: "var(--panel)", "stroke-width": 2 }),
      ]);
      said.push(`${s.name} ${format(point[1])}`);
    }
    const under = data.area?.points.findLast((p) => p[0] <= x);
    if (under) said.push(`${data.area.name} ${Math.round(under[1]).toLocaleString("en")}`);
    said.push(...data.marks.filter((m) => m.x === x).map((m) => m.said.replace(/^[^:]*: /, "")));
    if (details) said.push(...details(x));
    tip.textContent = said.join("\n");
    tip.hidden = false;
    tip.style.left = px > width / 2 ? "auto" : `${px + 12}px`;
    tip.style.right = px > width / 2 ? `${width - px + 12}px` : "auto";
  }

  const nearest = (px) => {
    const all = xs();
    if (!all.length) return null;
    const want = unplace(px);
    return all.reduce((best, x) => (Math.abs(x - want) < Math.abs(best - want) ? x : best), all[0]);
  };
  const local = (event) =>
    ((event.clientX - art.getBoundingClientRect().left) / art.getBoundingClientRect().width) * width;
  function zoom(range) {
    view = range;
    at = null;
    draw();
  }

  art.addEventListener("pointermove", (event) => {
    const px = local(event);
    if (drag) drag[1] = px;
    at = nearest(px);
    draw();
  });
  art.addEventListener("pointerleave", () => {
    if (!drag) {
      at = null;
      draw();
    }
  });
  art.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse") {
      drag = [local(event), local(event)];
      art.setPointerCapture(event.pointerId);
    }
  });
  art.addEventListener("pointerup", () => {
    if (!drag) return;
    const [a, b] = drag.map(unplace).sort((m, n) => m - n),
      far = Math.abs(drag[1] - drag[0]) > 8;
    drag = null;
    if (far && b - a >= 1) zoom([Math.max(domain()[0], a), Math.min(domain()[1], b)]);
    else if (!far && at !== null && onpick) onpick(at);
    else draw();
  });
  art.addEventListener("dblclick", () => zoom(null));
  art.addEventListener("blur", () => {
    at = null;
    draw();
  });
  art.addEventListener("keydown", (event) => {
    const all = xs();
    if (event.key === "Escape" && (view || at !== null)) {
      event.stopPropagation();
      zoom(null);
    }
    if (event.key === "Enter" && at !== null && onpick) {
      event.preventDefault();
      onpick(at);
    }
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move || !all.length) return;
    event.preventDefault();
    at =
      at === null
        ? move > 0
          ? all[0]
          : all.at(-1)
        : all[Math.min(all.length - 1, Math.max(0, all.indexOf(at) + move))];
    draw();
  });
  new ResizeObserver(() => draw()).observe(box);
  return {
    node: box,
    update(next) {
      data = { marks: [], lines: [], ...next };
      draw();
    },
  };
}

// The mark of a gate's decision, as in the report: accept ●, reject ✕, indecisive ◇, guidance ◆.
function mark(kind, x, y, r, { x: step, y: value, said }) {
  const color = COLORS[kind] || "var(--edge)",
    about = { "data-kind": kind, "data-x": step, "data-y": value, class: `mark ${kind}` };
  const shape = { stroke: color, "stroke-width": 2, fill: kind === "accept" || kind === "guidance" ? color : "none" };
  const d = {
    reject: `M${x - r} ${y - r}L${x + r} ${y + r}M${x - r} ${y + r}L${x + r} ${y - r}`,
    indecisive: `M${x} ${y - r - 1}L${x + r + 1} ${y}L${x} ${y + r + 1}L${x - r - 1} ${y}Z`,
    guidance: `M${x} ${y - r - 1}L${x + r + 1} ${y}L${x} ${y + r + 1}L${x - r - 1} ${y}Z`,
  }[kind];
  const body = d ? svg("path", { ...shape, d }) : svg("circle", { ...shape, cx: x, cy: y, r });
  return svg("g", about, svg("title", {}, said), body);
}

const COLORS = { accept: "var(--good)", reject: "var(--bad)", indecisive: "var(--warn)", guidance: "var(--guide)" };

function ticks(low, high, count) {
  const raw = (high - low) / count,
    power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= raw) || raw;
  const out = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + 1e-9; v += step) out.push(Number(v.toFixed(10)));
  return out;
}

// A small curve for a row of a table.
// It shows points [step, score] on a scale of 0 to 1; its width is the share of the planned steps that are done.
export function spark(points, planned = 0) {
  const values = points.map((p) => p[1]);
  const art = svg("svg", {
    class: "spark",
    viewBox: "0 0 118 30",
    role: "img",
    "aria-label": values.length ? `score from ${fixed(values[0])} to ${fixed(values.at(-1))}` : "no scores yet",
  });
  if (!values.length) return art;
  const reach = Math.max(1, planned, points.at(-1)[0]);
  const placed = points.map(([x, v]) => [2 + (x / reach) * 112, 27 - Math.min(1, Math.max(0, v)) * 24]);
  const d = placed.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  const last = placed.at(-1);
  return add(art, [
    svg("path", { class: "fill", d: `${d}L${last[0]} 29L${placed[0][0]} 29Z` }),
    svg("path", { d }),
    svg("circle", { cx: last[0], cy: last[1], r: 2.4 }),
  ]);
}
