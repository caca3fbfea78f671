// Waits for a started command, until its run has begun or the command has failed with an error.
import { get } from "./api.js";

const pause = (ms) =>
  new Promise((done) => {
    setTimeout(done, ms);
  });

export async function waitForLaunch(launch, { ended = false, onstatus, signal } = {}) {
  let status = launch;
  for (;;) {
    onstatus?.(status);
    if (status.state !== "running") {
      if (status.code === 0 || (status.run && !ended)) return status;
      throw new Error(lastWords(status));
    }
    if (!ended && status.run && status.begun) return status;
    await pause(350);
    if (signal?.aborted) throw new DOMException("left", "AbortError");
    status = await get(`/api/launches/${launch.id}`);
  }
}

// The error with which a command ended.
export function lastWords(status) {
  const lines = status.log.trim().split("\n").filter(Boolean);
  const from = lines.findLastIndex((line) => /^(error|stopped):/.test(line));
  const words = (from >= 0 ? lines.slice(from) : lines.slice(-6)).join("\n");
  return (
    words.replace(/^error: /, "") ||
    (status.state === "killed" ? "Another program ended its process." : `It ended with code ${status.code}.`)
  );
}
