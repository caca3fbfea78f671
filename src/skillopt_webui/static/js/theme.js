// Sets the theme before the first paint, so that a dark page never flashes white.
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("skillopt-theme");
  } catch {
    /* storage may be off */
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
