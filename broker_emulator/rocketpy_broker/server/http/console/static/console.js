// The theme, and the refreshing of regions with `data-refresh` while the page is seen.
"use strict";
(() => {
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try { return localStorage.getItem("theme"); } catch { return null; }
  };
  const isDark = () => (stored() ?? (dark.matches ? "dark" : "light")) === "dark";
  const show = () => {
    root.dataset.theme = isDark() ? "dark" : "light";
    document.getElementById("theme")?.setAttribute("aria-pressed", String(isDark()));
  };
  show();
  dark.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme").addEventListener("click", () => {
      try { localStorage.setItem("theme", isDark() ? "light" : "dark"); } catch { /* Not kept. */ }
      show();
    });
  });

  // A box that checks all boxes of one name in its form.
  document.addEventListener("DOMContentLoaded", () => {
    for (const label of document.querySelectorAll("[data-script]")) label.hidden = false;
  });
  document.addEventListener("change", ({ target }) => {
    if (!target.dataset.selects) return;
    for (const box of target.form.elements) {
      if (box.name === target.dataset.selects) box.checked = target.checked;
    }
  });

  // Milliseconds between two refreshes.
  const PERIOD = 5000;
  setInterval(() => {
    if (document.hidden) return;
    for (const region of document.querySelectorAll("[data-refresh]")) {
      region.dispatchEvent(new Event("refresh"));
    }
  }, PERIOD);
  // A broker that does not answer: what is shown is marked as old.
  const mark = (isOld) => { document.body.classList.toggle("stale", isOld); };
  document.addEventListener("htmx:sendError", () => mark(true));
  document.addEventListener("htmx:responseError", () => mark(true));
  document.addEventListener("htmx:afterOnLoad", () => mark(false));
})();
