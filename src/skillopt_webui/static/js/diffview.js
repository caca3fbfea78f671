// Shows two texts side by side and marks the changed part of each line; long equal parts are folded.
import { h } from "./dom.js";

const CONTEXT = 3;

export function sideBySide(blocks) {
  const box = h("div", { class: "sidebyside" });
  if (blocks.every((b) => b.op === "equal")) return h("p", { class: "wait" }, "Both are the same.");
  blocks.forEach((block, place) => {
    if (block.op === "equal") equal(box, block, place === 0, place === blocks.length - 1);
    else changed(box, block);
  });
  return box;
}

function cell(kind, number, mark, content, side) {
  return h(
    "div",
    { class: `${kind} ${side}` },
    h("span", { class: "no" }, number ?? ""),
    h("span", { class: "dim" }, mark),
    h("span", {}, content),
  );
}

function pair(text, a, b) {
  return [cell("same", a, "", text, "a"), cell("same", b, "", text, "b")];
}

function equal(box, block, first, last) {
  const lines = block.a.map((text, i) => pair(text, block.a_line + i, block.b_line + i));
  const head = first ? 0 : CONTEXT,
    tail = last ? 0 : CONTEXT;
  if (lines.length <= head + tail + 2) {
    box.append(...lines.flat());
    return;
  }
  const hidden = lines.slice(head, lines.length - tail);
  const fold = h(
    "button",
    { class: "fold", onclick: () => fold.replaceWith(...hidden.flat()) },
    `${hidden.length} equal lines`,
  );
  box.append(...lines.slice(0, head).flat(), fold, ...lines.slice(lines.length - tail).flat());
}

function changed(box, block) {
  const rows = Math.max(block.a.length, block.b.length);
  for (let i = 0; i < rows; i += 1) {
    const left = block.a[i],
      right = block.b[i];
    const [was, is] = left !== undefined && right !== undefined ? inside(left, right) : [left, right];
    box.append(
      left === undefined ? cell("gone", null, "", "", "a") : cell("del", block.a_line + i, "−", was, "a"),
      right === undefined ? cell("gone", null, "", "", "b") : cell("add", block.b_line + i, "+", is, "b"),
    );
  }
}

// The part of each line between the common beginning and the common end of two lines.
function inside(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  if (start + end < 4) return [a, b];
  const cut = (text) => [
    text.slice(0, start),
    h("mark", {}, text.slice(start, text.length - end)),
    text.slice(text.length - end),
  ];
  return [cut(a), cut(b)];
}
