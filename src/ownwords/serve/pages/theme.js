// Runs before the first paint, or the other colours would flash.
"use strict";
try {
  const theme = localStorage.getItem("ownwords.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden; then the system's colours hold.
}
