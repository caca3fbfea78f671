// A long list that creates only the visible rows. All rows have the same height.
import { h } from "./dom.js";

// scroller: the element that scrolls, or null for the window; make(row, index) returns a positioned element.
export function virtualList({ height, make, scroller = null, onshown, signal }) {
  const box = h("div", { class: "virtual" });
  let rows = [],
    shown = new Map(),
    tall = height();

  function draw() {
    const box_ = scroller?.getBoundingClientRect() || { top: 0, bottom: window.innerHeight };
    const view = { top: Math.max(0, box_.top), bottom: Math.min(window.innerHeight, box_.bottom) };
    const top = box.getBoundingClientRect().top;
    // One row always exists, so that the keyboard can reach a list that is not visible.
    const first = Math.max(0, Math.min(rows.length - 1, Math.floor((view.top - top) / tall) - 6));
    const last = Math.min(rows.length, Math.max(first + 1, Math.ceil((view.bottom - top) / tall) + 6));
    const held = document.activeElement;
    for (const [index, node] of shown) {
      if ((index < first || index >= last) && !node.contains(held)) {
        node.remove();
        shown.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) {
      if (shown.has(index)) continue;
      const node = make(rows[index], index);
      node.style.top = `${index * tall}px`;
      shown.set(index, node);
      const after = [...shown.keys()].filter((i) => i > index).sort((a, b) => a - b)[0];
      box.insertBefore(node, after === undefined ? null : shown.get(after));
    }
    onshown?.(rows.slice(first, last));
  }

  function fresh() {
    const held = document.activeElement,
      key = box.contains(held) ? held.dataset.key : null;
    box.replaceChildren();
    shown = new Map();
    tall = height();
    box.style.height = `${rows.length * tall}px`;
    draw();
    if (key) box.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
  }

  let asked = false;
  const later = () => {
    if (!asked) {
      asked = true;
      requestAnimationFrame(() => {
        asked = false;
        draw();
      });
    }
  };
  scroller?.addEventListener("scroll", later, { passive: true, signal });
  window.addEventListener("scroll", later, { passive: true, signal });
  if (scroller) {
    const seen = new ResizeObserver(later); // the list may be filled before it is on the page
    seen.observe(scroller);
    signal?.addEventListener("abort", () => seen.disconnect());
  }
  window.addEventListener(
    "resize",
    () => {
      if (height() !== tall) fresh();
      else later();
    },
    { signal },
  );

  return {
    node: box,
    set(next) {
      rows = next;
      fresh();
    },
    redraw: fresh,
    focus(index) {
      this.reveal(index, "");
    },
    indexOf(node) {
      for (const [index, own] of shown) if (own === node) return index;
      return -1;
    },
    // Scrolls a row into view and gives the focus to the row, or to an element in it.
    reveal(index, inside) {
      const wanted = Math.min(rows.length - 1, Math.max(0, index));
      if (wanted < 0) return;
      if (scroller) {
        if (wanted * tall < scroller.scrollTop || (wanted + 1) * tall > scroller.scrollTop + scroller.clientHeight)
          scroller.scrollTop = wanted * tall - scroller.clientHeight / 2;
      } else {
        const y = box.getBoundingClientRect().top + window.scrollY + wanted * tall;
        if (y < window.scrollY + 110 || y + tall > window.scrollY + window.innerHeight - 20)
          window.scrollTo(0, y - window.innerHeight / 2);
      }
      draw();
      const node = shown.get(wanted);
      (inside ? node?.querySelector(inside) : node)?.focus({ preventScroll: true });
    },
    index: () => {
      const held = document.activeElement;
      for (const [index, node] of shown) if (node === held) return index;
      return -1;
    },
  };
}
