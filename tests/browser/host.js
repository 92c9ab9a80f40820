// The host under test, and a browser for its pages.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

import { Browser, Builder, By, Key, until } from "selenium-webdriver";
import chrome from "selenium-webdriver/chrome.js";
import firefox from "selenium-webdriver/firefox.js";

/** How long anything may take. */
export const WAIT_MAX_MS = 20_000;

/** How long a host may take to compile a package. */
export const LOAD_MAX_MS = 120_000;
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Return functions for a host: `api` sends a request, `ended` waits for a launch, `signIn` opens a page with a session. */
export function host(base, token) {
  /** Send a request to the API. */
  async function api(method, path, body) {
    const answer = await fetch(new URL(`/api/v1/${path}`, base), {
      method,
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      body: body && JSON.stringify(body),
    });
    const json = await answer.json();
    assert(answer.ok, `${method} ${path}: ${JSON.stringify(json)}`);
    return json;
  }

  /** Ask until `found` returns something, so many milliseconds apart. */
  async function eventually(what, found, wait = WAIT_MAX_MS, apart = 50) {
    const until = Date.now() + wait;
    for (;;) {
      const value = await found();
      if (value) return value;
      assert(Date.now() < until, `it took too long: ${what}`);
      await new Promise((done) => setTimeout(done, apart));
    }
  }

  /** Wait until a launch has ended. */
  const ended = (launch) =>
    eventually(`the end of the launch ${launch}`, async () => {
      const row = await api("GET", `launches/${launch}`);
      return row.finished_at !== null && row;
    });

  /** Wait until the host has loaded the package `guests`. */
  const loaded = () =>
    eventually("the package", async () => {
      const packages = await api("GET", "packages");
      return packages.some((one) => one.name === "guests" && one.state === "active");
    }, LOAD_MAX_MS);

  /** Open a page and sign in. */
  async function signIn(browser, path) {
    await browser.get(new URL(path, base).href);
    await browser.findElement(By.name("token")).sendKeys(token, Key.ENTER);
    await browser.wait(until.elementLocated(By.css("nav")), WAIT_MAX_MS, "a session");
  }

  return { api, ended, eventually, loaded, signIn };
}

/** Returns the path of an installed program; undefined lets Selenium search. */
function installed(name) {
  const paths = (process.env.PATH ?? "").split(":").map((folder) => join(folder, name));
  return paths.find((path) => existsSync(path));
}

/** Whether the browser is Firefox. */
const isFirefox = process.env.BROWSER === "firefox";

/** Starts Chromium or, with BROWSER=firefox, Firefox. */
export async function start() {
  if (isFirefox) {
    const options = new firefox.Options();
    options.addArguments("--headless");
    options.setPreference("widget.gtk.overlay-scrollbars.enabled", true);
    const path = process.env.FIREFOX ?? installed("firefox-esr") ?? installed("firefox");
    if (path) options.setBinary(path);
    const service = new firefox.ServiceBuilder(process.env.GECKODRIVER ?? installed("geckodriver"));
    // Lets a test set preferences.
    service.addArguments("--allow-system-access");
    return new Builder().forBrowser(Browser.FIREFOX).setFirefoxOptions(options).setFirefoxService(service).build();
  }
  const options = new chrome.Options();
  options.addArguments("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars");
  const chromium = process.env.CHROMIUM ?? installed("chromium");
  if (chromium) options.setChromeBinaryPath(chromium);
  const service = new chrome.ServiceBuilder(process.env.CHROMEDRIVER ?? installed("chromedriver"));
  const builder = new Builder().forBrowser(Browser.CHROME).setChromeOptions(options);
  return builder.setChromeService(service).build();
}

/** Sets a preference of Firefox for all pages. */
async function prefer(browser, name, value) {
  await browser.setContext(firefox.Context.CHROME);
  try {
    const set = typeof value === "boolean" ? "setBoolPref" : "setIntPref";
    await browser.executeScript(`Services.prefs.${set}(arguments[0], arguments[1])`, name, value);
  } finally {
    await browser.setContext(firefox.Context.CONTENT);
  }
}

/** Sets which theme pages are asked for: `light` or `dark`. */
export async function setTheme(browser, theme) {
  if (isFirefox) return prefer(browser, "layout.css.prefers-color-scheme.content-override", theme === "dark" ? 0 : 1);
  const features = [{ name: "prefers-color-scheme", value: theme }];
  return browser.sendDevToolsCommand("Emulation.setEmulatedMedia", { features });
}

/** Sets whether pages run scripts. */
export async function setScripts(browser, are) {
  if (isFirefox) return prefer(browser, "javascript.enabled", are);
  return browser.sendDevToolsCommand("Emulation.setScriptExecutionDisabled", { value: !are });
}

/** Returns what's wrong with the page that is open: text that became markup, a page wider than its window, what axe finds. */
export async function faultsOf(browser) {
  const hostile = await browser.executeScript(`
    const bad = [...document.querySelectorAll("body img, body script, body iframe, body style, [onerror], [onclick], [style]")];
    const text = document.documentElement.textContent + [...document.querySelectorAll("input, textarea")].map((it) => it.value).join("");
    return bad.map((it) => it.outerHTML).concat(text.match(/[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u200b-\\u200f\\u202a-\\u202e\\u2066-\\u2069]/g) ?? []);`);
  const faults = hostile.map((found) => `not escaped: ${JSON.stringify(found)}`);
  const overflow = await browser.executeScript(
    "return document.documentElement.scrollWidth - document.documentElement.clientWidth",
  );
  if (overflow > 0) faults.push(`${overflow} px wider than the window`);
  // The policy of the page forbids other scripts, as it must. Those of Firefox's driver run beside it.
  if (!isFirefox) await browser.sendDevToolsCommand("Page.setBypassCSP", { enabled: true });
  const violations = await browser.executeAsyncScript(
    `${AXE};
    const done = arguments[arguments.length - 1];
    window.axe.run(document, { runOnly: arguments[0] }).then((found) => done(found.violations.map(
      (it) => it.id + " (" + it.nodes.length + "): " + it.nodes[0].html.slice(0, 200))));`,
    RULES,
  );
  return faults.concat(violations);
}
