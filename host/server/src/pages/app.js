// Live updates and keys. Every page works without this script.
(() => {
  "use strict";
  const main = document.getElementById("main");
  const live = document.getElementById("live");
  const said = document.getElementById("said");
  if (!main || !live || !said) return;

  // The least time between two reads of the page, the same after a failure, and the most.
  const LEAST_MS = 2000;
  const LEAST_AFTER_FAILURE_MS = 400;
  const MOST_MS = 15000;
  // `sessionStorage` may be forbidden.
  const stored = {
    get: (name) => { try { return sessionStorage.getItem(name) ?? ""; } catch { return ""; } },
    set: (name, value) => { try { sessionStorage.setItem(name, value); } catch { /* nothing to keep */ } },
  };
  let paused = stored.get("paused") === "yes";
  let source = null;
  let timer = 0;
  let last = Date.now();
  let due = Infinity;
  let reading = false;
  // Whether something happened while the page was read.
  let missed = false;

  const say = (text) => { if (said.textContent !== text) said.textContent = text; };

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
    if (main.querySelector("form[data-preview], [data-once]")) return true;
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
        show();
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
        document.title = page.title;
        for (const id of ["icon", "pages"]) {
          const [former, fresh] = [document.getElementById(id), page.getElementById(id)];
          if (former && fresh && former.outerHTML !== fresh.outerHTML) former.replaceWith(fresh);
        }
        tick();
      }
      say(answer.ok ? "" : "The host does not answer well: " + answer.status + ".");
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

  // Say that something new fails: a schedule that did not fail before, once in a session.
  const news = document.getElementById("news");
  const known = new Set(stored.get("news").split("\n"));
  let fresh = [];
  const failed = ({ data }) => {
    const failure = JSON.parse(data);
    const key = failure.schedule + " " + failure.cause;
    within(LEAST_AFTER_FAILURE_MS);
    if (!failure.is_new || known.has(key)) return;
    known.add(key);
    stored.set("news", [...known].slice(-200).join("\n"));
    fresh.push(failure);
    news.textContent = fresh.length === 1 ? "1 new problem" : fresh.length + " new problems";
    news.title = fresh.map((one) => one.text).join("\n");
    news.hidden = false;
    say(failure.text);
  };
  news.addEventListener("click", () => {
    const launch = fresh.at(-1).launch;
    fresh = [];
    news.hidden = true;
    location.assign("/launches/" + encodeURIComponent(launch));
  });
  const close = () => { clearTimeout(timer); if (source) source.close(); source = null; };

  const show = () => {
    live.textContent = paused ? "Held" : "Live";
    live.title = paused ? "Updates are held. Click to go on." : "The page follows the record. Click to hold it.";
    live.setAttribute("aria-pressed", String(paused));
  };
  const apply = () => {
    show();
    if (paused) { close(); return; }
    if (!source) {
      source = new EventSource("/updates");
      // What happened before the stream began is in no event.
      source.addEventListener("open", soon);
      source.addEventListener("event", soon);
      source.addEventListener("failure", failed);
    }
    schedule(MOST_MS);
  };
  const toggle = () => {
    paused = !paused;
    stored.set("paused", paused ? "yes" : "no");
    apply();
    say(paused ? "Updates are held." : "");
    if (!paused) soon();
  };

  // Ages go on counting between two reads.
  const rough = (seconds) => {
    if (seconds < 60) return Math.max(1, seconds) + " s";
    if (seconds < 3600) return Math.floor(seconds / 60) + " min";
    if (seconds < 86400) return Math.floor(seconds / 3600) + " h " + Math.floor(seconds % 3600 / 60) + " min";
    return Math.floor(seconds / 86400) + " d " + Math.floor(seconds % 86400 / 3600) + " h";
  };
  const tick = () => {
    if (document.hidden) return;
    for (const time of main.querySelectorAll("time.age")) {
      const seconds = Math.round((Date.parse(time.dateTime) - Date.now()) / 1000);
      const text = seconds > 0 ? "in " + rough(seconds) : rough(-seconds) + " ago";
      if (time.textContent !== text) time.textContent = text;
    }
  };
  setInterval(tick, 1000);

  // A secret that is shown once is copied without being selected, where the browser allows it.
  for (const button of main.querySelectorAll("button[data-copy]")) {
    const field = document.getElementById(button.dataset.copy);
    if (!field || !navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(field.value);
        say("Copied.");
      } catch { field.select(); }
    });
  }

  // The zone of this browser is one click away.
  const here = document.getElementById("here");
  const zone = document.getElementById("zone");
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (here && zone && own && own !== zone.value) {
    here.textContent = own;
    here.hidden = false;
    here.addEventListener("click", () => { zone.value = own; zone.form.requestSubmit(); });
  }

  live.hidden = false;
  live.addEventListener("click", toggle);
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

  // Keys: `?` lists them. A letter alone does nothing while a person writes.
  const rows = () => [...main.querySelectorAll("tbody tr:not(.group), .row, .trouble")].filter((row) => row.querySelector("a"));
  const step = (by) => {
    const all = rows();
    const at = all.findIndex((row) => row.contains(document.activeElement));
    const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by];
    next?.querySelector("a").focus();
  };
  const press = (names) => {
    const button = names.map((name) => main.querySelector(`button[value="${name}"]`)).find(Boolean);
    if (button) { button.closest("details")?.setAttribute("open", ""); button.focus(); }
  };
  const keys = {
    "/": () => document.getElementById("search")?.focus(),
    u: toggle,
    j: () => step(1),
    k: () => step(-1),
    r: () => press(["trigger", "retry"]),
    l: () => { if (document.getElementById("log")) location.hash = "log"; },
    "?": () => {
      const list = document.getElementById("keys");
      list.open = !list.open;
      if (list.open) list.scrollIntoView();
    },
  };
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
    } else if (Object.hasOwn(keys, event.key)) {
      event.preventDefault();
      keys[event.key]();
    }
  });

  apply();
})();
