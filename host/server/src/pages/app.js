// Live updates and keys. Every page works without this script.
(() => {
  "use strict";
  const main = document.getElementById("main");
  const live = document.getElementById("live");
  const pause = document.getElementById("pause");
  if (!main || !live || !pause) return;

  // The least time between two reads of the page, the same after a failure, and the most.
  const LEAST_MS = 2000;
  const LEAST_AFTER_FAILURE_MS = 400;
  const MOST_MS = 15000;
  // `sessionStorage` may be forbidden.
  const stored = {
    get: () => { try { return sessionStorage.getItem("paused") === "yes"; } catch { return false; } },
    set: (yes) => { try { sessionStorage.setItem("paused", yes ? "yes" : "no"); } catch { /* nothing to keep */ } },
  };
  let paused = stored.get();
  let source = null;
  let timer = 0;
  let last = Date.now();
  let due = Infinity;
  let reading = false;
  // Whether something happened while the page was read.
  let missed = false;

  const say = (text) => { if (live.textContent !== text) live.textContent = text; };

  // A form that a person fills in is not replaced, nor what the keyboard has just reached.
  const REST_MS = 30000;
  let touched = 0;
  for (const kind of ["keydown", "pointerdown"]) {
    addEventListener(kind, () => { touched = Date.now(); }, { capture: true, passive: true });
  }
  const isBusy = () => {
    const active = document.activeElement;
    const isInside = active && active !== main && main.contains(active);
    if (isInside && Date.now() - touched < REST_MS) return true;
    if (String(getSelection()) !== "") return true;
    if (main.querySelector("form[data-preview]")) return true;
    for (const field of main.querySelectorAll("input, textarea")) {
      if (field.type === "checkbox" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue) return true;
    }
    return main.querySelector(".problem[role=alert]") !== null;
  };

  const read = async () => {
    due = Infinity;
    if (reading) { missed = true; return; }
    if (paused || document.hidden) return;
    if (isBusy()) { say("Updates wait while you use the page."); schedule(LEAST_MS); return; }
    reading = true;
    try {
      const url = new URL(location.href);
      url.searchParams.delete("done");
      const answer = await fetch(url, { headers: { Accept: "text/html" } });
      if (answer.redirected && new URL(answer.url).pathname === "/login") {
        paused = true;
        close();
        pause.textContent = "Resume updates";
        say("Your session has ended: sign in again.");
        return;
      }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("main");
      if (answer.ok && fresh && !paused && !isBusy()) {
        const open = [...main.querySelectorAll("details")].map((part) => part.open);
        main.replaceChildren(...fresh.childNodes);
        const parts = [...main.querySelectorAll("details")];
        if (parts.length === open.length) parts.forEach((part, place) => { part.open = open[place]; });
      }
      say(answer.ok ? "Live." : "The host does not answer well: " + answer.status + ".");
    } catch {
      say("The host cannot be reached. The page shows what it knew last.");
    } finally {
      reading = false;
      last = Date.now();
      schedule(missed ? LEAST_AFTER_FAILURE_MS : MOST_MS);
      missed = false;
    }
  };

  const schedule = (ms) => {
    clearTimeout(timer);
    due = Date.now() + ms;
    if (!paused) timer = setTimeout(read, ms);
  };
  // Read the page `ms` after the last time, unless it is to be read sooner.
  const within = (ms) => {
    const now = Date.now();
    const at = Math.max(now, last + ms);
    if (at < due) schedule(at - now);
  };
  const soon = () => within(LEAST_MS);

  // Say on every page that a launch has failed, with its cause and the next step.
  const news = document.getElementById("news");
  news.querySelector("button").addEventListener("click", () => { news.hidden = true; });
  const failed = ({ data }) => {
    const { launch, text, next } = JSON.parse(data);
    news.querySelector("p").textContent = text + (next ? ". Next: " + next + "." : "");
    news.querySelector("a").href = "/launches/" + encodeURIComponent(launch);
    news.hidden = false;
    within(LEAST_AFTER_FAILURE_MS);
  };
  const close = () => { clearTimeout(timer); if (source) source.close(); source = null; };

  const apply = () => {
    pause.textContent = paused ? "Resume updates" : "Pause updates";
    pause.setAttribute("aria-pressed", String(paused));
    if (paused) { close(); say("Updates are paused."); return; }
    say("Live.");
    if (!source) {
      source = new EventSource("/updates");
      // What happened before the stream began is in no event.
      source.addEventListener("open", soon);
      source.addEventListener("event", soon);
      source.addEventListener("failure", failed);
    }
    schedule(MOST_MS);
  };
  const toggle = () => { paused = !paused; stored.set(paused); apply(); if (!paused) soon(); };

  pause.hidden = false;
  pause.addEventListener("click", toggle);
  document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) soon(); });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) apply(); });

  // Show what a form would do while it is filled in.
  const PREVIEW_AFTER_MS = 500;
  let previews = 0;
  const preview = async (form) => {
    const number = ++previews;
    const fields = new URLSearchParams(new FormData(form));
    fields.append("do", "preview");
    try {
      const answer = await fetch(form.action, { method: "POST", headers: { Accept: "text/html" }, body: fields });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById(form.dataset.preview) ?? page.getElementById("main");
      const problem = page.querySelector("main .problem");
      const shown = document.getElementById(form.dataset.preview);
      if (number === previews && shown) shown.replaceChildren(...(problem ? [problem] : fresh.childNodes));
    } catch { /* the button shows why */ }
  };
  let wait = 0;
  main.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-preview]");
    if (!form) return;
    clearTimeout(wait);
    wait = setTimeout(preview, PREVIEW_AFTER_MS, form);
  });

  // Keys: `/` searches, `g` and a letter go to a page, `u` pauses the updates.
  let isAfterG = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (isAfterG) {
      isAfterG = false;
      const link = document.querySelector(`header nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (event.key === "g") {
      isAfterG = true;
      setTimeout(() => { isAfterG = false; }, 1500);
    } else if (event.key === "/") {
      const search = main.querySelector("input[type=search]");
      if (search) { event.preventDefault(); search.focus(); search.select(); } else { location.assign("/schedules"); }
    } else if (event.key === "u") {
      toggle();
    }
  });

  apply();
})();
