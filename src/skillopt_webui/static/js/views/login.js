// The login with a token, when the page can be reached from other machines.
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
    "This page can be reached from other machines, so it asks for the token that `skillopt ui` printed when it was started.";
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
