// Calls the server's API with JSON. A failed call throws an ApiError with the server's message.

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function get(path, signal) {
  return ask("GET", path, undefined, signal);
}
export async function post(path, body = {}, signal) {
  return ask("POST", path, body, signal);
}

async function ask(method, path, body, signal) {
  const headers = { "X-SkillOpt": "1" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer. Runs continue without it; start `skillopt ui` again.");
  }
  const answer = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error; // the user left the view before the answer came
    return {};
  });
  if (response.status === 401 && path !== "/api/login") window.dispatchEvent(new Event("skillopt-login"));
  if (!response.ok) throw new ApiError(response.status, answer.error || `The server answered ${response.status}.`);
  return answer;
}

// Receives a run's events as they happen. Pauses while the tab is hidden, and then continues at the same event.
export function follow(run, offset, handlers, signal) {
  let source = null,
    place = offset;
  const open = () => {
    if (source || signal.aborted || document.hidden) return;
    source = new EventSource(`/api/runs/${path(run)}/stream?offset=${place}`);
    source.addEventListener("event", (message) => {
      place = Number(message.lastEventId) || place;
      handlers.event(JSON.parse(message.data));
    });
    source.addEventListener("pulse", (message) => handlers.pulse(JSON.parse(message.data)));
    source.addEventListener("figures", (message) => handlers.figures(JSON.parse(message.data)));
    source.addEventListener("state", (message) => handlers.state(JSON.parse(message.data)));
    source.addEventListener("open", () => handlers.connected?.(true));
    source.addEventListener("error", () => {
      handlers.connected?.(false);
      if (source && source.readyState === EventSource.CLOSED) {
        shut();
        setTimeout(open, 2000);
      }
    });
  };
  const shut = () => {
    source?.close();
    source = null;
  };
  const turn = () => (document.hidden ? shut() : open());
  document.addEventListener("visibilitychange", turn);
  signal.addEventListener("abort", () => {
    document.removeEventListener("visibilitychange", turn);
    shut();
  });
  open();
}

export const path = (run) => run.split("/").map(encodeURIComponent).join("/");
export const of = (run, rest = "") => `/api/runs/${path(run)}${rest}`;
