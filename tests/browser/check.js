// Opens each page of a host in Chromium: at three widths, in both themes, checked by axe, by keyboard, without JavaScript, and
// live.
//
// usage: check.js URL TOKEN FOLDER: screenshots go to FOLDER. The host has the package `guests`.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

import { By, Key, until } from "selenium-webdriver";

import { host, start, WAIT_MAX_MS } from "./host.js";

const WIDTHS = [360, 1024, 1920];
const THEMES = ["light", "dark"];
/** How soon after its end a scheduled launch that failed must be seen. A host looks for them every 300 ms. */
const LIVE_MAX_MS = 1_000;
/** After this, a page has read what a change of the record led it to read. */
const QUIET_MS = 5_000;
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];

/** A text that means markup to a browser, changes the direction of text, and is a command to a terminal. */
const HOSTILE = "<img src=x onerror=alert(1)><script>alert(1)</script>\"'&\u202e\u001b[2J";
const [, , base, token, folder] = process.argv;
assert(base && token && folder, "usage: check.js URL TOKEN FOLDER");
mkdirSync(folder, { recursive: true });
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const { api, ended, loaded, signIn } = host(base, token);
const faults = [];

/** Check the page that is open: nothing is wider than the window, no text became markup, and axe finds nothing. */
async function check(browser, name) {
  const hostile = await browser.executeScript(`
    const bad = [...document.querySelectorAll("body img, body script, body iframe, body style, [onerror], [onclick], [style]")];
    const text = document.documentElement.textContent + [...document.querySelectorAll("input, textarea")].map((it) => it.value).join("");
    return bad.map((it) => it.outerHTML).concat(text.match(/[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u200b-\\u200f\\u202a-\\u202e\\u2066-\\u2069]/g) ?? []);`);
  for (const found of hostile) faults.push(`${name}: not escaped: ${JSON.stringify(found)}`);
  const overflow = await browser.executeScript(
    "return document.documentElement.scrollWidth - document.documentElement.clientWidth",
  );
  if (overflow > 0) faults.push(`${name}: ${overflow} px wider than the window`);
  // The policy of the page forbids other scripts, as it must.
  await browser.sendDevToolsCommand("Page.setBypassCSP", { enabled: true });
  await browser.executeScript(axe);
  const violations = await browser.executeAsyncScript(
    `const done = arguments[arguments.length - 1];
    axe.run(document, { runOnly: arguments[0] }).then((found) => done(found.violations.map(
      (it) => it.id + ": " + it.nodes[0].html.slice(0, 200))));`,
    RULES,
  );
  for (const violation of violations) faults.push(`${name}: ${violation}`);
  writeFileSync(join(folder, `${name}.png`), await browser.takeScreenshot(), "base64");
}

/** Type keys as a person does. */
const type = (browser, ...keys) => browser.actions().sendKeys(...keys).perform();

async function everyPage(browser, paths) {
  for (const theme of THEMES) {
    const features = [{ name: "prefers-color-scheme", value: theme }];
    await browser.sendDevToolsCommand("Emulation.setEmulatedMedia", { features });
    for (const width of WIDTHS) {
      await browser.manage().window().setRect({ width, height: 900 });
      for (const path of paths) {
        await browser.get(new URL(path, base).href);
        const name = path.replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-|-$/g, "") || "now";
        await check(browser, `${name}-${width}-${theme}`);
      }
    }
  }
}

/** Go to the schedules, search one, open it and pause it, without a pointer. */
async function byKeyboard(browser) {
  await browser.manage().window().setRect({ width: 1024, height: 900 });
  await browser.get(base);
  await type(browser, "g", "s");
  await browser.wait(until.urlContains("/schedules"), WAIT_MAX_MS, "`g s` opens the schedules");
  await type(browser, "/");
  const focused = await browser.switchTo().activeElement();
  assert.equal(await focused.getAttribute("type"), "search", "`/` leads to the search");
  await type(browser, "by-key", Key.ENTER);
  // The row was on the page before the search too, and goes with that page.
  await browser.wait(until.urlContains("by-key"), WAIT_MAX_MS, "the search is done");
  const link = await browser.wait(until.elementLocated(By.linkText("by-keyboard")), WAIT_MAX_MS);
  await link.sendKeys(Key.ENTER);
  const pause = By.xpath("//form[.//button[normalize-space()='Pause']]//input[@name='note']");
  const note = await browser.wait(until.elementLocated(pause), WAIT_MAX_MS);
  await note.sendKeys("by keyboard", Key.ENTER);
  await browser.wait(until.elementLocated(By.css(".badge.s-paused")), WAIT_MAX_MS, "it is paused");
  const shown = await api("GET", "schedules/by-keyboard");
  assert.equal(shown.pause_note, "by keyboard");
}

/** Keep a page open while a scheduled launch fails: it says so by itself, with the cause and the next step. */
async function live(browser, path) {
  await browser.manage().window().setRect({ width: 1024, height: 900 });
  await browser.get(new URL(path, base).href);
  const name = `fails-on-${path.slice(1) || "now"}`;
  const at = new Date(Date.now() + QUIET_MS);
  await api("POST", "schedules", { package: "guests", task: "fail_permanent", kind: "at", expression: at.toISOString(), name });
  const shown = `const news = document.querySelector("#news p").textContent;
    const rows = document.querySelector("#failures + div")?.textContent ?? "";
    return [!document.getElementById("news").hidden && news.includes(arguments[0]) ? news : "",
      rows.includes(arguments[0]) ? rows : ""];`;
  const hasRows = path === "/";
  let news, rows;
  const isSeen = async () => {
    [news, rows] = await browser.executeScript(shown, name);
    return news !== "" && (rows !== "" || !hasRows);
  };
  await browser.wait(isSeen, WAIT_MAX_MS, `a failed launch on ${path}`, 50);
  const seen = Date.now();
  const [launch] = await api("GET", `launches?schedule=${name}`);
  const took = seen - Date.parse(launch.finished_at);
  if (took > LIVE_MAX_MS) faults.push(`a failed launch was seen on ${path} after ${took} ms`);
  console.log(`a failed launch was seen on ${path} after ${took} ms`);
  for (const text of hasRows ? [news, rows] : [news]) {
    assert.match(text, /failed/, `the cause on ${path}`);
    assert.match(text, /Next: read its logs/, `the next step on ${path}`);
  }
  await check(browser, `failure-on-${path.slice(1) || "now"}`);
  await browser.findElement(By.css("#news a")).click();
  await browser.wait(until.urlContains(`/launches/${launch.id}`), WAIT_MAX_MS, "the launch opens");
}

/** Use the pages without JavaScript: sign in, filter, preview an edit, pause, and see that it is done. */
async function withoutScripts(browser) {
  await browser.manage().deleteAllCookies();
  await browser.sendDevToolsCommand("Emulation.setScriptExecutionDisabled", { value: true });
  await browser.manage().window().setRect({ width: 1024, height: 900 });
  await signIn(browser, "/schedules?q=plain");
  const pause = await browser.findElement(By.id("pause"));
  assert.equal(await pause.isDisplayed(), false, "a button that needs a script is not shown");
  await browser.findElement(By.linkText("plain")).sendKeys(Key.ENTER);
  await browser.wait(until.urlContains("/schedules/plain"), WAIT_MAX_MS);
  await browser.findElement(By.partialLinkText("Edit the rule")).sendKeys(Key.ENTER);
  const rule = await browser.wait(until.elementLocated(By.name("expression")), WAIT_MAX_MS);
  await rule.clear();
  await rule.sendKeys("15 4 * * *");
  await browser.findElement(By.css("button[value=preview]")).sendKeys(Key.ENTER);
  await browser.wait(until.elementLocated(By.id("preview-title")), WAIT_MAX_MS, "a preview");
  assert.equal((await browser.findElements(By.css("#preview ol > li"))).length, 5, "the next five slots");
  writeFileSync(join(folder, "without-scripts.png"), await browser.takeScreenshot(), "base64");
  await browser.findElement(By.css("button[value=edit]")).sendKeys(Key.ENTER);
  await browser.wait(until.elementLocated(By.css(".done")), WAIT_MAX_MS, "it is saved");
  assert.equal((await api("GET", "schedules/plain")).expression, "15 4 * * *");
  // A session that ends while a form is filled in.
  const note = By.xpath("//form[.//button[normalize-space()='Pause']]//input[@name='note']");
  await browser.findElement(note).sendKeys("typed before");
  await browser.manage().deleteAllCookies();
  await browser.findElement(By.css("button[value=pause]")).sendKeys(Key.ENTER);
  const field = await browser.wait(until.elementLocated(By.name("token")), WAIT_MAX_MS, "the login");
  await field.sendKeys(token, Key.ENTER);
  const send = By.xpath("//button[starts-with(normalize-space(), 'Send it now')]");
  await browser.wait(until.elementLocated(send), WAIT_MAX_MS, "what was typed");
  writeFileSync(join(folder, "kept-form.png"), await browser.takeScreenshot(), "base64");
  await browser.findElement(send).sendKeys(Key.ENTER);
  await browser.wait(until.elementLocated(By.css(".badge.s-paused")), WAIT_MAX_MS, "it is paused");
  assert.equal((await api("GET", "schedules/plain")).pause_note, "typed before");
  await browser.sendDevToolsCommand("Emulation.setScriptExecutionDisabled", { value: false });
}

/** See the effect of an edit while it is typed. */
async function livePreview(browser) {
  await browser.get(new URL("/schedules/by-keyboard/edit", base).href);
  const zone = await browser.findElement(By.name("timezone"));
  await zone.clear();
  await zone.sendKeys("Europe/Paris");
  const shown = () => browser.findElement(By.id("preview")).getText();
  await browser.wait(async () => (await shown()).includes("Europe/Paris"), WAIT_MAX_MS, "a preview while one types");
  await zone.sendKeys("x");
  await browser.wait(async () => (await shown()).includes("Europe/Parisx"), WAIT_MAX_MS, "why it is refused");
  await check(browser, "live-preview");
}

/** Fill in texts wherever a person, a file or a guest can put them. */
async function hostileTexts() {
  await api("POST", "schedules", { ...definition, name: "hostile", task: "log_escapes", context: { text: HOSTILE } });
  const { launch } = await api("POST", "schedules/hostile/trigger", { context: { other: HOSTILE } });
  await ended(launch);
  await api("POST", "schedules/hostile/pause", { note: HOSTILE });
  await api("POST", "silences", { rule: "failed*", subject: "hostile", for: "1h", note: HOSTILE });
  const row = await api("GET", `launches/${launch}`);
  return ["/schedules/hostile", "/schedules/hostile/edit", `/launches/${launch}`, `/runs/${row.run_id}`];
}

await loaded();
const definition = { package: "guests", kind: "at", expression: "2099-01-01T00:00:00Z" };
for (const [name, task] of [["broken", "fail_permanent"], ["by-keyboard", "ok"]]) {
  await api("POST", "schedules", { ...definition, name, task });
}
await api("POST", "schedules", { package: "guests", task: "ok", kind: "cron", expression: "0 4 * * *", name: "plain" });
const { launch } = await api("POST", "schedules/broken/trigger", {});
await ended(launch);
const hostile = await hostileTexts();
const browser = await start();
try {
  await browser.get(new URL("/schedules/broken?x=1", base).href);
  await check(browser, "login");
  await signIn(browser, "/schedules/broken?x=1");
  const paths = ["/", "/schedules", "/schedules/broken", "/schedules/broken/edit", "/schedules/broken/calendar", "/backfills"];
  paths.push("/launches", `/launches/${launch}`, "/plan", "/packages", "/packages/guests", "/hosts", "/events", "/alerts");
  paths.push("/launches?status=nonsense", `/schedules?q=${encodeURIComponent(HOSTILE)}`, ...hostile);
  await everyPage(browser, paths);
  await byKeyboard(browser);
  await livePreview(browser);
  for (const path of ["/", "/packages"]) await live(browser, path);
  await withoutScripts(browser);
} finally {
  await browser.quit();
}
for (const fault of faults) console.error(fault);
assert.equal(faults.length, 0, `${faults.length} faults`);
console.log("every page is in order in a browser");
