// The box for a person's rating and comment on an item or a line. They are stored in a file of the run.
import { h, put, rowOf, button, say } from "./dom.js";
import { get, post, of } from "./api.js";

// about: {kind: "item" | "line", about: its id or text, split}
export function commentBox(run, about) {
  const box = h("section", { class: "comment stack tight", "aria-label": "Comment" });
  const text = h("textarea", { rows: 2, "aria-label": "Your comment", placeholder: "Your comment" });
  let rating = "";
  const mark = (value) => {
    const rate = () => {
      rating = rating === value ? "" : value;
      save();
    };
    return button(value, rate, { "data-key": `rate-${value}`, "aria-pressed": String(rating === value) });
  };
  const draw = () =>
    put(
      box,
      rowOf(
        mark("good", "good"),
        mark("bad", "bad"),
        h("button", { "data-key": "save-comment", onclick: save }, "Save comment"),
        about.kind === "item" && about.split !== "train" && h("span", { class: "dim small" }, "Not used in training: only comments on training items can be given to a training."),
      ),
      text,
    );
  async function save() {
    try {
      await post(of(run, "/comments"), { ...about, rating, text: text.value });
      say("Saved.");
    } catch (error) {
      say(error.message, true);
    }
    draw();
  }
  draw();
  get(of(run, "/comments"))
    .then(({ comments }) => {
      const mine = comments.find((c) => c.kind === about.kind && c.about === about.about);
      if (!mine) return;
      ({ rating } = mine);
      text.value = mine.text;
      draw();
    })
    .catch(() => {});
  return box;
}
