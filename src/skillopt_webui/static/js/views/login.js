// The login with a token, needed if other machines can reach the page.
import { h, put, errorBox } from "../dom.js";
import { post } from "../api.js";

export function loginView(enter) {
  const field = h("input", { type: "password", id: "token", autocomplete: "current-password", required: true });
  const wrong = h("div", {});
  const login = async (event) => {
    event.preventDefault();
    try {
      await post("/api/login", { token: field.value });
      enter();
    } catch (error) {
      put(wrong, errorBox(error));
      field.select();
    }
  };
  const says =
    "Other machines can reach this page, so it needs the token that `skillopt ui` printed when it started.";
  queueMicrotask(() => field.focus());
  return h(
    "form",
    { class: "panel pad stack login", onsubmit: login },
    h("h1", {}, "Token"),
    h("p", { class: "dim" }, says),
    h("label", { for: "token" }, "Token"),
    field,
    wrong,
    h("button", { class: "main", type: "submit" }, "Open"),
  );
}
